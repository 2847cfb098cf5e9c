"""Exercise 01.1: what a token costs in three caches, and the usual ways to miscount it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception

Sizes = tuple[int, int, int]


def _cache_bytes(heads: int, d_nope: int, d_rope: int, d_v: int, d_latent: int, layers: int, tokens: int) -> Sizes:
    everywhere = layers * tokens
    multi_head = 2 * heads * (d_nope + d_rope + d_v)
    fp8 = d_latent + 4 * (d_latent // 128) + 2 * d_rope
    return everywhere * multi_head, everywhere * 2 * (d_latent + d_rope), everywhere * fp8


def _size_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    names = ("heads", "d_nope", "d_rope", "d_v", "d_latent", "layers", "tokens")

    def case(label: str, *numbers: int) -> Case:
        return Case(inputs=dict(zip(names, numbers, strict=True)), label=label)

    # Widths for which no two mistakes give the same three numbers.
    yield case("one token in one layer", 3, 14, 10, 6, 384, 1, 1)
    yield case("DeepSeek-V3.2, one request of 32,768 tokens", 128, 128, 64, 128, 512, 61, 32_768)
    for _ in range(4 if hidden else 1):
        draw = [int(rng.integers(2, 200)), *(int(2 * rng.integers(8, 100)) for _ in range(3))]
        latent, layers, tokens = int(128 * rng.integers(2, 9)), int(rng.integers(2, 99)), int(rng.integers(2, 9999))
        yield case("a model whose four widths all differ", *draw, latent, layers, tokens)


def _sizes_with(what: str) -> Callable[..., Sizes]:
    """A wrong count: the same function with one thing forgotten or added."""

    def model(heads: int, d_nope: int, d_rope: int, d_v: int, d_latent: int, layers: int, tokens: int) -> Sizes:
        right = _cache_bytes(heads, d_nope, d_rope, d_v, d_latent, layers, tokens)
        n = layers * tokens
        scales = 4 * (d_latent // 128)
        changed: dict[str, Sizes] = {
            "no values": (n * 2 * heads * (d_nope + d_rope), right[1], right[2]),
            "no rotary keys": (n * 2 * heads * (d_nope + d_v), right[1], right[2]),
            "nope keys alone": (n * 2 * heads * d_nope, right[1], right[2]),
            "one rotary key": (n * 2 * (heads * (d_nope + d_v) + d_rope), right[1], right[2]),
            "latent a head": (right[0], heads * right[1], heads * right[2]),
            "no scales": (right[0], right[1], right[2] - n * scales),
            "rotary in FP8": (right[0], right[1], right[2] - n * d_rope),
            "scales of 64": (right[0], right[1], right[2] + n * scales),
            "one byte a scale": (right[0], right[1], right[2] - n * scales + n * d_latent // 128),
            "no rotary in latent": (right[0], n * 2 * d_latent, right[2] - n * 2 * d_rope),
            "no rotary in BF16": (right[0], n * 2 * d_latent, right[2]),
            "latent twice": (right[0], right[1] + n * 2 * d_latent, right[2] + n * (d_latent + scales)),
            "latent twice in BF16": (right[0], right[1] + n * 2 * d_latent, right[2]),
            "one layer": (right[0] // layers, right[1] // layers, right[2] // layers),
            "one token": (right[0] // tokens, right[1] // tokens, right[2] // tokens),
            "values, not bytes": (right[0] // 2, right[1] // 2, right[2]),
            "bits": (8 * right[0], 8 * right[1], 8 * right[2]),
        }
        return changed[what]

    return model


_HEAD_HINTS = (
    "Write down what one head stores of one token in one layer before you multiply by anything.",
    "One head keeps its key and its value. The key has two parts, d_nope and d_rope, and in ordinary multi-head "
    "attention each head stores both parts of its own.",
    "multi_head = layers · tokens · heads · (d_nope + d_rope + d_v) · 2 bytes.",
)
_LATENT_HINTS = (
    "What does the attention kernel need of a cached token? One row of d_latent + d_rope values.",
    "The latent is key and value at once, so it is stored once. The rotary key stands beside it.",
    "latent_bf16 = layers · tokens · (d_latent + d_rope) · 2.",
)
_COPY_HINTS = (
    "Which of the seven arguments have you not used?",
    "Every token leaves its row once in each layer.",
    "Multiply all three results by layers · tokens.",
)
_FP8_HINTS = (
    "Of the FP8 form only the latent is in FP8. List the three parts of a token with the bytes of each.",
    "d_latent bytes of latent, then one float32 scale (4 bytes) for every 128 latent values, then the rotary key in "
    "BF16 (2 bytes a value). For DeepSeek-V3.2: 512 + 16 + 128 = 656.",
    "latent_fp8 = layers · tokens · (d_latent + 4 · (d_latent // 128) + 2 · d_rope).",
)

CACHE_BYTES = Exercise(
    id="01.1",
    title="What a token costs",
    entry="cache_bytes",
    points=2,
    lines=6,
    parameters=("heads", "d_nope", "d_rope", "d_v", "d_latent", "layers", "tokens"),
    outputs=("multi_head", "latent_bf16", "latent_fp8"),
    cases=_size_cases,
    reference=_cache_bytes,
    compare=Exact(),
    show=dict.fromkeys(("multi_head", "latent_bf16", "latent_fp8"), "{:,} bytes".format),
    misconceptions=(
        Misconception(
            "no values",
            "You counted the keys of all heads, but not their values.",
            _HEAD_HINTS,
            _sizes_with("no values"),
        ),
        Misconception(
            "nope keys alone",
            "You counted the keys without their rotary part, and no values: for DeepSeek-V3.2 that is 16,384 values a "
            "token, the number behind the published 28 times. Nobody could attend with that cache.",
            _HEAD_HINTS,
            _sizes_with("nope keys alone"),
        ),
        Misconception(
            "no rotary keys",
            "The multi-head keys lack their rotary part: a head's key has d_nope + d_rope values.",
            _HEAD_HINTS,
            _sizes_with("no rotary keys"),
        ),
        Misconception(
            "one rotary key",
            "You counted one rotary key for all heads. That is MLA's trick; in the multi-head cache each head stores "
            "its whole key.",
            _HEAD_HINTS,
            _sizes_with("one rotary key"),
        ),
        Misconception(
            "latent a head",
            "You multiplied the latent by the number of heads. There is one latent and one rotary key a token: all "
            "heads read the same.",
            (
                "How many latents does a token leave in one layer?",
                "One. The heads differ in their queries and in their up-projections, which are weights, not cache.",
                "latent_bf16 = layers · tokens · (d_latent + d_rope) · 2.",
            ),
            _sizes_with("latent a head"),
        ),
        Misconception(
            "no scales", "The FP8 form lacks its scales: 4 bytes for every 128 latent values.", _FP8_HINTS,
            _sizes_with("no scales"),
        ),
        Misconception(
            "rotary in FP8", "You stored the rotary key in FP8 as well; it stays in BF16, 2 bytes a value.", _FP8_HINTS,
            _sizes_with("rotary in FP8"),
        ),
        Misconception(
            "scales of 64", "You counted a scale for every 64 values; here one scale serves 128.", _FP8_HINTS,
            _sizes_with("scales of 64"),
        ),
        Misconception(
            "one layer",
            "These are the bytes of one layer: every layer has a cache of its own.",
            _COPY_HINTS,
            _sizes_with("one layer"),
        ),
        Misconception(
            "one token",
            "These are the bytes of one token. The question is about all `tokens`.",
            _COPY_HINTS,
            _sizes_with("one token"),
        ),
        Misconception(
            "one byte a scale",
            "You counted one byte for each scale of the FP8 form. It is a float32, 4 bytes.",
            _FP8_HINTS,
            _sizes_with("one byte a scale"),
        ),
        *(
            Misconception(
                key, "The latent form lacks its rotary key: d_rope values in BF16 beside the latent.", _LATENT_HINTS,
                _sizes_with(key),
            )
            for key in ("no rotary in latent", "no rotary in BF16")
        ),
        *(
            Misconception(
                key, "You stored the latent twice, once for the keys and once for the values. One copy serves both.",
                _LATENT_HINTS, _sizes_with(key),
            )
            for key in ("latent twice", "latent twice in BF16")
        ),
        Misconception(
            "values, not bytes",
            "You counted values, not bytes, in the BF16 forms: a BF16 value takes 2 bytes.",
            ("Which unit does the statement ask for?", "BF16 has 16 bits.", "Multiply the first two results by 2."),
            _sizes_with("values, not bytes"),
        ),
        Misconception(
            "bits",
            "These are bits: eight times the bytes.",
            ("Which unit does the statement ask for?", "A byte has 8 bits.", "A BF16 value takes 2 bytes."),
            _sizes_with("bits"),
        ),
        Misconception(
            "order",
            "These are the three right numbers in another order.",
            (
                "Compare your return line with the statement's.",
                "The order is multi_head, latent_bf16, latent_fp8.",
                "return multi_head, latent_bf16, latent_fp8",
            ),
            when=lambda case, expected, got: tuple(got) != expected and sorted(got) == sorted(expected),
        ),
        Misconception(
            "multi-head alone",
            "The two latent forms are right; the multi-head form is not.",
            _HEAD_HINTS,
            when=lambda case, expected, got: got[0] != expected[0] and tuple(got[1:]) == tuple(expected[1:]),
        ),
        Misconception(
            "FP8 alone",
            "The two BF16 forms are right; the FP8 form is not.",
            _FP8_HINTS,
            when=lambda case, expected, got: got[2] != expected[2] and tuple(got[:2]) == tuple(expected[:2]),
        ),
    ),
    hints=(
        "Take one token in one layer first, and write three short sums: multi-head, latent in BF16, latent in FP8.",
        "Multi-head: each head keeps a key of d_nope + d_rope values and a value of d_v. Latent: d_latent + d_rope "
        "values, once for all heads.",
        "Per token and layer: 2·heads·(d_nope + d_rope + d_v); 2·(d_latent + d_rope); "
        "d_latent + 4·(d_latent // 128) + 2·d_rope. Then times layers · tokens.",
    ),
    forbids=("mlacademy.mla",),
)  # fmt: skip
