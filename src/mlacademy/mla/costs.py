"""What attention stores and multiplies: the arithmetic of compression, of absorption, and of bytes against FLOPs.

A FLOP is one multiplication or one addition, so a multiply-add counts 2. Projections that are the same in every form
(from the hidden state, and to the output) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mlacademy.config import MLAConfig

BF16_BYTES = 2
FP8_TILE = 128  # values that share one float32 scale in DeepSeek-V3.2's FP8 cache

CacheKind = Literal["mha", "bf16", "fp8"]
Form = Literal["mha", "naive", "absorbed"]


@dataclass(frozen=True)
class CacheSizes:
    """What a cache holds of one token in one layer, and in ``layers`` layers. Numbers in brackets: DeepSeek-V3.2.

    * ``mha_values`` [40,960]: a key of 192 and a value of 128 for each of 128 heads;
    * ``kv_without_rope_values`` [32,768]: the same with keys of 128, that is without their rotary part;
    * ``k_nope_values`` [16,384]: the non-rotary keys alone, which is *not* a cache one could attend with;
    * ``latent_values`` [576]: latent and rotary key.
    """

    mha_values: int
    kv_without_rope_values: int
    k_nope_values: int
    latent_values: int
    rope_values: int
    layers: int

    @property
    def ratio(self) -> float:
        """How many times smaller than full multi-head attention [71.1]."""
        return self.mha_values / self.latent_values

    @property
    def ratio_without_rope(self) -> float:
        """The same against keys and values without the rotary part [56.9]."""
        return self.kv_without_rope_values / self.latent_values

    @property
    def ratio_of_k_nope(self) -> float:
        """The same against the non-rotary keys alone [28.4]: a comparison that forgets V and the rotary keys."""
        return self.k_nope_values / self.latent_values

    @property
    def mha_bytes(self) -> int:
        """Bytes a token and layer for full multi-head attention in BF16 [81,920]."""
        return BF16_BYTES * self.mha_values

    @property
    def bf16_bytes(self) -> int:
        """Bytes a token and layer for latent and rotary key in BF16 [1,152]."""
        return BF16_BYTES * self.latent_values

    @property
    def fp8_bytes(self) -> int:
        """Bytes a token and layer in the FP8 layout [656]: a byte a latent value, a float32 scale for every 128 of
        them, the rotary key in BF16. Raises ``ValueError`` when the latent is no whole number of tiles."""
        latent = self.latent_values - self.rope_values
        if latent % FP8_TILE:
            raise ValueError(f"kv_lora_rank must be a multiple of {FP8_TILE} for the FP8 layout: got {latent}")
        return latent + 4 * (latent // FP8_TILE) + BF16_BYTES * self.rope_values

    def model_bytes(self, tokens: int, kind: CacheKind) -> int:
        """Bytes that ``tokens`` tokens take in all layers, with ``kind`` one of "mha", "bf16", "fp8"."""
        per_token = {"mha": lambda: self.mha_bytes, "bf16": lambda: self.bf16_bytes, "fp8": lambda: self.fp8_bytes}
        if kind not in per_token:
            raise ValueError(f"kind must be 'mha', 'bf16' or 'fp8': got {kind!r}")
        if tokens < 0:
            raise ValueError(f"tokens must not be negative: got {tokens}")
        return tokens * self.layers * per_token[kind]()


def cache_sizes(config: MLAConfig) -> CacheSizes:
    """Count what a token costs in the cache.

    >>> from mlacademy.config import deepseek_v32
    >>> sizes = cache_sizes(deepseek_v32())
    >>> sizes.mha_values, sizes.latent_values, round(sizes.ratio, 1)
    (40960, 576, 71.1)
    """
    h = config.num_attention_heads
    return CacheSizes(
        mha_values=h * (config.qk_head_dim + config.v_head_dim),
        kv_without_rope_values=h * (config.qk_nope_head_dim + config.v_head_dim),
        k_nope_values=h * config.qk_nope_head_dim,
        latent_values=config.d_qk,
        rope_values=config.qk_rope_head_dim,
        layers=config.num_hidden_layers,
    )


@dataclass(frozen=True)
class AttentionCost:
    """Work of one layer for ``s_q`` new tokens that each attend to ``s_kv`` cached ones.

    ``core_flops``: the two products with K and with V. ``expand_flops``: up-projecting what the form needs (cached
    latents in the naive form, queries and outputs in the absorbed one). ``cache_bytes``: read from the cache once.
    """

    core_flops: int
    expand_flops: int
    cache_bytes: int

    @property
    def flops(self) -> int:
        """All of it."""
        return self.core_flops + self.expand_flops

    @property
    def intensity(self) -> float:
        """Core FLOPs for each byte read from the cache: what decides between compute-bound and memory-bound."""
        return self.core_flops / self.cache_bytes


def attention_cost(
    config: MLAConfig, form: Form, *, s_q: int, s_kv: int, bytes_per_token: int | None = None
) -> AttentionCost:
    """Count FLOPs and cache bytes of one layer in one of three forms.

    * ``"mha"``: keys and values of every head are cached expanded, nothing is up-projected;
    * ``"naive"``: latents are cached, each is up-projected for every head, then as "mha";
    * ``"absorbed"``: latents are cached, queries and outputs are up-projected instead.

    ``bytes_per_token`` replaces the BF16 size of the form's cache (pass 656 for FP8). Raises ``ValueError`` for sizes
    below 1 or an unknown form.

    >>> from mlacademy.config import deepseek_v32
    >>> attention_cost(deepseek_v32(), "absorbed", s_q=1, s_kv=1, bytes_per_token=656).intensity.__round__(1)
    424.6
    """
    if form not in ("mha", "naive", "absorbed"):
        raise ValueError(f"form must be 'mha', 'naive' or 'absorbed': got {form!r}")
    for name, value in (("s_q", s_q), ("s_kv", s_kv), ("bytes_per_token", bytes_per_token)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1: got {value}")
    sizes = cache_sizes(config)
    up_project = 2 * config.num_attention_heads * config.kv_lora_rank * (config.qk_nope_head_dim + config.v_head_dim)
    width = config.d_qk + config.d_v if form == "absorbed" else config.qk_head_dim + config.v_head_dim
    default_bytes = sizes.mha_bytes if form == "mha" else sizes.bf16_bytes
    return AttentionCost(
        core_flops=s_q * s_kv * config.num_attention_heads * 2 * width,
        expand_flops={"mha": 0, "naive": s_kv, "absorbed": s_q}[form] * up_project,
        cache_bytes=s_kv * (default_bytes if bytes_per_token is None else bytes_per_token),
    )


def break_even_queries(config: MLAConfig) -> Fraction | None:
    """Query tokens sharing one long cache above which the naive form needs fewer FLOPs than the absorbed one.

    [170⅔ for DeepSeek-V3.2.] ``None`` when the absorbed form is never dearer. Exact for a cache much longer than the
    number of queries: expanding a cached token once costs ``up_project``, and saves ``absorbed − naive`` per query.
    """
    naive = attention_cost(config, "naive", s_q=1, s_kv=1)
    absorbed = attention_cost(config, "absorbed", s_q=1, s_kv=1)
    saved = absorbed.core_flops - naive.core_flops
    return Fraction(naive.expand_flops, saved) if saved > 0 else None
