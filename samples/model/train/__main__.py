"""`python -m samples.model.train FOLDER`: train the sample model; a folder with a state goes on from it."""

from __future__ import annotations

import argparse
from pathlib import Path

from samples.model.train.curriculum import CURRICULA
from samples.model.train.loop import Options, train


def parse() -> Options:
    """Options from the command line."""
    parser = argparse.ArgumentParser(prog="python -m samples.model.train", description=__doc__)
    defaults = Options(Path())
    parser.add_argument("folder", type=Path, help="state, log and weights of the run; outside the project")
    parser.add_argument("--start", type=Path, help="weights (.safetensors) to begin from when the folder is empty")
    parser.add_argument("--curriculum", choices=sorted(CURRICULA), default=defaults.curriculum)
    parser.add_argument("--device", default=defaults.device, help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--compiled", action="store_true", help="fuse layers with torch.compile; needs a C++ compiler")
    for name, kind in (("rate", float), ("pointers", float), ("glyphs", float)):
        parser.add_argument(f"--{name}", type=kind, default=getattr(defaults, name), help="(default: %(default)s)")
    for name in ("steps", "decay-from", "warm-up", "seed", "workers", "threads", "renderers", "save-every", "keep-every"):
        parser.add_argument(
            f"--{name}", type=int, default=getattr(defaults, name.replace("-", "_")), help="(default: %(default)s)"
        )
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    train(parse())
