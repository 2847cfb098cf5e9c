"""Exercise 01.4: a whole absorbed decode step, from the new token's projections to the heads' outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception

Array = NDArray[np.float64]
EPS = 1e-6


def _turn(x: Array, position: int, theta: float) -> Array:
    d = x.shape[-1]
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * position * theta ** (-np.arange(0, d, 2) / d))
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


def step(
    q_nope: Array,
    q_rope: Array,
    new: Array,
    cache: Array,
    position: int,
    k_up: Array,
    v_up: Array,
    kv_norm: Array,
    theta: float,
    scale: float,
    *,
    mistake: str = "",
) -> tuple[Array, Array]:
    """``(new_cache, out)``, head by head; ``mistake`` makes one of the known mistakes instead."""
    width = k_up.shape[2]
    raw, turned = new[:width], _turn(new[width:], position, theta)
    latent = raw / np.sqrt(np.mean(raw**2) + EPS) * kv_norm
    if mistake == "not normalised":
        latent = raw
    if mistake == "no norm weight":
        latent = raw / np.sqrt(np.mean(raw**2) + EPS)
    if mistake == "normalised together":
        latent = raw / np.sqrt(np.mean(new**2) + EPS) * kv_norm
    if mistake == "key not turned":
        turned = new[width:]
    longer = np.concatenate([cache, np.concatenate([latent, turned])[None]])
    seen = cache if mistake == "not itself" else longer
    if mistake == "turned again":
        seen = np.concatenate([cache[:, :width], _turn(cache[:, width:], position, theta)], axis=1)
        seen = np.concatenate([seen, longer[-1:]])
    if mistake == "width of the cache":
        scale = (width + q_rope.shape[1]) ** -0.5
    if mistake == "no scale":
        scale = 1.0
    q_turned = q_rope if mistake == "query not turned" else _turn(q_rope, position, theta)
    scores = np.array([seen @ np.concatenate([q_nope[h] @ k_up[h], q_turned[h]]) for h in range(len(q_nope))]) * scale
    axis = 0 if mistake == "softmax over heads" else 1
    p = np.exp(scores - scores.max(axis=axis, keepdims=True))
    p /= p.sum(axis=axis, keepdims=True)
    values = seen[:, -width:] if mistake == "value from the end" else seen[:, :width]
    return longer, np.array([v_up[h] @ (p[h] @ values) for h in range(len(q_nope))])


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, h: int, tokens: int, widths: tuple[int, int, int, int], size: float = 1.0) -> Case:
        d_nope, d_rope, d_latent, d_v = widths

        def normal(shape: int | tuple[int, ...]) -> Array:
            return rng.integers(-20, 21, shape) / 10

        inputs = {
            "q_nope": size * normal((h, d_nope)),
            "q_rope": size * normal((h, d_rope)),
            "new": 2.5 * normal(d_latent + d_rope),
            "cache": normal((tokens, d_latent + d_rope)),
            "position": tokens,
            "k_up": normal((h, d_nope, d_latent)) / d_latent**0.5,
            "v_up": normal((h, d_v, d_latent)) / d_latent**0.5,
            "kv_norm": rng.integers(5, 16, d_latent) / 10,
            "theta": 10_000.0,
            "scale": 1.8739 * (d_nope + d_rope) ** -0.5,
        }
        return Case(inputs=inputs, label=label, axes=(("token", "element"), ("head", "element")))

    yield case("two heads, three cached tokens", 2, 3, (3, 4, 5, 2))
    yield case("more heads than tokens", 5, 2, (4, 2, 6, 3))
    yield case("the first token: an empty cache", 2, 0, (3, 2, 4, 5))
    yield case("large scores", 3, 4, (4, 2, 5, 3), size=2000.0)
    if hidden:
        yield case("DeepSeek-V3.2's widths, 4 of its heads, 100 tokens", 4, 100, (128, 64, 512, 128))
        yield case("one head, many tokens", 1, 40, (5, 6, 8, 4))


def _with(mistake: str) -> Callable[..., tuple[Array, Array]]:
    def model(*args: Any, **inputs: Any) -> tuple[Array, Array]:
        return step(*args, **inputs, mistake=mistake)

    return model


def _overflowed(case: Case, expected: Any, got: Any) -> bool:
    out = np.asarray(got[1])
    return case.label == "large scores" and bool(np.isnan(out).any())


_NORM_HINTS = (
    "Look at the last row of the cache, before attention: is it what the model stores?",
    "Only the d_latent latent values are normalised, over those values alone: c / sqrt(mean(c²) + 1e-6), times "
    "kv_norm. The rotary key is left out of the norm.",
    "c = new[:d_latent]; c = c / np.sqrt(np.mean(c ** 2) + 1e-6) * kv_norm, with d_latent = k_up.shape[2].",
)
_TURN_HINTS = (
    "Which vectors know their position, and which of them have been turned already?",
    "The new token's rotary key and the queries' rotary parts are turned by position. The rows of the cache were "
    "turned by their own positions when they came; they stay as they are.",
    "Turn new[d_latent:] and q_rope by position with your rotate from 01.2; do not touch cache.",
)
_SCALE_HINTS = (
    "Compute one score by hand. By what is it multiplied before the exponential?",
    "The scale is an argument, because it is the model's, not a property of the absorbed width.",
    "scores = q @ cache.T * scale.",
)
_VALUE_HINTS = (
    "After softmax you have one weight for each head and token. What is mixed with these weights?",
    "The latents: the first d_latent values of each cached row. The mixed latent then goes through the head's own "
    "v_up[h].",
    'out = np.einsum("hc,hdc->hd", p @ cache[:, :d_latent], v_up).',
)


DECODE_STEP = Exercise(
    id="01.4",
    title="An absorbed decode step",
    entry="decode_step",
    points=4,
    lines=15,
    parameters=("q_nope", "q_rope", "new", "cache", "position", "k_up", "v_up", "kv_norm", "theta", "scale"),
    outputs=("new_cache", "out"),
    cases=_cases,
    reference=step,
    compare=Close(atol=1e-9, rtol=1e-9, why="float64 sums of at most 576 products, logits up to some thousand"),
    misconceptions=(
        Misconception(
            "not normalised",
            "The new latent was stored as it came. The model normalises it first (RMSNorm with the weight kv_norm).",
            _NORM_HINTS,
            _with("not normalised"),
        ),
        Misconception(
            "no norm weight",
            "The latent is normalised, but not multiplied by kv_norm.",
            _NORM_HINTS,
            _with("no norm weight"),
        ),
        Misconception(
            "normalised together",
            "The mean square was taken over the latent and the rotary key together. It belongs to the latent alone.",
            _NORM_HINTS,
            _with("normalised together"),
        ),
        Misconception(
            "not itself",
            "The new token did not attend to itself: it must see the cache with its own row appended.",
            (
                "How many tokens does the very first token of a text attend to?",
                "One: itself. So the row is appended before the scores are computed.",
                "new_cache = np.concatenate([cache, row[None]]) first; use new_cache for scores and values.",
            ),
            _with("not itself"),
        ),
        Misconception(
            "key not turned",
            "The new rotary key was stored without being turned.",
            _TURN_HINTS,
            _with("key not turned"),
        ),
        Misconception(
            "query not turned", "The queries' rotary part was not turned.", _TURN_HINTS, _with("query not turned")
        ),
        Misconception(
            "turned again",
            "The cached rotary keys were turned a second time. They were turned by their own positions when stored.",
            _TURN_HINTS,
            _with("turned again"),
        ),
        Misconception(
            "width of the cache",
            "The scores were multiplied by 1/√(d_latent + d_rope), the width of the cached key, in place of scale.",
            _SCALE_HINTS,
            _with("width of the cache"),
        ),
        Misconception("no scale", "The scores were not multiplied by scale.", _SCALE_HINTS, _with("no scale")),
        Misconception(
            "softmax over heads",
            "Softmax ran over the heads. The weights of one head over all tokens must add up to 1.",
            (
                "Add up your weights along both axes. Which sums should be 1?",
                "scores has shape [heads, tokens]; each row is one head.",
                "Use axis=1 (or -1) with keepdims=True for the maximum and the sum.",
            ),
            _with("softmax over heads"),
        ),
        Misconception(
            "value from the end",
            "The values were taken from the end of the cached row. V is its first d_latent elements.",
            _VALUE_HINTS,
            _with("value from the end"),
        ),
        Misconception(
            "overflow",
            "exp overflowed: for large scores it is inf, and inf / inf is NaN.",
            (
                "Softmax does not change when the same number is subtracted from all scores of a head.",
                "Subtract the largest score of each head before exp: then the largest term is 1.",
                "p = np.exp(scores - scores.max(axis=1, keepdims=True)).",
            ),
            when=_overflowed,
        ),
    ),
    hints=(
        "Five stages: make the new row, append it, absorb the queries, softmax, mix and up-project. Get the cache "
        "right first; it is the first result.",
        "Row: normalised latent, then turned rotary key. Query of head h: q_nope[h] @ k_up[h], then the turned "
        "q_rope[h]. Scores: query · row · scale. Values: the first d_latent elements of the rows.",
        "p = softmax(q @ new_cache.T * scale) over the tokens; mixed = p @ new_cache[:, :d_latent]; out[h] = v_up[h] @ "
        "mixed[h].",
    ),
    forbids=("mlacademy.mla", "mlacademy.attention"),
)
