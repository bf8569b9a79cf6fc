"""`python -m samples.model.train.answers PAIR WEIGHTS --llama BIN`: what other programs read on 20 held-out pages.

Writes the pages and `answers.json` into tests/oracles/sample, which tests/samples/test_answers.py holds the engine to.
Everyone reads greedily:

- llama.cpp's llama-mtmd-cli the pair.  It enlarges every page to the side that the vision file names, which neither the
  others nor the training do; so it gets copies of that file that name the page's own side, and enlarges nothing.
- transformers' LightOnOCR class in float32: the pair's weights, as rounded as they are, and WEIGHTS, from before.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor

from samples.model.train import hugging_face
from samples.model.train.checkpoint import load_weights
from samples.model.train.dequantize import load_pair
from samples.model.train.export import PROJECTOR, TEXT
from samples.model.train.held_out import held_out_pages
from samples.model.train.labels import CELL
from samples.model.train.network import MEAN, STD
from samples.model.train.sheet import Page
from samples.model.train.vocabulary import end_id, open_tokenizer, turns

FOLDER = Path(__file__).parents[3] / "tests" / "oracles" / "sample"
SETS = {
    "clean:112x336": 6,
    "light:112x336": 2,
    "clean:168x336": 4,
    "light:168x336": 1,
    "clean:224x448": 4,
    "clean:448x448": 2,
    "blank:112x336": 1,
}
MAX_TOKENS = 320
PROGRAM = "llama-mtmd-cli"
MARKER = "<__media__>"  # the page, and no words
IMAGE_SIZE = "clip.vision.image_size"


@dataclass(frozen=True, slots=True)
class Reading:
    """least_lead: over the steps, the smallest lead of the best token over the next, in log-prob."""

    text: str
    least_lead: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One page as others read it, without empty lines around.  unrounded: by transformers, with the weights of before."""

    image: str
    set: str
    truth: str
    llama_cpp: str
    hugging_face: str
    unrounded: str
    least_lead: float


def record(pair: Path, weights: Path, program: Path, folder: Path, corpus_cache: Path | None, threads: int) -> list[Answer]:
    """Draw the pages, ask everyone, write the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    drawn = [(name, page) for name, count in SETS.items() for page in held_out_pages(name, count, corpus_cache)]
    images = [save(page, folder / f"page-{number:02}.png") for number, (_, page) in enumerate(drawn, 1)]
    llama = read_with_llama(images, pair, program, threads)
    rounded = read_with_transformers(images, load_pair(pair))
    before = read_with_transformers(images, load_weights(weights)[0])
    answers = [
        Answer(image.name, name, page.text, text, read.text, exact.text, round(read.least_lead, 5))
        for image, (name, page), text, read, exact in zip(images, drawn, llama, rounded, before, strict=True)
    ]
    found = {
        "recorded_with": {"llama.cpp": version(program), "transformers": transformers.__version__, "torch": torch.__version__},
        "sha256": {name: hashlib.sha256((pair / name).read_bytes()).hexdigest() for name in (TEXT, PROJECTOR)},
        "max_tokens": MAX_TOKENS,
        "pages": [asdict(answer) for answer in answers],
    }
    (folder / "answers.json").write_text(json.dumps(found, indent=1) + "\n")
    return answers


def save(page: Page, path: Path) -> Path:
    """Write the image, without colours where it has none."""
    grey = page.pixels[:, :, 0]
    is_grey = np.array_equal(page.pixels, np.repeat(grey[:, :, None], 3, 2))
    Image.fromarray(grey if is_grey else page.pixels).save(path, optimize=True)
    return path


def read_with_llama(images: Sequence[Path], pair: Path, program: Path, threads: int) -> list[str]:
    """The texts of llama.cpp's program, at its defaults but for the temperature."""
    options = ["-m", pair / TEXT, "-p", MARKER, "--jinja", "--temp", 0, "-n", MAX_TOKENS, "-t", threads, "--no-mmproj-offload"]
    with tempfile.TemporaryDirectory() as scratch:
        texts = []
        for image in images:
            with Image.open(image) as opened:
                mmproj = without_enlarging(pair / PROJECTOR, max(opened.size), Path(scratch))
            command = [program, *options, "--mmproj", mmproj, "--image", image]
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
            texts.append(done.stdout.strip("\n"))
    return texts


def without_enlarging(mmproj: Path, side_px: int, folder: Path) -> Path:
    """A copy of the vision file that says that pages have this longest side."""
    copy = folder / f"{side_px}.gguf"
    if not copy.exists():
        shutil.copyfile(mmproj, copy)
        reader = gguf.GGUFReader(copy, "r+")
        field = reader.fields[IMAGE_SIZE]
        field.parts[field.data[0]][0] = side_px
        reader.data.flush()
    return copy


def version(program: Path) -> str:
    """Which build of llama.cpp this is."""
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True)
    return next(line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version")).partition(": ")[2]


def read_with_transformers(images: Sequence[Path], weights: Mapping[str, Tensor]) -> list[Reading]:
    """What transformers' class reads with these weights."""
    with tempfile.TemporaryDirectory() as folder:
        hugging_face.export(weights, Path(folder))
        model = transformers.LightOnOcrForConditionalGeneration.from_pretrained(folder).eval()
        return [read_page(model, image) for image in images]


def read_page(model: transformers.LightOnOcrForConditionalGeneration, image: Path) -> Reading:
    """One page by `generate`."""
    with Image.open(image) as opened:
        pixels = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)[None]
    height, width = pixels.shape[2:]
    normal = (pixels.float() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    turn, cells = turns()[0], [model.config.image_token_id] * (height // CELL * (width // CELL))
    ids = torch.tensor([[*turn.before, *cells, *turn.after]])
    found = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values=normal,
        image_sizes=torch.tensor([[height, width]]),
        max_new_tokens=MAX_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=end_id(),
    )
    tokens = found.sequences[0, ids.shape[1] :].tolist()
    best = torch.cat(found.logits).log_softmax(-1).topk(2).values
    text = open_tokenizer().decode([token for token in tokens if token != end_id()], skip_special_tokens=False)
    return Reading(text.strip("\n"), float((best[:, 0] - best[:, 1]).min()))


def report(answers: Sequence[Answer]) -> str:
    """How far they agree, in a few lines."""
    same = sum(answer.llama_cpp == answer.hugging_face for answer in answers)
    unrounded = sum(answer.unrounded == answer.hugging_face for answer in answers)
    return (
        f"{len(answers)} pages; llama.cpp and transformers read {same} alike, transformers reads {unrounded} alike with the "
        f"weights before and after rounding; smallest lead of a token {min(answer.least_lead for answer in answers):.5f}"
    )


def main() -> None:
    """Record anew."""
    parser = argparse.ArgumentParser(prog="python -m samples.model.train.answers", description=__doc__)
    parser.add_argument("pair", type=Path, help=f"folder of {TEXT} and {PROJECTOR}")
    parser.add_argument("weights", type=Path, help="what the pair was exported from")
    parser.add_argument("--llama", type=Path, required=True, help=f"folder of {PROGRAM}")
    parser.add_argument("--corpus", type=Path, help="where the text is kept between runs")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    program = options.llama / PROGRAM
    print(report(record(options.pair, options.weights, program, options.folder, options.corpus, options.threads)))


if __name__ == "__main__":
    main()
