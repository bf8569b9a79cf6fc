"""Decides from a header alone whether the engine can run a file, and what that takes.

``plan`` reads no weight.  It goes on after a fault, so that a refusal carries every reason at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from pagemill.decoder.archs import ARCHS, NOT_TEXT, Architecture, is_layered, tensor_name
from pagemill.decoder.errors import NotGguf, Refused
from pagemill.decoder.facts import Facts
from pagemill.decoder.formats import FORMATS, QuantFormat
from pagemill.decoder.gguf.parse import Header, TensorInfo
from pagemill.decoder.kernels.layouts import LAYOUTS
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.shapes import shape_reasons
from pagemill.decoder.spec import ModelSpec, Role

Slot = tuple[Role, int]  # the layer is -1 for roles that occur once

KV_CACHES: Final = ("f32", "f16", "q8_0")
_DENSE: Final = frozenset({Role.FFN_GATE, Role.FFN_UP, Role.FFN_DOWN})
_EXPERTS: Final = frozenset({Role.EXPERT_ROUTER, Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_DOWN})
_NAMED: Final = 3  # how many tensors a reason names before it counts the rest


@dataclass(frozen=True, slots=True)
class Plan:
    """A file that the engine can run.

    tensors, biases: where each role's weight and bias lie; no (OUTPUT, -1) when the output is tied to the embedding.
    resident_bytes: weights as they lie in memory: matrices in panels, norms and biases in float32.  The embedding's rows are
    looked up in the mapped file and not counted, unless it is also the output.
    cached_token_bytes: keys and values of one token in all layers.
    """

    spec: ModelSpec
    tensors: Mapping[Slot, TensorInfo]
    biases: Mapping[Slot, TensorInfo]
    resident_bytes: int
    cached_token_bytes: int
    kv_cache: str
    exact: bool

    @property
    def tied_output(self) -> bool:
        """Whether the output matrix is the token embedding."""
        return (Role.OUTPUT, -1) not in self.tensors

    def describe(self) -> list[tuple[str, str]]:
        """What a person wants to know: (fact, value) rows."""
        spec, attention = self.spec, self.spec.attention[0]
        formats = Counter(info.type_name for info in (*self.tensors.values(), *self.biases.values()))
        weights = sum(info.rows * info.shape[0] for info in (*self.tensors.values(), *self.biases.values()))
        full = self.cached_token_bytes * spec.context
        return [
            ("architecture", spec.architecture),
            ("name", spec.name or "(none)"),
            ("weights", f"{weights:,}"),
            ("layers", f"{spec.layers} of width {spec.width}, feed-forward {spec.ff_width}"),
            ("heads", f"{attention.heads} of {attention.head_dim}, {attention.kv_heads} for keys and values"),
            ("rope", _rope_text(spec)),
            ("vocabulary", f"{spec.vocab:,} tokens, output {'tied to the embedding' if self.tied_output else 'separate'}"),
            ("context", f"{spec.context:,} tokens"),
            ("formats", ", ".join(f"{name} ({count})" for name, count in formats.most_common())),
            ("products", "float32 (exact)" if self.exact else "int8 where weights are quantized"),
            ("resident", _bytes_text(self.resident_bytes)),
            (
                "kv cache",
                f"{self.kv_cache}, {_bytes_text(self.cached_token_bytes)} a token, {_bytes_text(full)} for all of the context",
            ),
        ]


def plan(header: Header, *, kv_cache: str = "f16", exact: bool = False, name: str = "this model") -> Plan:
    """Accepts a file or refuses it.

    kv_cache: "f32", "f16" or "q8_0".  exact: weights are held as float32, four bytes each.  name: for the refusal.
    Raises Refused with every reason: what was expected, what was found.
    """
    reasons = [*_whole_reasons(header), *_format_reasons(header)]
    architecture = _architecture(header, reasons)
    if architecture is None:
        raise Refused(f"{name} cannot run", reasons)
    facts = Facts(header, header.text("general.architecture"))
    spec = architecture.read(facts)
    tensors, biases = _assign(header, architecture, spec, None if "block_count" in facts.bad else spec.layers, reasons)
    if not facts.reasons:  # shapes follow from facts; with a wrong fact they would only repeat it
        reasons += shape_reasons(spec, tensors, biases)
        reasons += _cache_reasons(spec, kv_cache)
    reasons += _vocabulary_reasons(header, facts)
    reasons += facts.reasons
    if reasons:
        raise Refused(f"{name} cannot run", reasons)
    tied = (Role.OUTPUT, -1) not in tensors
    resident = sum(_resident_bytes(role, info, tied, exact) for (role, _), info in tensors.items())
    resident += sum(4 * info.shape[0] for info in biases.values())
    cached = sum(CODECS[kv_cache].position_bytes(each.kv_heads, each.head_dim) for each in spec.attention)
    return Plan(spec, MappingProxyType(tensors), MappingProxyType(biases), resident, cached, kv_cache, exact)


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


def _format_reasons(header: Header) -> Iterable[str]:
    """Tensors in formats that the engine has not, and rows that are no whole blocks."""
    unsupported: dict[str, list[str]] = {}
    for info in header.tensors.values():
        known = FORMATS.get(info.type_name)
        if known is None:
            unsupported.setdefault(info.type_name, []).append(info.name)
        elif info.shape[0] % known.block:
            yield f"tensor {info.name}: expected rows in multiples of {known.block} for {known.name}, found {info.shape[0]}"
        elif len(info.shape) == 1 and isinstance(known, QuantFormat):
            yield f"tensor {info.name}: expected a vector in F32, F16 or BF16, found {known.name}"
    for name, tensors in sorted(unsupported.items()):
        yield f"format {name} ({_names(tensors)}) is not supported: expected one of {', '.join(FORMATS)}"


def _assign(
    header: Header, architecture: Architecture, spec: ModelSpec, layers: int | None, reasons: list[str]
) -> tuple[dict[Slot, TensorInfo], dict[Slot, TensorInfo]]:
    """Finds every role's weight and bias; notes missing tensors and tensors without a role.

    layers: None when the file does not say how many; then only roles that occur once are looked for.
    """
    swap = (_EXPERTS, _DENSE) if spec.experts else (frozenset[Role](), frozenset[Role]())
    needs = architecture.needs - swap[1] | swap[0]
    weights = _find(header, needs, architecture.may_have, "weight", layers, reasons)
    biases = _find(header, architecture.needs_bias, architecture.may_have_bias, "bias", layers, reasons)
    placed = {info.name for info in (*weights.values(), *biases.values())}
    strangers = [name for name in header.tensors if name not in placed]
    if strangers and layers is not None:
        reasons.append(
            f"expected only tensors of a {spec.architecture} model with {layers} layers, found also {_names(strangers)}"
        )
    return weights, biases


def _find(
    header: Header,
    needs: frozenset[Role],
    may_have: frozenset[Role],
    part: Literal["weight", "bias"],
    layers: int | None,
    reasons: list[str],
) -> dict[Slot, TensorInfo]:
    """The tensors of these roles that are there; a reason for each needed role that misses one."""
    found: dict[Slot, TensorInfo] = {}
    for role in Role:  # the enum's order, so that reasons come in the order of the forward pass
        if role not in needs and role not in may_have:
            continue
        slots = range(layers or 0) if is_layered(role) else (-1,)
        missing = []
        for layer in slots:
            info = header.tensors.get(tensor_name(role, layer, part))
            if info is not None:
                found[role, layer] = info
            elif role in needs:
                missing.append(tensor_name(role, layer, part))
        if missing:
            reasons.append(f"missing: {_names(missing)}")
    return found


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
    embedding = header.tensors.get(tensor_name(Role.TOKEN_EMBEDDING, -1))
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


def _resident_bytes(role: Role, info: TensorInfo, tied: bool, exact: bool) -> int:
    """Bytes of one weight in memory; see Plan.resident_bytes."""
    if len(info.shape) == 1:
        return 4 * info.shape[0]
    if role is Role.TOKEN_EMBEDDING and not tied:
        return 0
    layout = LAYOUTS["F32" if exact else info.type_name]
    return -(-info.rows // layout.group_rows) * layout.group_bytes(info.shape[0])


def _names(names: list[str]) -> str:
    """The first few names, and how many more."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _rope_text(spec: ModelSpec) -> str:
    """The rope of the first layer in words."""
    rope = spec.attention[0].rope
    if rope is None:
        return "none"
    scaling = "" if rope.scaling == "none" else f", {rope.scaling} scaling by {rope.factor:g}"
    return f"base {rope.base:g}, {rope.dims} dimensions{scaling}"


def _bytes_text(count: int) -> str:
    """A size in binary units."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
