"""Exercises of chapter 01: what a token costs, RoPE by hand, absorption, and a whole absorbed decode step (01.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges.mla_sizes import CACHE_BYTES
from mlacademy.grading.judges.mla_step import DECODE_STEP

Array = NDArray[np.float64]

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


def _sorted(x: Array) -> Array:
    return np.concatenate([x[:, 0::2], x[:, 1::2]], axis=1)


def _overwriting(member: str) -> Callable[[Array, NDArray[np.int64], float], Array]:
    def model(x: Array, positions: NDArray[np.int64], theta: float) -> Array:
        d = x.shape[1]
        angles = np.outer(positions, theta ** (-np.arange(0, d, 2) / d))
        cos, sin = np.cos(angles), np.sin(angles)
        out = x.copy()
        even, odd = out[:, 0::2], out[:, 1::2]
        if member == "first":
            even[:] = even * cos - odd * sin
            odd[:] = even * sin + odd * cos
        else:
            odd[:] = even * sin + odd * cos
            even[:] = even * cos - odd * sin
        return out

    return model


def _nearly(case: Case, expected: Array, got: Any) -> bool:
    """Whether float32 somewhere on the way explains the difference: 2^-24 of the angle, position at most some tens."""
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        return False
    return bool(np.allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1)))


_SPEEDS: tuple[tuple[str, str, Callable[..., Array]], ...] = (
    (
        "exponent",
        "you used theta^(-i/d), the exponent is -2i/d",
        lambda x, positions, theta: turn(x, positions, theta**0.5),
    ),
    (
        "element number",
        "i numbers the pairs (0, 1, 2, …), you took the elements (0, 2, 4, …) and doubled them again",
        lambda x, positions, theta: turn(x, positions, theta**2),
    ),
    (
        "growing",
        "yours grow with the pair's number. The exponent is -2i/d, with a minus",
        lambda x, positions, theta: turn(x, positions, 1 / theta),
    ),
)
_SPEED_HINTS = (
    "What depends on the pair's number?",
    "The frequency. Over all pairs it falls from 1 to nearly 1/theta, so the exponent runs to almost -1.",
    "frequency of pair i: theta ** (-2 * i / d), i from 0 to d/2 − 1.",
)
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
        *(
            Misconception(key, f"Pair 0 is right, the speeds of the others are not: {what}.", _SPEED_HINTS, model)
            for key, what, model in _SPEEDS
        ),
        Misconception(
            "fixed theta",
            "You used 10,000 where the argument theta stands; this case has another one.",
            (
                "Which of the three arguments does your function not read?",
                "theta is a property of the model; some models use 500,000.",
                "frequency of pair i: theta ** (-2 * i / d).",
            ),
            lambda x, positions, theta: turn(x, positions, 10_000.0),
        ),
        Misconception(
            "sorted",
            "The numbers are right and stand in the wrong places: first members in front, second members behind. A "
            "pair must come out where it went in, at 2i and 2i + 1.",
            (
                "Where does the second member of pair 0 belong in the result?",
                "Putting the two halves one behind the other changes the order of the elements.",
                "out[:, 0::2] = first; out[:, 1::2] = second.",
            ),
            lambda x, positions, theta: _sorted(turn(x, positions, theta)),
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
        *(
            Misconception(
                f"{member} overwritten",
                f"The {other} member of each pair was computed from the {member} one after that had been overwritten.",
                (
                    "Both results need both old values. Which of them is gone when you need it?",
                    "After an assignment to a slice of out, its old elements no longer exist. Another name for the "
                    "slice does not help: it is a view.",
                    "even, odd = x[:, 0::2], x[:, 1::2] from the input, results into np.empty_like(x).",
                ),
                _overwriting(member),
            )
            for member, other in (("first", "second"), ("second", "first"))
        ),
        Misconception(
            "single precision",
            "Right to some six digits only: something was computed in float32. Keep float64 throughout.",
            (
                "Look for float32 or .astype in your lines, and for arrays that you made yourself.",
                "np.empty_like(x), np.arange and np.cos keep float64 when they start from float64 or int64.",
                "Leave the dtypes alone: x is float64, and int64 · float64 is float64.",
            ),
            when=_nearly,
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
        Misconception(
            "every head with every matrix",
            "q_nope @ k_up multiplies the queries of all heads by the matrix of each head: h · h products, where h are "
            "wanted.",
            (
                "How does @ treat an array of two axes beside one of three?",
                "It broadcasts q_nope over the first axis of k_up. Head h must meet matrix h only.",
                'np.einsum("hd,hdc->hc", q_nope, k_up), or (q_nope[:, None] @ k_up)[:, 0].',
            ),
            when=lambda case, expected, got: got.ndim == 3 and got.shape[0] == got.shape[1] == len(expected),
        ),
    ),
    hints=_ABSORB_HINTS,
    forbids=("mlacademy.mla",),
)

EXERCISES = (CACHE_BYTES, ROTATE, ABSORB, DECODE_STEP)
