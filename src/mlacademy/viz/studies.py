"""The six studies: what each widget lets one change, its presets, and how settings become a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlacademy import schedule as scheduling
from mlacademy.viz.byte_map import token_bytes
from mlacademy.viz.cache_sizes import compression
from mlacademy.viz.compiled_plan import compiled, same_cuts
from mlacademy.viz.e4m3_line import number_line
from mlacademy.viz.merge_weights import combine_weights
from mlacademy.viz.numbers import plural
from mlacademy.viz.picture import Picture
from mlacademy.viz.softmax_stepper import softmax_steps
from mlacademy.viz.split_plan import splits
from mlacademy.viz.study import Choice, Settings, Slider, Stops, Study, Toggle, show

BATCHES = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 384, 512, 768, 1024)


def explore_token_bytes() -> Any:
    """Byte map of a cached token under sliders: layout, page size, offset, and what was stored."""
    return show(TOKEN_BYTES)


def explore_number_line() -> Any:
    """E4M3 number line under sliders: value, scale, overflow mode."""
    return show(NUMBER_LINE)


def explore_compression() -> Any:
    """Compression calculator under sliders: heads, widths, layers, context, memory."""
    return show(COMPRESSION)


def explore_splits() -> Any:
    """Live scheduler splits: batch, top-k, lengths, SMs, heads, query tokens, kernel; presets from real deployments."""
    return show(SPLITS)


def explore_softmax() -> Any:
    """Online-softmax stepper: scores, block size, holes, step."""
    return show(SOFTMAX)


def explore_combine() -> Any:
    """Combine weights under sliders: four splits, each of which may be empty, and a sink."""
    return show(COMBINE)


def draw_token_bytes(*, layout: str, page: int, offset: int, stored: str, seed: int) -> Picture:
    """Draw the byte map of one token with stored values: "nothing", "normal", "outlier" or "zeros"."""
    import torch

    from mlacademy import cache

    chosen = cache.layout(layout)
    chosen.fields(page, offset)  # refuses an offset outside the page before anything is stored
    if stored == "nothing":
        return token_bytes(chosen, page, offset)
    generator = torch.Generator().manual_seed(seed)
    nope = torch.randn(1, chosen.d_nope, generator=generator)
    rope = torch.randn(1, chosen.d_rope, generator=generator)
    if stored == "outlier":
        nope[0, chosen.tile + 7] = 300.0
    elif stored == "zeros":
        nope.zero_()
        rope.zero_()
    pages = cache.new_cache(chosen, 1, page)
    cache.append(pages, torch.tensor([offset]), nope, rope, chosen)
    return token_bytes(chosen, page, offset, data=pages[0])


TOKEN_BYTES = Study(
    draw_token_bytes,
    (
        Choice("layout", "layout", "V32", {"V3.2 (656 bytes)": "V32", "MODEL1 (584 bytes)": "MODEL1"}),
        Choice(
            "stored",
            "stored values",
            "normal",
            {"normal, σ = 1": "normal", "one outlier of 300": "outlier", "zeros": "zeros", "not decoded": "nothing"},
        ),
        Slider("page", "tokens a page", 64, 1, 256),
        Slider("offset", "offset in page", 3, 0, 63),
        Slider("seed", "values, seed", 0, 0, 20),
    ),
    presets={
        "V3.2, page of 64": {},
        "MODEL1, page of 64": {"layout": "MODEL1", "offset": 10},
        "MODEL1, page of 2: 560 bytes of padding": {"layout": "MODEL1", "page": 2, "offset": 1},
        "an outlier coarsens its tile": {"stored": "outlier"},
        "zeros: the scale stops at 2⁻¹³": {"stored": "zeros"},
    },
    limits=lambda settings: {"offset": settings["page"] - 1},
)


def draw_number_line(*, magnitude: float, negative: bool, scale_exponent: int, overflow: Any) -> Picture:
    """Draw the number line for ±magnitude with a scale of 2^scale_exponent."""
    return number_line(-magnitude if negative else magnitude, scale=2.0**scale_exponent, overflow=overflow)


NUMBER_LINE = Study(
    draw_number_line,
    (
        Slider("magnitude", "|value|", 17.0, 2.0**-12, 1024.0, 0.25, log_base=2.0),
        Slider("scale_exponent", "scale, power of 2", 0, -13, 8),
        Toggle("negative", "negative", False),
        Choice("overflow", "beyond 448", "saturate", {"saturate": "saturate", "become NaN": "nan"}),
    ),
    presets={
        "17: a tie goes to the even code": {"magnitude": 17.0},
        "19: a tie, upwards this time": {"magnitude": 19.0},
        "0.3 with scale 1": {"magnitude": 0.3},
        "0.3 with scale 2⁻¹⁰": {"magnitude": 0.3, "scale_exponent": -10},
        "0.004: subnormal, coarse": {"magnitude": 0.004},
        "0.0009: below half a step, becomes 0": {"magnitude": 0.0009},
        "464: the last value that still gives 448": {"magnitude": 464.0},
        "500, saturating": {"magnitude": 500.0},
        "500 without saturation": {"magnitude": 500.0, "overflow": "nan"},
    },
)

COMPRESSION = Study(
    compression,
    (
        Stops("heads", "query heads", 128, (8, 16, 32, 64, 96, 128)),
        Stops("groups", "KV groups", 8, (1, 2, 4, 8, 16, 32)),
        Slider("nope", "no-position width", 128, 32, 256, 32),
        Slider("rope", "rotary width", 64, 0, 128, 16),
        Slider("v", "value width", 128, 32, 256, 32),
        Slider("latent", "latent width", 512, 128, 1024, 128),
        Slider("layers", "layers", 61, 1, 128),
        Stops("context", "context, tokens", 32768, tuple(1024 * 2**i for i in range(11))),
        Stops("gib", "memory, GiB", 80, (8, 16, 24, 40, 80, 96, 131, 160, 320, 640, 1048)),
        Choice("dtype", "plain dtype", "bf16", {"BF16": "bf16", "FP8 without scales": "fp8", "FP32": "fp32"}),
    ),
    presets={
        "DeepSeek-V3.2, 32k tokens": {},
        "DeepSeek-V3.2, 128k tokens": {"context": 131072},
        "DeepSeek-V3.2 + its MTP layer": {"layers": 62},
        "a small model: 32 heads, 32 layers": {"heads": 32, "layers": 32, "rope": 0, "context": 8192, "gib": 24},
    },
)

KERNEL_FAMILIES = {
    "SM90 (H100, H800, H200, H20)": "sm90",
    "SM100 (B200), V3.2": "sm100_v32",
    "SM100 (B200), MODEL1": "sm100_model1",
}
PATTERNS = {
    "every request has top-k": "full",
    "uniform, 1 to top-k": "uniform",
    "mostly short, some long": "skewed",
    "one long, the rest 64": "one_long",
    "every fourth is empty": "some_empty",
}


def kernel_of(family: str, h_q: int) -> tuple[str, int]:
    """Return the kernel's name in `schedule.KERNELS` and the CTAs that make one partition."""
    if family == "sm90":
        return "sm90_sparse", h_q // 64
    if h_q == 64:
        return "sm100_head64", 1
    return ("sm100_head64x2", 1) if family == "sm100_v32" else ("sm100_head128", 2)


