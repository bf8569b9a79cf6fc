"""Training, short: it resumes, the loss falls, and what it exports runs in the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pagemill.decoder.batch import Request
from pagemill.decoder.engine import Engine
from pagemill.decoder.model import open_model
from pagemill.vision.encoder import open_encoder
from pagemill.vision.patches import prepare, to_patches
from pagemill.vision.segments import page_prompt

pytest.importorskip("torch", reason="needs the extra `train`")
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def run(module: str, *arguments: object) -> None:
    """One of the package's commands."""
    subprocess.run([sys.executable, "-m", f"samples.model.train{module}", *map(str, arguments)], cwd=ROOT, check=True)


def read_log(folder: Path) -> list[dict[str, float]]:
    """A run's steps."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 steps from nothing, stopped and resumed in the middle."""
    folder = tmp_path_factory.mktemp("run")
    common = (folder, "--curriculum", "smoke", "--workers", 1, "--save-every", 5, "--decay-from", 20, "--rate", 0.02)
    run("", *common, "--steps", 15)
    run("", *common, "--steps", 30)
    return folder


def test_training_goes_on_from_its_state(folder: Path) -> None:
    steps = [int(line["step"]) for line in read_log(folder)]
    assert steps == list(range(1, 31))


def test_a_short_run_improves_its_loss(folder: Path) -> None:
    lines = read_log(folder)
    for loss in ("token", "patch", "cell"):
        assert np.mean([line[loss] for line in lines[-5:]]) < 0.9 * np.mean([line[loss] for line in lines[:5]]), loss


def test_two_processes_learn_what_one_does(tmp_path: Path) -> None:
    for name, workers in (("one", 1), ("two", 2)):
        run("", tmp_path / name, "--curriculum", "smoke", "--steps", 3, "--workers", workers)
    one, two = (read_log(tmp_path / name) for name in ("one", "two"))
    assert [line["token"] for line in two] == pytest.approx([line["token"] for line in one], rel=0.01)  # bfloat16 sums


def test_exported_pair_runs_in_the_engine_and_agrees_with_the_network(folder: Path, tmp_path: Path) -> None:
    import torch

    from samples.model.train.checkpoint import load_weights, put_weights
    from samples.model.train.network import Network

    run(".export", folder / "average.safetensors", tmp_path)
    pair = tmp_path / "text-q8_0.gguf", tmp_path / "mmproj-f16.gguf"
    assert sum(path.stat().st_size for path in pair) <= 25_000_000
    network = Network()
    put_weights(network, load_weights(folder / "average.safetensors")[0])
    pixels = np.random.default_rng(0).integers(0, 256, (56, 84, 3), np.uint8)
    with torch.no_grad():
        expected = network.see(torch.from_numpy(pixels[None]))[1][0].numpy()
    encoder = open_encoder(pair[1], backend="cpu", precision="f32", threads=1)
    found = encoder.encode(to_patches(prepare(Image.fromarray(pixels), encoder.spec), encoder.spec))
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()  # float16 weights, another order of sums
    with closing(Engine(open_model(pair[0]), slots=1, context=256, threads=1)) as engine:
        events = engine.generate(
            Request(page_prompt(engine.model.tokenizer, found), 8, stop_ids=engine.model.tokenizer.eos_ids)
        )
    assert 1 <= len(events) <= 8


def test_an_exported_pair_holds_the_weights_but_for_their_rounding(folder: Path, tmp_path: Path) -> None:
    from samples.model.train.checkpoint import load_weights
    from samples.model.train.dequantize import load_pair

    run(".export", folder / "average.safetensors", tmp_path)
    expected, found = load_weights(folder / "average.safetensors")[0], load_pair(tmp_path)
    assert found.keys() == {name for name in expected if not name.startswith("heads.")}
    for name, weight in found.items():
        step = expected[name].abs().max() / 127  # of Q8_0; F16 is finer
        assert (weight - expected[name]).abs().max() < step, name


def test_transformers_gives_the_network_s_logits(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.24", reason="needs transformers 5.24 or later")
    import torch

    from samples.model.train.checkpoint import load_weights, put_weights
    from samples.model.train.network import Network
    from samples.model.train.vocabulary import open_tokenizer, turns

    run(".hugging_face", folder / "average.safetensors", tmp_path)
    model = transformers.LightOnOcrForConditionalGeneration.from_pretrained(tmp_path).eval()
    network = Network()
    put_weights(network, load_weights(folder / "average.safetensors")[0])
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1, 56, 84, 3), np.uint8))
    written = open_tokenizer().encode("In the beginning").ids
    turn, image = turns()[0], [model.config.image_token_id] * 6
    ids = torch.tensor([[*turn.before, *image, *turn.after, *written]])
    with torch.no_grad():
        normal = (pixels.permute(0, 3, 1, 2).float() / 255 - network.mean) / network.std
        expected = model(input_ids=ids, pixel_values=normal, image_sizes=torch.tensor([[56, 84]])).logits
        embedded = network.embed(ids)
        embedded[:, len(turn.before) : len(turn.before) + 6] = network.see(pixels)[1]
        found, _, _ = network.read(embedded, 0)
    assert (found - expected).abs().max() < 1e-4  # float32, another order of sums
