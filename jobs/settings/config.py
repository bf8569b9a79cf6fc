"""Every setting of Pagemill: one frozen model a section, one field a key, with its unit and its default.

config.yaml documents the same keys (a test compares them).  ``layers`` reads job files, the environment and flags into
these models; ``SHAPES_TEXT`` says which settings can change a page's text and so belong to the identity of its work.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic_core import PydanticCustomError

Texts = Annotated[tuple[str, ...], Field(strict=False)]  # YAML has lists only
Pairs = Annotated[  # a mapping in YAML; hashable here, and in the order written
    tuple[tuple[str, str], ...],
    BeforeValidator(lambda value: tuple(value.items()) if isinstance(value, dict) else value),
    PlainSerializer(dict),
]
Trouble = Literal["looped", "broken", "low_confidence", "truncated"]
Unfinished = Literal["failed", "looped", "truncated", "low_confidence", "blank"]


def _known_format(name: str) -> str:
    from pagemill.pipeline import SINKS  # loads lxml and pikepdf: only where formats are named

    if name not in SINKS:
        raise PydanticCustomError("format", "Input should be {names}", {"names": " or ".join(map(repr, SINKS))})
    return name


Format = Annotated[str, AfterValidator(_known_format)]


class Section(BaseModel):
    """Unknown keys and values of another type are errors, never guesses."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelSection(Section):
    """A model of the registry, or a pair of GGUF files; null for all is the embedded sample model."""

    name: str | None = None
    folder: str | None = None
    text: str | None = None
    mmproj: str | None = None


class EngineSection(Section):
    """Batched decoding."""

    slots: int = Field(default=16, ge=1, le=1024)
    context: int = Field(default=8192, ge=64)
    threads: int | None = Field(default=None, ge=1)
    cpu: str = "auto"
    kv_cache: Literal["f32", "f16", "q8_0"] = "f16"
    chunk: int = Field(default=256, ge=1)
    max_tokens: int = Field(default=4096, ge=1)
    exact_activations: bool = False
    repack_cache: bool = False


class MemorySection(Section):
    """How much of the machine's memory a run may take."""

    budget: int | None = Field(default=None, ge=64 << 20)


class SamplingSection(Section):
    """How the next token is chosen from the logits."""

    temperature: float = Field(default=0.0, ge=0.0, le=10.0)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    min_p: float = Field(default=0.0, ge=0.0, lt=1.0)
    repetition_penalty: float = Field(default=1.0, ge=1.0, le=10.0)
    repetition_window: int = Field(default=64, ge=0)
    seed: int = Field(default=0, ge=0)


class VisionSection(Section):
    """From page pixels to embedding rows."""

    backend: Literal["auto", "cpu"] = "auto"
    precision: Literal["auto", "bf16", "int8", "f32"] = "auto"
    longest_edge_px: int | None = Field(default=None, ge=28)
    multiple_px: Literal[14, 28] = 28


class InputSection(Section):
    """What to read."""

    paths: Texts = ()
    list: str | None = None
    password: str | None = None
    passwords: Pairs = ()
    cache_bytes: int = Field(default=2 << 30, ge=1 << 20)
    max_pages: int = Field(default=20_000, ge=1)


class OutputSection(Section):
    """Where the text goes."""

    folder: str = "out"
    formats: Annotated[tuple[Format, ...], Field(strict=False, min_length=1)] = ("markdown",)
    per: Literal["document", "page"] = "document"
    copy_to: str | None = None


class RenderSection(Section):
    """Documents to page images, in child processes."""

    max_dpi: float = Field(default=200.0, gt=0.0, le=2400.0)
    max_pixels: int = Field(default=200_000_000, ge=1)
    workers: int = Field(default=2, ge=1, le=256)
    ahead: int = Field(default=4, ge=1, le=1024)
    timeout_seconds: float = Field(default=60.0, gt=0.0)
    memory_bytes: int = Field(default=2 << 30, ge=256 << 20)


class QualitySection(Section):
    """What keeps a page's status truthful."""

    skip_blank: bool = True
    skip_bleed: bool = True


class RecoverySection(Section):
    """When and how a page is read again that was not read well."""

    retry_on: Annotated[tuple[Trouble, ...], Field(strict=False)] = ("looped", "broken", "low_confidence")
    temperatures: Annotated[tuple[Annotated[float, Field(gt=0.0, le=10.0)], ...], Field(strict=False)] = (0.2, 0.5)
    scales: Annotated[tuple[Annotated[float, Field(gt=0.1, le=4.0)], ...], Field(strict=False)] = (0.8,)
    halves: bool = True
    low_confidence: float = Field(default=0.6, ge=0.0, lt=1.0)
    orientation: Literal["as_is", "auto"] = "as_is"


class PromptSection(Section):
    """The prompt's words beside the page."""

    text: str = ""


class RunSection(Section):
    """How a job goes about its pages."""

    attempts: int = Field(default=2, ge=1, le=100)
    retry_failed: bool = False
    retry_statuses: Annotated[tuple[Unfinished, ...], Field(strict=False, min_length=1)] = ("failed",)
    full_disk_wait_seconds: float = Field(default=86_400.0, ge=0.0)
    lease_seconds: float = Field(default=300.0, ge=1.0)
    progress: Literal["auto", "rich", "tqdm", "json", "none"] = "auto"
    trace: str | None = None


class WatchSection(Section):
    """`pagemill watch`: when a file is taken, and what becomes of it."""

    scan_seconds: float = Field(default=30.0, ge=0.1)
    settle_seconds: float = Field(default=5.0, ge=0.1)
    empty_seconds: float = Field(default=300.0, ge=0.0)
    events: bool = True
    batch_files: int = Field(default=64, ge=1)
    ignore: Texts = ()
    done: Literal["leave", "move"] = "leave"
    done_folder: str | None = None
    failed_folder: str | None = None
    health_file: str | None = None
    webhook: str | None = None


class Config(Section):
    """All settings; ``Config()`` is the defaults."""

    model: ModelSection = ModelSection()
    engine: EngineSection = EngineSection()
    memory: MemorySection = MemorySection()
    sampling: SamplingSection = SamplingSection()
    vision: VisionSection = VisionSection()
    input: InputSection = InputSection()
    output: OutputSection = OutputSection()
    render: RenderSection = RenderSection()
    quality: QualitySection = QualitySection()
    recovery: RecoverySection = RecoverySection()
    prompt: PromptSection = PromptSection()
    run: RunSection = RunSection()
    watch: WatchSection = WatchSection()


#: Paths, which are relative to the job file they are in.
PATH_KEYS: tuple[tuple[str, str], ...] = (
    *(("model", "folder"), ("model", "text"), ("model", "mmproj"), ("input", "paths"), ("input", "list"), ("output", "folder")),
    *(("watch", "done_folder"), ("watch", "failed_folder"), ("watch", "health_file"), ("run", "trace")),
)

#: Settings that can change a page's text as they are written.  Those that a model or the CPU decides with (context, kv_cache,
#: exact_activations, backend, precision, longest_edge_px) count as they are resolved: see ``models.planned.Resolved``.
#: Slots, chunk and threads cannot: a page's bits do not depend on them.  The model's files have a hash of their own; a
#: password changes whether a document opens, not what it says.
SHAPES_TEXT: tuple[tuple[str, str | None], ...] = (
    ("engine", "max_tokens"),
    ("sampling", None),
    ("vision", "multiple_px"),
    ("render", "max_dpi"),
    ("quality", None),
    ("recovery", None),
    ("prompt", None),
)
