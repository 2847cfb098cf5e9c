"""Attention over a cache: float64 oracles, a blocked twin of the kernel, and one decode step at DeepSeek-V3.2's sizes.

* :func:`sparse_decode`, :func:`dense_decode`, :func:`sparse_prefill`: float64, the formula and nothing else;
* :func:`sparse_decode_blocked`: float32, in the kernel's order of work and with its roundings;
* :func:`decode_step`: the whole chain (cache, indexer, schedule, attention) on a laptop, with its errors.

Left out on purpose: the projections around attention (``mlacademy.mla``) and every GPU detail (the kernels' chapters).
"""

from mlacademy.attention.blocked import sparse_decode_blocked
from mlacademy.attention.decode_step import decode_step
from mlacademy.attention.oracle import dense_decode, sparse_decode, sparse_prefill
from mlacademy.attention.report import DecodeReport

__all__ = [
    "DecodeReport",
    "decode_step",
    "dense_decode",
    "sparse_decode",
    "sparse_decode_blocked",
    "sparse_prefill",
]
