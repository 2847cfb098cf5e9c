"""The emulator's arithmetic as a library: `model.cpp` with the emulator's own sources, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scalar_ptx import Op
from wgmma_ptx import Shape

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = ROOT / "kernels" / "emulator"
LIBRARY = ROOT / "build" / "libnumerics.so"
_FLAGS = "-std=c++20 -O2 -ftree-vectorize -fvect-cost-model=dynamic -ffp-contract=off -fno-math-errno -shared -fPIC"
_ELEMENTS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
_ACCUMULATORS = ("f32", "f16", "s32")


def build() -> Path:
    """Compile the library (g++ or $CXX) into build/, unless it is newer than its sources."""
    sources = [Path(__file__).with_name("model.cpp"), EMULATOR / "bindings" / "scalar_ops.cpp"]
    sources.append(EMULATOR / "units" / "tensor_core.cpp")
    inputs = [*sources, *(EMULATOR / "units").glob("*.hpp"), EMULATOR / "bindings" / "scalar_ops.hpp"]
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < max(path.stat().st_mtime for path in inputs):
        LIBRARY.parent.mkdir(exist_ok=True)
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, *_FLAGS.split(), f"-I{EMULATOR}", *map(str, sources), "-o", str(LIBRARY)], check=True)
    return LIBRARY


class _Report(ctypes.Structure):
    _fields_ = (
        ("mismatches", ctypes.c_uint64),
        ("unlike", ctypes.c_uint64),
        ("largest", ctypes.c_int64),
        ("histogram", ctypes.c_uint64 * 17),
        ("examples", ctypes.c_uint64 * 5 * 16),
    )


@dataclass(frozen=True)
class Comparison:
    """What a chunk of GPU results showed. Distances are GPU minus model in ulp, 32-bit results only."""

    mismatches: int
    unlike: int
    largest: int
    histogram: dict[int, int]
    examples: list[tuple[int, ...]]  # a, b, c, GPU, model


def _pointer(array: np.ndarray | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


class Model:
    """The library, loaded."""

    def __init__(self, threads: int | None = None) -> None:
        self._lib = ctypes.CDLL(str(build()))
        self._lib.op_name.restype = ctypes.c_char_p
        self.threads = threads or os.cpu_count() or 1
        self.ops = [self._op(number) for number in range(self._lib.op_count())]

    def _op(self, number: int) -> Op:
        bits = [self._lib.op_bits(number, operand) for operand in (-1, 0, 1, 2)]
        return Op(number, self._lib.op_name(number).decode(), bits[0], tuple(b for b in bits[1:] if b))

    def compare(self, op: Op, got: np.ndarray, *, base: int = 0, operands: Any = (None, None, None)) -> Comparison:
        """Compare GPU results with the model's. Operand a is `base + i` where it is None."""
        report = _Report()
        a, b, c = (*operands, None, None, None)[:3]
        count = ctypes.c_uint64(got.nbytes * 8 // op.result)
        self._lib.compare(
            op.number, ctypes.c_uint64(base), count, _pointer(a), _pointer(b), _pointer(c), _pointer(got),
            self.threads, ctypes.byref(report),
        )  # fmt: skip
        return Comparison(
            report.mismatches,
            report.unlike,
            report.largest,
            {i - 8: n for i, n in enumerate(report.histogram) if n},
            [tuple(row) for row in report.examples[: min(16, report.mismatches)]],
        )

    def evaluate(self, op: Op, base: int, count: int) -> np.ndarray:
        """The model's results for the operands base … base + count - 1: uint64 [count]."""
        out = np.empty(count, np.uint64)
        self._lib.evaluate(op.number, ctypes.c_uint64(base), ctypes.c_uint64(count), _pointer(out), self.threads)
        return out

    def matrix(self, shape: Shape, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
        """a [tiles, steps, 64, k], b [tiles, steps, n, k] codes; c [tiles, 64, n] or None -> uint32 [tiles, 64, n]."""
        a, b = (np.ascontiguousarray(x, np.uint32) for x in (a, b))
        c = None if c is None else np.ascontiguousarray(c, np.uint32)
        tiles, steps = a.shape[:2]
        out = np.empty((tiles, 64, shape.n), np.uint32)
        self._lib.matrix(
            _ELEMENTS.index(shape.a), _ELEMENTS.index(shape.b), _ACCUMULATORS.index(shape.d), int(shape.satfinite),
            int(shape.negate[0] < 0), int(shape.negate[1] < 0), shape.n, shape.k, tiles, steps,
            _pointer(a), _pointer(b), _pointer(c), _pointer(out), self.threads,
        )  # fmt: skip
        return out
