"""The native loops. Arguments are checked in mlacademy.fp8 and mlacademy.cache; results are their twins' bits."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

def decode_e4m3(codes: NDArray[np.uint8]) -> NDArray[np.float32]: ...
def encode_e4m3(values: NDArray[np.float32], saturate: bool) -> NDArray[np.uint8]: ...
def decode_e8m0(codes: NDArray[np.uint8]) -> NDArray[np.float32]: ...
def encode_e8m0(values: NDArray[np.float32], rounding: Literal["up", "nearest", "down"]) -> NDArray[np.uint8]: ...
def decode_call(
    *,
    called_for: tuple[str, tuple[Any, ...] | None, bool, list[bool]],
    max_scale: float,
    functions: tuple[Callable[..., Any], ...],
    launch_kernel: int,
    launches: list[tuple[bytes, int]],
    block: bytes,
    inputs: tuple[int, ...],
    places: tuple[int, ...],
    offsets: tuple[int, int, int, int],
    scale_word: int,
    compares: bool,
    index: int,
    scratch_bytes: int,
    out: tuple[Any, Any, Any],
    lse: tuple[Any, Any, Any],
) -> Callable[..., tuple[Any, Any] | None]: ...

class PageMap:
    """Where the bytes of a token lie in a page: each field is (base, step, width) as ``CacheLayout.columns`` says."""

    def __init__(
        self,
        *,
        page: int,
        tile: int,
        e8m0_scales: bool,
        min_power: int,
        nope: tuple[int, int, int],
        scale: tuple[int, int, int],
        rope: tuple[int, int, int],
        pad: tuple[int, int, int],
    ) -> None: ...

def append_float32(
    pages: NDArray[np.uint8],
    map: PageMap,
    slots: NDArray[np.int64],
    nope: NDArray[np.float32],
    rope: NDArray[np.float32],
) -> bool:
    """False, with nothing written, when a value is not finite."""

def append_bf16(
    pages: NDArray[np.uint8],
    map: PageMap,
    slots: NDArray[np.int64],
    nope: NDArray[np.uint16],
    rope: NDArray[np.uint16],
) -> bool:
    """As ``append_float32``, with the bits of bfloat16 values."""

def gather(pages: NDArray[np.uint8], map: PageMap, slots: NDArray[np.int64], rows: NDArray[np.float32]) -> None: ...
