"""Pages in, page texts out, in one process.

>>> from PIL import Image
>>> with open_page_reader("samples/model/text-q8_0.gguf", "samples/model/mmproj-f16.gguf") as reader:
...     pages = list(read_documents(reader, ["samples/documents/notice.png"]))
>>> pages[0].status
'ok'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagemill.lazy import exports

if TYPE_CHECKING:
    from pagemill.pipeline.documents.content import Content as Content
    from pagemill.pipeline.documents.content import hash_content as hash_content
    from pagemill.pipeline.documents.documents import Inspector as Inspector
    from pagemill.pipeline.documents.raster import to_rgb as to_rgb
    from pagemill.pipeline.durable import TEMP_SUFFIX as TEMP_SUFFIX
    from pagemill.pipeline.durable import temp_path as temp_path
    from pagemill.pipeline.durable import write_durably as write_durably
    from pagemill.pipeline.errors import PageError as PageError
    from pagemill.pipeline.errors import PasswordNeeded as PasswordNeeded
    from pagemill.pipeline.errors import Replaced as Replaced
    from pagemill.pipeline.errors import TooLarge as TooLarge
    from pagemill.pipeline.errors import Unreachable as Unreachable
    from pagemill.pipeline.errors import Unreadable as Unreadable
    from pagemill.pipeline.layout import without_boxes as without_boxes
    from pagemill.pipeline.page import WHOLE_DOCUMENT as WHOLE_DOCUMENT
    from pagemill.pipeline.page import Attempt as Attempt
    from pagemill.pipeline.page import PageFailure as PageFailure
    from pagemill.pipeline.page import PageImage as PageImage
    from pagemill.pipeline.page import PageRef as PageRef
    from pagemill.pipeline.page import PageText as PageText
    from pagemill.pipeline.page import Picture as Picture
    from pagemill.pipeline.reading.opening import open_page_reader as open_page_reader
    from pagemill.pipeline.reading.opening import read_documents as read_documents
    from pagemill.pipeline.reading.postprocess import to_plain_text as to_plain_text
    from pagemill.pipeline.reading.reader import PageReader as PageReader
    from pagemill.pipeline.reading.recovery import Recovery as Recovery
    from pagemill.pipeline.reading.settings import ReadSettings as ReadSettings
    from pagemill.pipeline.render.preprocess import RenderSettings as RenderSettings
    from pagemill.pipeline.render.producer import Producer as Producer
    from pagemill.pipeline.render.renderer import RenderRequest as RenderRequest
    from pagemill.pipeline.sinks import SINKS as SINKS
    from pagemill.pipeline.sinks import Per as Per
    from pagemill.pipeline.sinks import SourceDocument as SourceDocument
    from pagemill.pipeline.sinks import output_names_of as output_names_of
    from pagemill.pipeline.sinks import write_document as write_document
    from pagemill.pipeline.sinks.document import OutputFile as OutputFile
    from pagemill.pipeline.sinks.facts import confidence_of as confidence_of
    from pagemill.pipeline.sinks.facts import facts_of as facts_of
    from pagemill.pipeline.sinks.facts import xml_name as xml_name
    from pagemill.pipeline.sinks.facts import xml_text as xml_text
    from pagemill.pipeline.sinks.markup import to_html as to_html
    from pagemill.pipeline.sinks.names import OWN_FOLDER as OWN_FOLDER
    from pagemill.pipeline.sinks.names import name_key as name_key
    from pagemill.pipeline.sinks.names import output_names as output_names
    from pagemill.pipeline.stage import Stage as Stage
    from pagemill.pipeline.stage import WaitingStage as WaitingStage
    from pagemill.pipeline.trace import NO_TRACE as NO_TRACE
    from pagemill.pipeline.trace import Trace as Trace
    from pagemill.pipeline.trace import open_trace as open_trace
    from pagemill.pipeline.transcriber import ReadingStage as ReadingStage
    from pagemill.pipeline.transcriber import Transcriber as Transcriber

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "documents.content": "Content hash_content",
        "documents.documents": "Inspector",
        "documents.raster": "to_rgb",
        "durable": "TEMP_SUFFIX temp_path write_durably",
        "errors": "PageError PasswordNeeded Replaced TooLarge Unreachable Unreadable",
        "layout": "without_boxes",
        "page": "WHOLE_DOCUMENT Attempt PageFailure PageImage PageRef PageText Picture",
        "reading.opening": "open_page_reader read_documents",
        "reading.postprocess": "to_plain_text",
        "reading.reader": "PageReader",
        "reading.recovery": "Recovery",
        "reading.settings": "ReadSettings",
        "render.preprocess": "RenderSettings",
        "render.producer": "Producer",
        "render.renderer": "RenderRequest",
        "sinks": "Per SINKS SourceDocument output_names_of write_document",
        "sinks.document": "OutputFile",
        "sinks.facts": "confidence_of facts_of xml_name xml_text",
        "sinks.markup": "to_html",
        "sinks.names": "OWN_FOLDER name_key output_names",
        "stage": "Stage WaitingStage",
        "trace": "NO_TRACE Trace open_trace",
        "transcriber": "ReadingStage Transcriber",
    },
)
