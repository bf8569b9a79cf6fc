"""``pagemill logits``: a text model's logits, for people who compare engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from pagemill.decoder import logits, open_model
from pagemill.jobs.cli.arrays import load_array, save_array
from pagemill.jobs.cli.options import KvCache, KvCacheType, ModelPath, Threads
from pagemill.jobs.errors import InputError
from pagemill.jobs.run.spec import check_threads


def command(
    model: ModelPath,
    tokens: Annotated[Path, typer.Option(help="Token ids: a .npy file, one dimension of integers.")],
    out: Annotated[Path, typer.Option(help="Where to write the logits: (tokens, vocabulary) float32 .npy.")],
    kv_cache: KvCache = KvCacheType.F16,
    exact_activations: Annotated[
        bool, typer.Option("--exact-activations", help="float32 activations instead of int8.")
    ] = False,
    threads: Threads = None,
) -> int:
    """``pagemill logits``."""
    ids = load_array(tokens)
    if ids.ndim != 1 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"{tokens}: expected one dimension of integers, found {ids.dtype} of shape {ids.shape}")
    check_threads(threads)
    opened = open_model(model, kv_cache=kv_cache.value, exact=exact_activations)
    save_array(out, logits(opened, ids.tolist(), kv_cache=kv_cache.value, threads=threads))
    return 0
