"""llama.cpp through the llama-cpp-python package's library, as a worker of the bench.

Runs under the Python that has the package: ``PYTHON -m tests.bench.llama_library``.  What it measures is what llama-bench,
llama-batched-bench and llama-mtmd-cli measure, through the same C interface; flash attention can differ between the text
and the vision part here, which the programs do not offer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp as mtmd

from tests.bench.serve import Answer, Sequences, Switches, median, once, serve

KINDS = {"f16": 1, "q8_0": 8}
UBATCH, BATCH = 512, 2048
STEP_ROOM = 64


class Llama:
    """Models and contexts stay until another is asked for."""

    def __init__(self) -> None:
        llama_cpp.llama_backend_init()
        self._parts: dict[str, tuple[object, Any]] = {}

    def facts(self) -> Answer:
        """Which library this is."""
        return {"version": llama_cpp.__version__, "system": llama_cpp.llama_print_system_info().decode()}

    def load(self, text: str, repack: bool) -> Answer:
        """Open the text model."""
        return {"seconds": once(lambda: self._model(text, repack))}

    def prefill(self, text: str, tokens: int, threads: int, switches: Switches) -> Answer:
        """Read a prompt."""
        context = self._context(text, Sequences(1, tokens, "f16"), threads, switches)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        return {"seconds": once(lambda: self._read(context, tokens))}

    def decode(self, text: str, sequences: Sequences, threads: int, steps: int, switches: Switches) -> Answer:
        """Median step of the sequences: one is read, the others are its copies."""
        before = self._parts.get("context")
        opened = self._context(text, sequences, threads, switches)
        fresh, batch, context = self._parts.get("context") is not before, sequences.batch, sequences.context
        memory = llama_cpp.llama_get_memory(opened)
        if fresh:
            self._read(opened, context)
            for sequence in range(1, batch):
                llama_cpp.llama_memory_seq_cp(memory, 0, sequence, -1, -1)
        rows = [(300 + sequence, context, sequence, True) for sequence in range(batch)]

        def step() -> float:
            seconds = once(lambda: run(opened, tokens=rows))
            for sequence in range(batch):
                llama_cpp.llama_memory_seq_rm(memory, sequence, context, -1)
            return seconds

        step()
        return {"seconds": median([step() for _ in range(steps)])}

    def vision(self, text: str, mmproj: str, width: int, height: int, max_tokens: int, threads: int) -> Answer:
        """One page of noise through the encoder, with flash attention, its best setting."""
        page, count = self._page(text, mmproj, width, height, max_tokens, threads)
        return {"seconds": once(lambda: self._encode(page)), "tokens": count}

    def page(self, text: str, mmproj: str, side: int, max_tokens: int, answer: int, threads: int, flash: bool) -> Answer:
        """A page from pixels to its last token: encoded with flash attention, read and decoded with or without."""
        page, count = self._page(text, mmproj, side, side, max_tokens, threads)
        context = self._context(text, Sequences(1, count + answer, "f16"), threads, Switches(repack=True, flash=flash))
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        encode = once(lambda: self._encode(page))
        pixels = mtmd.mtmd_get_output_embd(self._parts["mtmd"][1])
        width = llama_cpp.llama_model_n_embd(self._model(text, True))
        read = once(lambda: run(context, embeddings=pixels, count=count, width=width))
        decode = once(lambda: [run(context, tokens=[(300 + i, count + i, 0, True)]) for i in range(answer)])
        return {"seconds": encode + read + decode, "encode": encode, "read": read, "decode": decode, "tokens": count}

    def _read(self, context: Any, tokens: int) -> None:
        run(context, tokens=[(300 + i % 1000, i, 0, i == tokens - 1) for i in range(tokens)])

    def _encode(self, page: Any) -> None:
        if mtmd.mtmd_encode_chunk(self._parts["mtmd"][1], page):
            raise RuntimeError("mtmd_encode_chunk failed")

    def _page(self, text: str, mmproj: str, width: int, height: int, max_tokens: int, threads: int) -> tuple[Any, int]:
        """(the image chunk, how many tokens it has)."""
        opened = self._mtmd(text, mmproj, max_tokens, threads)
        return self._part("page", (mmproj, width, height, max_tokens, threads), lambda: image_chunk(opened, width, height))

    def _model(self, text: str, repack: bool) -> Any:
        def load() -> Any:
            self._drop("context")
            self._drop("mtmd")
            self._drop("page")
            params = llama_cpp.llama_model_default_params()
            params.n_gpu_layers, params.use_extra_bufts = 0, repack
            model = llama_cpp.llama_model_load_from_file(text.encode(), params)
            if not model:
                raise RuntimeError(f"llama.cpp does not load {Path(text).name}")
            return model

        return self._part("model", (text, repack), load)

    def _context(self, text: str, sequences: Sequences, threads: int, switches: Switches) -> Any:
        """A context with room for some steps beyond what the sequences have."""
        model = self._model(text, switches.repack)

        def make() -> Any:
            params = llama_cpp.llama_context_default_params()
            params.n_seq_max, params.kv_unified = sequences.batch, False
            params.n_ctx = sequences.batch * (-(-(sequences.context + STEP_ROOM) // 256) * 256)
            params.n_batch, params.n_ubatch = BATCH, UBATCH
            params.n_threads = params.n_threads_batch = threads
            params.flash_attn_type = 1 if switches.flash else 0
            params.type_k = params.type_v = KINDS[sequences.kv_cache]
            context = llama_cpp.llama_init_from_model(model, params)
            if not context:
                raise RuntimeError("llama.cpp makes no context of these settings")
            return context

        return self._part("context", (text, sequences, threads, switches), make)

    def _mtmd(self, text: str, mmproj: str, max_tokens: int, threads: int) -> Any:
        model = self._model(text, True)

        def make() -> Any:
            self._drop("page")
            params = mtmd.mtmd_context_params_default()
            params.use_gpu, params.print_timings, params.warmup = False, False, False
            params.n_threads, params.flash_attn_type = threads, 1
            params.image_min_tokens, params.image_max_tokens = 16, max_tokens
            opened = mtmd.mtmd_init_from_file(mmproj.encode(), model, params)
            if not opened:
                raise RuntimeError(f"llama.cpp does not load {Path(mmproj).name}")
            return opened

        return self._part("mtmd", (text, mmproj, max_tokens, threads), make)

    def _part(self, name: str, key: object, make: Callable[[], Any]) -> Any:
        if self._parts.get(name, (None,))[0] != key:
            self._drop(name)
            self._parts[name] = (key, make())
        return self._parts[name][1]

    def _drop(self, name: str) -> None:
        """Give a part's memory back."""
        held = self._parts.pop(name, None)
        free = {"context": llama_cpp.llama_free, "mtmd": mtmd.mtmd_free, "model": llama_cpp.llama_model_free}.get(name)
        if held is not None and free is not None:
            free(held[1])


