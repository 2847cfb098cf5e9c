"""Multi-head latent attention (MLA): one short vector a token is cached, and every head reads it.

Three files, one idea each: ``rope`` turns the positional part, ``forms`` has the naive multi-head form and the
absorbed form that decode kernels compute, ``costs`` counts what each stores and multiplies.
"""

from mlacademy.mla.costs import AttentionCost, CacheSizes, attention_cost, break_even_queries, cache_sizes
from mlacademy.mla.forms import (
    LatentKV,
    MLAWeights,
    absorb,
    absorbed_attention,
    absorbed_heads,
    compress,
    naive_attention,
    naive_heads,
    queries,
    random_weights,
    rms_norm,
)
from mlacademy.mla.rope import Pairing, rope, rope_frequencies

__all__ = [
    "AttentionCost",
    "CacheSizes",
    "LatentKV",
    "MLAWeights",
    "Pairing",
    "absorb",
    "absorbed_attention",
    "absorbed_heads",
    "attention_cost",
    "break_even_queries",
    "cache_sizes",
    "compress",
    "naive_attention",
    "naive_heads",
    "queries",
    "random_weights",
    "rms_norm",
    "rope",
    "rope_frequencies",
]
