"""A GGUF file and prompts in, tokens out.

>>> model = open_model("samples/model/text-q8_0.gguf")
>>> engine = Engine(model, slots=1, context=64)
>>> prompt = Prompt((Tokens(tuple(model.tokenizer.encode("The mill"))),))
>>> events = engine.generate(Request(prompt, max_tokens=5))
>>> len(events)
5
>>> engine.close()

Names below "for encoders" are what another network needs to run on the same kernels; they may change between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagemill.lazy import exports

if TYPE_CHECKING:
    from pagemill.decoder.batch import Event as Event
    from pagemill.decoder.batch import Finish as Finish
    from pagemill.decoder.batch import Prompt as Prompt
    from pagemill.decoder.batch import Request as Request
    from pagemill.decoder.batch import Rows as Rows
    from pagemill.decoder.batch import Tokens as Tokens
    from pagemill.decoder.engine import Engine as Engine
    from pagemill.decoder.engine import StepRows as StepRows
    from pagemill.decoder.engine import logits as logits
    from pagemill.decoder.errors import ContextFull as ContextFull
    from pagemill.decoder.errors import ModelError as ModelError
    from pagemill.decoder.errors import NotGguf as NotGguf
    from pagemill.decoder.errors import Refused as Refused
    from pagemill.decoder.facts import Facts as Facts
    from pagemill.decoder.gguf.files import open_file as open_file
    from pagemill.decoder.gguf.header import Header as Header
    from pagemill.decoder.gguf.header import TensorInfo as TensorInfo
    from pagemill.decoder.kernels.cpu_features import host_cpu_name as host_cpu_name
    from pagemill.decoder.kernels.cpu_features import host_features as host_features
    from pagemill.decoder.kernels.cpu_features import host_machine as host_machine
    from pagemill.decoder.kernels.isa import LANES as LANES
    from pagemill.decoder.kernels.isa import PORTABLE as PORTABLE
    from pagemill.decoder.kernels.isa import Isa as Isa
    from pagemill.decoder.kernels.isa import detect as detect
    from pagemill.decoder.kernels.isa import reasons as reasons
    from pagemill.decoder.kernels.memory import Array as Array
    from pagemill.decoder.kernels.ops.rows import Source as Source
    from pagemill.decoder.kernels.team import Team as Team
    from pagemill.decoder.kernels.team import available_cores as available_cores
    from pagemill.decoder.kernels.team import default_threads as default_threads
    from pagemill.decoder.model import Model as Model
    from pagemill.decoder.model import PlannedModel as PlannedModel
    from pagemill.decoder.model import cpu_variant as cpu_variant
    from pagemill.decoder.model import load_model as load_model
    from pagemill.decoder.model import open_model as open_model
    from pagemill.decoder.model import plan_model as plan_model
    from pagemill.decoder.network.arithmetic import numeric_class as numeric_class
    from pagemill.decoder.network.kv_cache import KvCache as KvCache
    from pagemill.decoder.network.kv_codec import CODECS as CODECS
    from pagemill.decoder.network.kv_codec import Codec as Codec
    from pagemill.decoder.network.kv_codec import round_capacity as round_capacity
    from pagemill.decoder.network.recorder import Recorder as Recorder
    from pagemill.decoder.network.recorder import new_rows as new_rows
    from pagemill.decoder.plan import Plan as Plan
    from pagemill.decoder.plan_text import bytes_text as bytes_text
    from pagemill.decoder.plan_text import describe as describe
    from pagemill.decoder.sampler import Sampling as Sampling
    from pagemill.decoder.spec import AttentionSpec as AttentionSpec
    from pagemill.decoder.spec import BlockSpec as BlockSpec
    from pagemill.decoder.spec import ModelSpec as ModelSpec
    from pagemill.decoder.spec import NormSpec as NormSpec
    from pagemill.decoder.spec import Role as Role
    from pagemill.decoder.spec import RopeSpec as RopeSpec
    from pagemill.decoder.tensors import GLOBAL as GLOBAL
    from pagemill.decoder.tensors import TensorRow as TensorRow
    from pagemill.decoder.tensors import check_tensors as check_tensors
    from pagemill.decoder.tokenizer.tokenizer import Tokenizer as Tokenizer
    from pagemill.decoder.weights.loader import Layer as Layer
    from pagemill.decoder.weights.loader import Loader as Loader
    from pagemill.decoder.weights.loader import Matrix as Matrix
    from pagemill.decoder.weights.loader import Rounding as Rounding
    from pagemill.decoder.weights.loader import padded as padded
    from pagemill.decoder.weights.panel_store import PanelStore as PanelStore
    from pagemill.decoder.weights.panel_store import open_panel_store as open_panel_store
    from pagemill.decoder.weights.rounding import BLOCKS as BLOCKS

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "batch": "Event Finish Prompt Request Rows Tokens",
        "plan_text": "bytes_text describe",
        "engine": "Engine StepRows logits",
        "errors": "ContextFull ModelError NotGguf Refused",
        "facts": "Facts",
        "gguf.files": "open_file",
        "gguf.header": "Header TensorInfo",
        "kernels.cpu_features": "host_cpu_name host_features host_machine",
        "kernels.isa": "Isa LANES PORTABLE detect reasons",
        "kernels.memory": "Array",
        "kernels.ops.rows": "Source",
        "kernels.team": "Team available_cores default_threads",
        "model": "Model PlannedModel load_model open_model plan_model cpu_variant",
        "network.arithmetic": "numeric_class",
        "network.kv_cache": "KvCache",
        "network.kv_codec": "CODECS Codec round_capacity",
        "network.recorder": "Recorder new_rows",
        "plan": "Plan",
        "sampler": "Sampling",
        "spec": "AttentionSpec BlockSpec ModelSpec NormSpec Role RopeSpec",
        "tensors": "GLOBAL TensorRow check_tensors",
        "tokenizer.tokenizer": "Tokenizer",
        "weights.loader": "Layer Loader Matrix Rounding padded",
        "weights.panel_store": "PanelStore open_panel_store",
        "weights.rounding": "BLOCKS",
    },
)
