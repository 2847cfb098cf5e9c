"""Exercises of chapter 01: what a token costs, RoPE by hand, absorption, and a whole absorbed decode step (01.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Close, Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.mla_step import DECODE_STEP

Array = NDArray[np.float64]

# ---------------------------------------------------------------------------------------------------------------- 01.1


def _cache_bytes(
    heads: int, d_nope: int, d_rope: int, d_v: int, d_latent: int, layers: int, tokens: int
) -> tuple[int, int, int]:
    everywhere = layers * tokens
    multi_head = 2 * heads * (d_nope + d_rope + d_v)
    fp8 = d_latent + 4 * (d_latent // 128) + 2 * d_rope
    return everywhere * multi_head, everywhere * 2 * (d_latent + d_rope), everywhere * fp8


def _size_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    names = ("heads", "d_nope", "d_rope", "d_v", "d_latent", "layers", "tokens")

    def case(label: str, *numbers: int) -> Case:
        return Case(inputs=dict(zip(names, numbers, strict=True)), label=label)

    yield case("one token in one layer", 3, 10, 4, 6, 256, 1, 1)
    yield case("DeepSeek-V3.2, one request of 32,768 tokens", 128, 128, 64, 128, 512, 61, 32_768)
    for _ in range(4 if hidden else 1):
        draw = [int(rng.integers(2, 200)), *(int(2 * rng.integers(8, 100)) for _ in range(3))]
        latent, layers, tokens = int(128 * rng.integers(1, 9)), int(rng.integers(2, 99)), int(rng.integers(2, 9999))
        yield case("a model whose four widths all differ", *draw, latent, layers, tokens)


def _sizes_with(what: str) -> Any:
    """A wrong count: the same function with one thing forgotten or added."""

    def model(
        heads: int, d_nope: int, d_rope: int, d_v: int, d_latent: int, layers: int, tokens: int
    ) -> tuple[int, int, int]:
        right = _cache_bytes(heads, d_nope, d_rope, d_v, d_latent, layers, tokens)
        n = layers * tokens
        scales = 4 * (d_latent // 128)
        changed = {
            "no values": (n * 2 * heads * (d_nope + d_rope), right[1], right[2]),
            "no rotary keys": (n * 2 * heads * (d_nope + d_v), right[1], right[2]),
            "nope keys alone": (n * 2 * heads * d_nope, right[1], right[2]),
            "one rotary key": (n * 2 * (heads * (d_nope + d_v) + d_rope), right[1], right[2]),
            "latent a head": (right[0], heads * right[1], heads * right[2]),
            "no scales": (right[0], right[1], right[2] - n * scales),
            "rotary in FP8": (right[0], right[1], right[2] - n * d_rope),
            "scales of 64": (right[0], right[1], right[2] + n * scales),
            "one layer": tuple(x // layers for x in right),
            "values, not bytes": (right[0] // 2, right[1] // 2, right[2]),
        }
        a, b, c = changed[what]
        return a, b, c

    return model


_HEAD_HINTS = (
    "Write down what one head stores of one token in one layer before you multiply by anything.",
    "One head keeps its key and its value. The key has two parts, d_nope and d_rope, and in ordinary multi-head "
    "attention each head stores both parts of its own.",
    "multi_head = layers · tokens · heads · (d_nope + d_rope + d_v) · 2 bytes.",
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
            ("Which of the seven arguments have you not used?", "The cache exists once in each layer.",
             "Multiply all three results by layers · tokens."),
            _sizes_with("one layer"),
        ),
        Misconception(
            "values, not bytes",
            "You counted values, not bytes, in the BF16 forms: a BF16 value takes 2 bytes.",
            ("Which unit does the statement ask for?", "BF16 has 16 bits.", "Multiply the first two results by 2."),
            _sizes_with("values, not bytes"),
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

# ---------------------------------------------------------------------------------------------------------------- 01.2


def turn(x: Array, positions: NDArray[np.int64], theta: float) -> Array:
    """RoPE over neighbouring pairs, as complex numbers: x ``[s, d]``, positions ``[s]``."""
    d = x.shape[1]
    angles = np.outer(positions, [theta ** (-2 * i / d) for i in range(d // 2)])
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([turned.real, turned.imag], axis=2).reshape(x.shape)


def _rope_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, positions: Any, d: int, theta: float = 10_000.0) -> Case:
        inputs = {
            "x": rng.permutation(len(positions) * d).reshape(len(positions), d) + 1.0,
            "positions": np.asarray(positions, dtype=np.int64),
            "theta": theta,
        }
        return Case(inputs=inputs, label=label, axes=(("token", "element"),))

    yield case("one pair, a small position", [1], 2)
    yield case("tokens out of order", [5, 0, 3], 8)
    yield case("another theta", [2, 7], 6, 500.0)
    if hidden:
        yield case("the real width of 64", rng.integers(0, 4096, 5), 64)
        yield case("positions near the end of the context", rng.integers(160_000, 163_840, 3), 10)
        yield case("no tokens", [], 4)


def _half(x: Array, positions: NDArray[np.int64], theta: float) -> Array:
    d = x.shape[1]
    shuffle = np.concatenate([np.arange(d // 2)[:, None], d // 2 + np.arange(d // 2)[:, None]], axis=1).ravel()
    out = np.empty_like(x)
    out[:, shuffle] = turn(x[:, shuffle], positions, theta)
    return out


def _overwritten(x: Array, positions: NDArray[np.int64], theta: float) -> Array:
    d = x.shape[1]
    angles = np.outer(positions, theta ** (-np.arange(0, d, 2) / d))
    out = x.copy()
    out[:, 0::2] = out[:, 0::2] * np.cos(angles) - out[:, 1::2] * np.sin(angles)
    out[:, 1::2] = out[:, 0::2] * np.sin(angles) + out[:, 1::2] * np.cos(angles)
    return out


_ROPE_HINTS = (
    "Take one token and its first pair (x[0], x[1]). Which two numbers come out for an angle a?",
    "Pair i is (x[2i], x[2i+1]); its angle is position · theta^(-2i/d). The turned pair is (x0·cos a − x1·sin a, "
    "x0·sin a + x1·cos a).",
    "a = positions[:, None] * theta ** (-np.arange(0, d, 2) / d); even, odd = x[:, 0::2], x[:, 1::2]; write the two "
    "sums into a fresh array.",
)

ROTATE = Exercise(
    id="01.2",
    title="RoPE by hand",
    entry="rotate",
    points=2,
    lines=7,
    parameters=("x", "positions", "theta"),
    outputs=("turned",),
    cases=_rope_cases,
    reference=turn,
    compare=Close(atol=1e-9, why="float64 angles up to 163,840 rad are exact to about 3e-11"),
    misconceptions=(
        Misconception(
            "half",
            "You paired element i with element i + d/2. DeepSeek's attention pairs neighbours: 0 with 1, 2 with 3.",
            (
                "Which elements turn together? Try d = 4 on paper.",
                "For d = 4 the pairs are (0, 1) and (2, 3), not (0, 2) and (1, 3). Slices with a step of 2 give the "
                "first and second members.",
                "even, odd = x[:, 0::2], x[:, 1::2].",
            ),
            _half,
        ),
        Misconception(
            "backwards",
            "The pairs turn the wrong way round: the sign of the sine is exchanged.",
            (
                "Turn the point (1, 0) by a small angle. In which direction must it go?",
                "(1, 0) becomes (cos a, sin a), so the minus sign belongs to the first member.",
                "first = even·cos − odd·sin; second = even·sin + odd·cos.",
            ),
            lambda x, positions, theta: turn(x, -positions, theta),
        ),
        Misconception(
            "exponent",
            "The speeds of the pairs are wrong from pair 1 on: you used theta^(-i/d), the exponent is -2i/d.",
            (
                "Pair 0 is right, later pairs are not. What depends on the pair's number?",
                "The frequency. Over all pairs it falls from 1 to nearly 1/theta, so the exponent runs to almost -1.",
                "frequency of pair i: theta ** (-2 * i / d), i from 0 to d/2 − 1.",
            ),
            lambda x, positions, theta: turn(x, positions, theta**0.5),
        ),
        Misconception(
            "row number",
            "You turned row r by r. The angle belongs to the token's position, which is in positions.",
            (
                "The rows need not be in order, and need not start at 0.",
                "positions[r] is where the token of row r stands in the text.",
                "angles = positions[:, None] * frequencies.",
            ),
            lambda x, positions, theta: turn(x, np.arange(len(x)), theta),
        ),
        Misconception(
            "one speed",
            "All pairs turn at the same speed. Each pair has its own frequency, theta^(-2i/d).",
            _ROPE_HINTS,
            lambda x, positions, theta: turn(x, positions, 1.0),
        ),
        Misconception(
            "overwritten",
            "The second member of each pair was computed from the first one after that had been overwritten.",
            (
                "Both results need both old values. Which of them is gone when you need it?",
                "After out[:, 0::2] = … the old even elements no longer exist in out. Keep them under a name of their "
                "own (a slice is only a view).",
                "even, odd = x[:, 0::2], x[:, 1::2] from the input, results into np.empty_like(x).",
            ),
            _overwritten,
        ),
    ),
    hints=_ROPE_HINTS,
    forbids=("mlacademy.mla",),
)

# ---------------------------------------------------------------------------------------------------------------- 01.3


def absorb(q_nope: Array, q_rope: Array, k_up: Array) -> Array:
    """Absorbed queries ``[h, d_latent + d_rope]``, head by head."""
    return np.array([[*(k_up[h].T @ q_nope[h]), *q_rope[h]] for h in range(len(q_nope))])


def _absorb_cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, h: int, d_nope: int, d_rope: int, d_latent: int) -> Case:
        inputs = {
            "q_nope": rng.integers(-4, 5, (h, d_nope)).astype(float),
            "q_rope": rng.integers(5, 10, (h, d_rope)).astype(float),
            "k_up": rng.integers(-4, 5, (h, d_nope, d_latent)) / 2,
        }
        return Case(inputs=inputs, label=label, axes=(("head", "element"),))

    yield case("one head", 1, 2, 2, 3)
    yield case("three heads", 3, 4, 2, 7)
    yield case("as many key values as latent values", 2, 6, 4, 6)
    if hidden:
        yield case("DeepSeek-V3.2's widths, 8 of its heads", 8, 128, 64, 512)
        yield case("a latent narrower than the key", 5, 9, 2, 4)


_ABSORB_HINTS = (
    "The naive score of a head is q_nope · (K c) + q_rope · k_rope, where K = k_up[h]. Move K to the other side of "
    "the first dot product.",
    "q_nope · (K c) = (Kᵀ q_nope) · c. K has shape [d_nope, d_latent], so Kᵀ q_nope has d_latent values: one such "
    "product for each head, with that head's own matrix.",
    'np.einsum("hd,hdc->hc", q_nope, k_up), then q_rope behind it along the last axis.',
)

ABSORB = Exercise(
    id="01.3",
    title="Absorb the up-projection",
    entry="absorb_queries",
    points=2,
    lines=3,
    parameters=("q_nope", "q_rope", "k_up"),
    outputs=("q",),
    cases=_absorb_cases,
    reference=absorb,
    compare=Close(atol=1e-12, rtol=1e-12, why="float64 sums of at most 128 products in any order"),
    misconceptions=(
        Misconception(
            "rope first",
            "The rotary part stands in front. A cached key is the latent first, then the rotary key, and the query "
            "must have the same order.",
            (
                "Against which element of the cached key is q[0] multiplied?",
                "The cache holds d_latent latent values, then d_rope rotary ones.",
                "np.concatenate([absorbed, q_rope], axis=-1).",
            ),
            lambda q_nope, q_rope, k_up: np.concatenate([q_rope, np.einsum("hd,hdc->hc", q_nope, k_up)], axis=-1),
        ),
        Misconception(
            "first head's matrix",
            "Every head was multiplied by the matrix of head 0. Each head has its own k_up[h].",
            (
                "Head 0 is right and the others are not. What do they share that they should not?",
                "k_up has one matrix a head: k_up[h] has shape [d_nope, d_latent].",
                'Loop over h, or use einsum with the head in both inputs: "hd,hdc->hc".',
            ),
            lambda q_nope, q_rope, k_up: np.concatenate([q_nope @ k_up[0], q_rope], axis=-1),
        ),
        Misconception(
            "summed heads",
            "The heads were added together: h is missing in the output of the product.",
            (
                "How many different queries does the result hold?",
                "One for each head. In einsum an index that is missing behind the arrow is summed over.",
                '"hd,hdc->hc", not "hd,hdc->c".',
            ),
            lambda q_nope, q_rope, k_up: np.concatenate(
                [np.broadcast_to(np.einsum("hd,hdc->c", q_nope, k_up), (len(q_nope), k_up.shape[2])), q_rope], axis=-1
            ),
        ),
        Misconception(
            "not transposed",
            "You multiplied by k_up[h] where its transpose is needed. Both fit only because d_nope = d_latent here.",
            (
                "Write the shapes under q · (K c) = (Kᵀ q) · c.",
                "K maps a latent (d_latent) to a key (d_nope). A query has the key's width, so it must go through Kᵀ.",
                "k_up[h].T @ q_nope[h], or q_nope[h] @ k_up[h].",
            ),
            lambda q_nope, q_rope, k_up: np.concatenate([np.einsum("hc,hdc->hd", q_nope, k_up), q_rope], axis=-1),
        ),
        Misconception(
            "no rotary part",
            "The rotary part of the query is missing: the score needs q_rope · k_rope as well.",
            (
                "How wide is a cached key?",
                "d_latent + d_rope values. The rotary part is not absorbed into anything; it is appended as it is.",
                "np.concatenate([absorbed, q_rope], axis=-1).",
            ),
            when=lambda case, expected, got: got.shape == (expected.shape[0], case.inputs["k_up"].shape[2]),
        ),
    ),
    hints=_ABSORB_HINTS,
    forbids=("mlacademy.mla",),
)

EXERCISES = (CACHE_BYTES, ROTATE, ABSORB, DECODE_STEP)