def run(context: Any, *, tokens: Any = (), embeddings: Any = None, count: int = 0, width: int = 0) -> None:
    """Decode rows, either (token, position, sequence, wants logits) each, or embedding rows of sequence 0."""
    rows: list[tuple[int, int, int, bool]] = list(tokens) or [(0, i, 0, i == count - 1) for i in range(count)]
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        batch = llama_cpp.llama_batch_init(len(part), width if embeddings is not None else 0, 1)
        batch.n_tokens = len(part)
        for i, (token, position, sequence, wanted) in enumerate(part):
            if embeddings is None:
                batch.token[i] = token
            batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = position, 1, sequence, wanted
        if embeddings is not None:
            start = ctypes.addressof(embeddings.contents) + 4 * width * first
            ctypes.memmove(batch.embd, start, 4 * width * len(part))
        failed = llama_cpp.llama_decode(context, batch)
        llama_cpp.llama_synchronize(context)
        llama_cpp.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode answered {failed}")


def image_chunk(opened: Any, width: int, height: int) -> tuple[Any, int]:
    """A page of noise cut into patches."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    bitmap = mtmd.mtmd_bitmap_init(width, height, data)
    marker = mtmd.mtmd_default_marker()
    text = mtmd.mtmd_input_text(marker, len(marker), True, True)
    chunks = mtmd.mtmd_input_chunks_init()
    bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
    failed = mtmd.mtmd_tokenize(opened, chunks, ctypes.byref(text), bitmaps, 1)
    if failed:
        raise RuntimeError(f"mtmd_tokenize answered {failed}")
    every = [mtmd.mtmd_input_chunks_get(chunks, i) for i in range(mtmd.mtmd_input_chunks_size(chunks))]
    image = next(chunk for chunk in every if mtmd.mtmd_input_chunk_get_type(chunk) == 1)
    return image, mtmd.mtmd_input_chunk_get_n_tokens(image)


def main() -> None:
    """Serve."""
    llama = Llama()
    serve({name: getattr(llama, name) for name in ("facts", "load", "prefill", "decode", "vision", "page")})


if __name__ == "__main__":
    main()