def request_lengths(b: int, topk: int, pattern: str, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the valid length of each request's index list `[b]`, from 0 to `topk`."""
    rng = np.random.default_rng(seed)
    if pattern == "uniform":
        lengths = rng.integers(1, topk + 1, b)
    elif pattern == "skewed":
        lengths = np.ceil(topk * rng.beta(0.5, 1.5, b)).astype(np.int64)
    elif pattern == "one_long":
        lengths = np.full(b, min(64, topk))
        lengths[rng.integers(b)] = topk
    else:
        lengths = np.full(b, topk)
        if pattern == "some_empty":
            lengths[3::4] = 0
    return lengths


def plan_of(
    *, b: int, topk: int, pattern: str, seed: int, sms: int, h_q: int, s_q: int, family: str
) -> tuple[scheduling.Schedule, int]:
    """Return the schedule for these settings and the CTAs of one partition."""
    kernel, ctas = kernel_of(family, h_q)
    parts = scheduling.num_sm_parts(sms, s_q=s_q, h_q=h_q, kernel=kernel)
    lengths = scheduling.effective_lengths(b, topk, topk_length=request_lengths(b, topk, pattern, seed))
    return scheduling.schedule(lengths, parts, overhead=scheduling.KERNELS[kernel].overhead), ctas * s_q


def draw_splits(**settings: Any) -> Picture:
    """Draw the schedule for these settings."""
    model, by = scheduling.CostModel(partial=settings.pop("partial")), settings.pop("by")
    plan, ctas = plan_of(**settings)
    title = None
    if by == "kernel":
        library, plan = plan, compiled(plan)
        verdict = "as by the library" if same_cuts(library, plan) else "NOT as by the library"
        title = (
            f"{plural(plan.b, 'request')} on {plural(plan.parts, 'partition')}, cut by the compiled kernel, {verdict}"
        )
    return splits(plan, ctas_per_partition=ctas, sms=settings["sms"], model=model, title=title)


SPLITS = Study(
    draw_splits,
    (
        Stops("b", "requests (batch)", 2, BATCHES),
        Slider("topk", "top-k, tokens", 128, 64, 4096, 64),
        Choice("pattern", "lengths", "full", PATTERNS),
        Slider("seed", "lengths, seed", 0, 0, 20),
        Slider("sms", "SMs", 132, 16, 160),
        Choice("h_q", "query heads", 128, {"128": 128, "64": 64}),
        Slider("s_q", "query tokens", 1, 1, 4),
        Choice("family", "kernel", "sm90", KERNEL_FAMILIES),
        Slider("partial", "price of a partial", 0.07, 0.0, 1.0, 0.01),
        Choice("by", "cut by", "library", {"the library": "library", "the compiled kernel, emulated": "kernel"}),
    ),
    presets={
        "the running example: b = 2, top-k 128, 132 SMs": {},
        "H800 / H200, V3.2, b = 1": {"b": 1, "topk": 2048},
        "H800 / H200, V3.2, b = 2": {"topk": 2048},
        "H800 / H200, V3.2, b = 16": {"b": 16, "topk": 2048},
        "H800 / H200, V3.2, b = 64": {"b": 64, "topk": 2048},
        "H800 / H200, V3.2, b = 128": {"b": 128, "topk": 2048},
        "H800 / H200, V3.2, b = 128, two query tokens (MTP)": {"b": 128, "topk": 2048, "s_q": 2},
        "H800 / H200, 64 heads (TP 2), b = 128": {"b": 128, "topk": 2048, "h_q": 64},
        "H20, V3.2, b = 16": {"b": 16, "topk": 2048, "sms": 78},
        "B200, V3.2, b = 16": {"b": 16, "topk": 2048, "sms": 148, "family": "sm100_v32"},
        "B200, V3.2, b = 128": {"b": 128, "topk": 2048, "sms": 148, "family": "sm100_v32"},
        "B200, MODEL1, b = 64, unequal lengths": {
            "b": 64,
            "topk": 2048,
            "sms": 148,
            "family": "sm100_model1",
            "pattern": "uniform",
        },
        "H800 / H200, unequal lengths, b = 48": {"b": 48, "topk": 2048, "pattern": "skewed"},
    },
)


def draw_softmax(*, blocks: int, block: int, seed: int, spread: float, holes: str, step: int) -> Picture:
    """Draw the stepper on random scores with holes in the chosen places."""
    n = blocks * block
    scores = np.round(np.random.default_rng(seed).normal(0.0, spread, n), 1)
    return softmax_steps(scores, block=block, valid=valid_mask(n, block, holes), step=step, log2=True)


def valid_mask(n: int, block: int, holes: str) -> list[bool]:
    """Return which of `n` scores are valid when the holes are in the named places."""
    place = np.arange(n)
    if holes.startswith("block "):
        index = int(holes.removeprefix("block "))
        if index * block >= n:
            raise ValueError(
                f"holes must lie in a block that exists: there are {n // block} blocks, asked for block {index}"
            )
        return [bool(v) for v in place // block != index]
    masks = {
        "none": np.ones(n, bool),
        "front": place >= math.ceil(block * 1.5),
        "scattered": place % 3 != 1,
        "everywhere": np.zeros(n, bool),
    }
    return [bool(v) for v in masks[holes]]


def _last_step(settings: Settings) -> dict[str, int]:
    return {"step": settings["blocks"] - 1}


SOFTMAX = Study(
    draw_softmax,
    (
        Slider("step", "step", 2, 0, 5),
        Choice(
            "holes",
            "holes",
            "none",
            {
                "none": "none",
                "at the front (a block and a half)": "front",
                **{f"all of block {i}": f"block {i}" for i in range(4)},
                "scattered": "scattered",
                "everywhere": "everywhere",
            },
        ),
        Slider("blocks", "blocks", 6, 1, 12),
        Slider("block", "scores in a block", 4, 1, 16),
        Slider("spread", "spread of scores", 3.0, 0.0, 12.0, 0.5),
        Slider("seed", "scores, seed", 3, 0, 20),
    ),
    presets={
        "no holes": {},
        "the first block is all holes": {"holes": "block 0", "step": 1},
        "holes at the front": {"holes": "front", "step": 2},
        "every score is a hole": {"holes": "everywhere", "step": 5},
        "one block: plain softmax": {"blocks": 1, "block": 16, "step": 0},
    },
    limits=_last_step,
)

SPLIT_DEFAULTS = (4.2, 3.8, 2.1, 0.0)


def draw_combine(*, use_sink: bool, sink: float, **splits_settings: Any) -> Picture:
    """Draw the weights of four splits, some of them empty, with or without a sink."""
    lse_log2 = [
        -math.inf if splits_settings[f"empty{i}"] else float(splits_settings[f"lse{i}"])
        for i in range(len(SPLIT_DEFAULTS))
    ]
    return combine_weights(lse_log2, sink if use_sink else None)


COMBINE = Study(
    draw_combine,
    (
        *(
            control
            for i, default in enumerate(SPLIT_DEFAULTS)
            for control in (
                Slider(f"lse{i}", f"split {i}: lse_log2", default, -10.0, 20.0, 0.1),
                Toggle(f"empty{i}", f"split {i} is empty", i == 3),
            )
        ),
        Slider("sink", "sink (natural)", 3.0, -10.0, 15.0, 0.1),
        Toggle("use_sink", "with a sink", False),
    ),
    presets={
        "three splits, one empty": {},
        "equal splits": {"lse0": 4.0, "lse1": 4.0, "lse2": 4.0, "lse3": 4.0, "empty3": False},
        "one split holds nearly everything": {"lse0": 18.0},
        "a sink as large as the rest": {"use_sink": True, "sink": 3.6},
        "all empty": {f"empty{i}": True for i in range(4)},
    },
)
