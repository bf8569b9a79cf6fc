"""Decides from a header alone whether the engine can run a file, and what that takes.

``plan`` reads no weight.  It goes on after a fault, so that a refusal carries every reason at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pagemill.decoder.archs import ARCHS, NOT_TEXT, Architecture
from pagemill.decoder.errors import NotGguf, Refused
from pagemill.decoder.facts import Facts
from pagemill.decoder.gguf.header import Header, TensorInfo
from pagemill.decoder.kernels.layouts import LAYOUTS
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.network.support import unsupported
from pagemill.decoder.spec import ModelSpec, Role
from pagemill.decoder.tensors import GLOBAL, check_tensors, format_reasons

KV_CACHES: Final = ("f32", "f16", "q8_0")


@dataclass(frozen=True, slots=True)
class Plan:
    """A file that the engine can run.

    tensors, biases: each role's weight and bias; no (OUTPUT, GLOBAL) where the output is tied to the embedding.
    """

    spec: ModelSpec
    tensors: Mapping[tuple[Role, int], TensorInfo]
    biases: Mapping[tuple[Role, int], TensorInfo]
    kv_cache: str
    exact: bool

    @property
    def tied_output(self) -> bool:
        """Whether the output matrix is the token embedding."""
        return (Role.OUTPUT, GLOBAL) not in self.tensors

    @property
    def resident_bytes(self) -> int:
        """Bytes of the weights in memory: matrices in panels, norms and biases in float32.

        The embedding's rows are looked up in the mapped file and not counted, unless it is also the output.
        """
        weights = sum(self._weight_bytes(role, info) for (role, _), info in self.tensors.items())
        return weights + sum(4 * info.shape[0] for info in self.biases.values())

    @property
    def cached_token_bytes(self) -> int:
        """Bytes of the keys and values of one token, all layers."""
        codec = CODECS[self.kv_cache]
        return sum(codec.position_bytes(each.kv_heads, each.head_dim) for each in self.spec.attention)

    def step_bytes(self, rows: int, outputs: int) -> int:
        """Bytes of the row buffers of steps of up to so many rows, so many of them with logits."""
        attention = self.spec.attention[0]
        heads = (3 * attention.heads + 2 * attention.kv_heads) * attention.head_dim
        return 4 * (rows * (2 * self.spec.width + 3 * self.spec.ff_width + heads) + outputs * self.spec.vocab)

    def _weight_bytes(self, role: Role, info: TensorInfo) -> int:
        if len(info.shape) == 1:
            return 4 * info.shape[0]
        if role is Role.TOKEN_EMBEDDING and not self.tied_output:
            return 0
        layout = LAYOUTS["F32" if self.exact else info.type_name]
        return -(-info.rows // layout.group_rows) * layout.group_bytes(info.shape[0])


def plan(header: Header, *, kv_cache: str = "f16", exact: bool = False, name: str = "this model") -> Plan:
    """Accepts a file or refuses it.

    kv_cache: "f32", "f16" or "q8_0".  exact: weights are held as float32, four bytes each.  name: for the refusal.
    Raises Refused with every reason: what was expected, what was found.
    """
    reasons = list(_whole_reasons(header))
    architecture = _architecture(header, reasons)
    if architecture is None:
        raise Refused(f"{name} cannot run", [*reasons, *format_reasons(header)])
    facts = Facts(header, header.text("general.architecture"))
    spec = architecture.spec_of(facts)
    what = f"a {spec.architecture} model"
    found, wrong = check_tensors(header, facts, architecture.tensors, spec, "block_count", what)
    reasons += wrong
    if not facts.reasons:
        reasons += _cache_reasons(spec, kv_cache)
        reasons += unsupported(spec)
    reasons += _vocabulary_reasons(header, facts)
    reasons += facts.reasons
    if reasons:
        raise Refused(f"{name} cannot run", reasons)
    return Plan(spec, MappingProxyType(found.weights), MappingProxyType(found.biases), kv_cache, exact)


def _architecture(header: Header, reasons: list[str]) -> Architecture | None:
    """The file's architecture, or None and a reason."""
    try:
        name = header.text("general.architecture")
    except NotGguf as error:
        reasons.append(str(error))
        return None
    if name not in ARCHS:
        what = NOT_TEXT.get(name)
        known = ", ".join(sorted(ARCHS))
        reasons.append(f"architecture {name!r} is " + (what or f"not supported: expected one of {known}"))
    return ARCHS.get(name)


def _whole_reasons(header: Header) -> Iterable[str]:
    """A file that is only a part of a model."""
    parts, kind = header.metadata.get("split.count", 1), header.metadata.get("general.type", "model")
    if isinstance(parts, int) and parts > 1:
        yield f"this is one of {parts} parts of a model: merge them into one file first (gguf-split --merge)"
    if isinstance(kind, str) and kind not in ("model", "mmproj"):
        yield f"this file is of type {kind!r}: expected a model"


def _vocabulary_reasons(header: Header, facts: Facts) -> Iterable[str]:
    """Token table, embedding and vocab_size must agree."""
    try:
        tokens = len(header.texts("tokenizer.ggml.tokens"))
    except NotGguf as error:
        yield str(error)
        return
    if tokens == 0:
        yield "expected tokens in 'tokenizer.ggml.tokens', found none; convert the model again"
        return
    embedding = header.tensors.get("token_embd.weight")
    if embedding is not None and embedding.rows != tokens:
        yield f"expected as many tokens as rows of {embedding.name}, found {tokens} tokens and {embedding.rows} rows"
    stated = facts.count("vocab_size", tokens)
    if stated != tokens and "vocab_size" not in facts.bad:
        yield f"expected as many tokens as '{facts.prefix}.vocab_size', found {tokens} tokens and {stated}"


def _cache_reasons(spec: ModelSpec, kv_cache: str) -> Iterable[str]:
    """Whether keys and values fit the cache's format."""
    if kv_cache not in KV_CACHES:
        yield f"kv cache: expected one of {', '.join(KV_CACHES)}, found {kv_cache!r}"
        return
    for head_dim in sorted({each.head_dim for each in spec.attention}):
        refusal = CODECS[kv_cache].refusal(head_dim)
        if refusal is not None:
            other = kv_cache != "f16" and CODECS["f16"].refusal(head_dim) is None
            yield refusal + (": use kv_cache: f16" if other else "")
