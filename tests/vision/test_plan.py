"""What the planner accepts, and every reason for which it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pagemill.decoder.errors import Refused
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.header import Header
from pagemill.decoder.spec import Role
from pagemill.decoder.tensors import GLOBAL
from pagemill.vision.archs import VISION_ARCHS
from pagemill.vision.plan import plan
from pagemill.vision.spec import VisionRole


def with_metadata(header: Header, **changes: object) -> Header:
    """The header with keys changed ("__" stands for "."); None removes one."""
    metadata = dict(header.metadata)
    for name, value in changes.items():
        key = name.replace("__", ".")
        if value is None:
            del metadata[key]
        else:
            metadata[key] = value
    return replace(header, metadata=metadata)


def without(header: Header, name: str) -> Header:
    return replace(header, tensors={key: info for key, info in header.tensors.items() if key != name})


def with_tensor(header: Header, name: str, **changes: object) -> Header:
    return replace(header, tensors={**header.tensors, name: replace(header.tensors[name], **changes)})


def test_the_facts_come_from_the_header(header: Header) -> None:
    planned = plan(header, text_width=128)
    spec = planned.spec
    assert (spec.width, spec.ff_width, spec.heads, spec.head_dim, spec.layers, spec.out_width) == (128, 256, 4, 32, 3, 128)
    assert (spec.patch_px, spec.merge, spec.block_px, spec.longest_edge_px) == (14, 2, 28, 560)
    assert spec.eps == pytest.approx(1e-5)
    assert spec.projector_eps == 1e-6
    assert spec.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    assert len(planned.tensors) == len(header.tensors) == 33
    assert planned.tensors[Role.ATTN_Q, 2].name == "v.blk.2.attn_q.weight"
    assert planned.weight_bytes == sum(info.size_bytes for info in header.tensors.values())
    assert planned.tensors[VisionRole.PROJECTOR_MERGE, GLOBAL].shape == (512, 128)


def test_every_role_has_one_row() -> None:
    for architecture in VISION_ARCHS.values():
        roles = Counter(row.role for row in architecture.tensors)
        assert set(VisionRole) <= roles.keys()
        assert set(roles.values()) == {1}


def test_a_preprocessing_size_of_its_own_wins(header: Header) -> None:
    assert plan(with_metadata(header, clip__vision__preproc_image_size=448)).spec.longest_edge_px == 448


def with_stranger(header: Header, name: str) -> Header:
    """The header with another tensor, of the size of a norm."""
    norm = header.tensors["v.pre_ln.weight"]
    return replace(header, tensors={**header.tensors, name: replace(norm, name=name)})


REFUSALS: dict[str, tuple[Callable[[Header], Header], str]] = {
    "a text model": (lambda h: with_metadata(h, general__architecture="other"), "should be 'clip', found 'other'.*mmproj"),
    "unknown projector": (lambda h: with_metadata(h, clip__projector_type="mlp"), "'mlp' is not supported .supported: "),
    "no projector": (lambda h: with_metadata(h, clip__projector_type=None), "clip.projector_type is missing"),
    "no width": (lambda h: with_metadata(h, clip__vision__embedding_length=None), "clip.vision.embedding_length"),
    "zero heads": (lambda h: with_metadata(h, clip__vision__attention__head_count=0), "head_count.: expected 1 to"),
    "heads do not divide": (lambda h: with_metadata(h, clip__vision__attention__head_count=3), "3 heads of width 128"),
    "too many layers": (lambda h: with_metadata(h, clip__vision__block_count=4_000_000_000), "found 4000000000"),
    "text for a number": (lambda h: with_metadata(h, clip__vision__patch_size="x"), "clip.vision.patch_size"),
    "two channels": (lambda h: with_metadata(h, clip__vision__image_mean=np.ones(2)), "expected three numbers, found 2"),
    "zero std": (lambda h: with_metadata(h, clip__vision__image_std=np.arange(3.0)), "image_std.: expected three positive"),
    "another gate": (lambda h: with_metadata(h, clip__use_silu=False), "only a SiLU gate"),
    "a bias": (lambda h: with_stranger(h, "v.blk.0.attn_q.bias"), "found also v.blk.0.attn_q.bias"),
    "a norm after the layers": (lambda h: with_stranger(h, "v.post_ln.weight"), "found also v.post_ln.weight"),
    "row breaks": (lambda h: with_stranger(h, "v.token_embd.img_break"), "found also v.token_embd.img_break"),
    "windows": (lambda h: with_metadata(h, clip__vision__n_wa_pattern=8), "n_wa_pattern.: 8 is not supported, expected 0"),
    "rows of another layer": (
        lambda h: with_metadata(h, clip__vision__feature_layer=np.array([-2])),
        r"feature_layer.: \[-2\] is not supported, expected none",
    ),
    "sound": (lambda h: with_metadata(h, clip__has_audio_encoder=True), "has_audio_encoder.: True is not supported"),
    "a key of tomorrow": (lambda h: with_metadata(h, clip__vision__registers=4), "'clip.vision.registers' = 4 is not known"),
    "missing tensor": (lambda h: without(h, "v.blk.1.ffn_up.weight"), "missing: v.blk.1.ffn_up.weight"),
    "wrong shape": (
        lambda h: with_tensor(h, "mm.1.weight", shape=(128, 64)),
        r"mm.1.weight: expected shape \[128, 128\], found \[128, 64\]",
    ),
    "unknown format": (
        lambda h: with_tensor(h, "mm.2.weight", type_name="type 99"),
        "format type 99 .mm.2.weight. is not supported",
    ),
    "format that cannot hold the row": (
        lambda h: with_tensor(h, "v.patch_embd.weight", type_name="Q8_0"),
        "expected rows in multiples of 32 for Q8_0, found 14",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_say_why(change: Callable[[Header], Header], message: str, header: Header) -> None:
    with pytest.raises(Refused, match=message):
        plan(change(header))


def test_a_projector_for_another_text_model_is_refused(header: Header) -> None:
    with pytest.raises(Refused, match="its rows have 128 numbers, the text model's have 1024"):
        plan(header, text_width=1024)


def test_all_reasons_are_collected(header: Header) -> None:
    broken = with_tensor(without(header, "v.pre_ln.weight"), "mm.1.weight", shape=(1, 1))
    with pytest.raises(Refused) as refused:
        plan(broken, text_width=7)
    assert len(refused.value.reasons) == 3
    broken = with_metadata(header, clip__vision__embedding_length=0, clip__vision__image_std=np.ones(1), clip__use_silu=False)
    with pytest.raises(Refused) as refused:
        plan(broken)
    assert len(refused.value.reasons) == 3


def test_a_file_without_tensors_names_some_and_counts_the_rest(header: Header) -> None:
    with pytest.raises(Refused, match=r"missing: v\.blk\.0\.ln1\.weight, v\.blk\.1\.ln1\.weight, v\.blk\.2\.ln1\.weight"):
        plan(replace(header, tensors={}))


def test_a_text_model_file_is_refused_with_a_hint(text_model) -> None:
    with pytest.raises(Refused, match="not its text model"):
        plan(open_file(text_model)[0])


def test_there_is_at_least_one_encoder() -> None:
    assert VISION_ARCHS
