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
    if mistake == "sum of squares":
        latent = raw / np.sqrt(np.sum(raw**2) + EPS) * kv_norm
    if mistake == "epsilon outside":
        latent = raw / (np.sqrt(np.mean(raw**2)) + EPS) * kv_norm
    if mistake == "key not turned":
        turned = new[width:]
    if mistake == "row count":
        position = len(cache)
        turned = _turn(new[width:], position, theta)
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
    if mistake == "turned by the head":
        q_turned = np.array([_turn(q, h, theta) for h, q in enumerate(q_rope)])
    scores = np.array([seen @ np.concatenate([q_nope[h] @ k_up[h], q_turned[h]]) for h in range(len(q_nope))]) * scale
    if mistake == "scale behind softmax":
        scores /= scale
    axis = 0 if mistake == "softmax over heads" else 1
    with np.errstate(invalid="ignore"):  # only one maximum for all heads makes 0 / 0
        p = np.exp(scores - scores.max(axis=None if mistake == "one maximum" else axis, keepdims=True))
        if mistake != "no division":
            p = p / p.sum(axis=axis, keepdims=True)
    if mistake == "scale behind softmax":
        p = p * scale
    values = seen[:, -width:] if mistake == "value from the end" else seen[:, :width]
    return longer, np.array([v_up[h] @ (p[h] @ values) for h in range(len(q_nope))])


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(
        label: str, h: int, tokens: int, widths: tuple[int, int, int, int], size: float = 1.0, gap: int = 0
    ) -> Case:
        d_nope, d_rope, d_latent, d_v = widths

        def normal(shape: int | tuple[int, ...]) -> Array:
            return rng.integers(-20, 21, shape) / 10

        inputs = {
            "q_nope": size * normal((h, d_nope)),
            "q_rope": size * normal((h, d_rope)),
            "new": 2.5 * normal(d_latent + d_rope),
            "cache": normal((tokens, d_latent + d_rope)),
            "position": tokens + gap,
            "k_up": normal((h, d_nope, d_latent)) / d_latent**0.5,
            "v_up": normal((h, d_v, d_latent)) / d_latent**0.5,
            "kv_norm": rng.integers(5, 16, d_latent) / 10,
            "theta": 10_000.0,
            "scale": 1.8739 * (d_nope + d_rope) ** -0.5,
        }
        return Case(inputs=inputs, label=label, axes=(("token", "element"), ("head", "element")))

    yield case("two heads, three cached tokens", 2, 3, (3, 4, 5, 2))
    yield case("more heads than tokens, some of them left out", 5, 2, (4, 2, 6, 3), gap=11)
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


def _same(one: Any, other: Any) -> bool:
    """Equal arrays; False for anything that is no array, since then the form is what is wrong."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape
    return arrays and bool(np.allclose(one, other, rtol=1e-9, atol=1e-9))


def _row_wrong_in(part: str) -> Callable[[Case, Any, Any], bool]:
    """Whether the new row alone is wrong, in its latent or in its rotary key."""

    def when(case: Case, expected: Any, got: Any) -> bool:
        width = case.inputs["k_up"].shape[2]
        right, mine = expected[0], got[0]
        latent, rotary = _same(mine[-1, :width], right[-1, :width]), _same(mine[-1, width:], right[-1, width:])
        wanted = rotary and not latent if part == "latent" else latent and not rotary
        return mine.shape == right.shape and _same(mine[:-1], right[:-1]) and wanted

    return when


def _row_first(case: Case, expected: Any, got: Any) -> bool:
    return _same(got[0], np.concatenate([expected[0][-1:], expected[0][:-1]]))


def _row_exchanged(case: Case, expected: Any, got: Any) -> bool:
    rope = case.inputs["q_rope"].shape[1]
    return _same(got[0][-1], np.roll(expected[0][-1], rope))


def _cache_returned_as_it_came(case: Case, expected: Any, got: Any) -> bool:
    return _same(got[0], case.inputs["cache"])


def _mixed_latents(case: Case, expected: Any, got: Any) -> bool:
    heads, _, width = case.inputs["k_up"].shape
    return _same(got[0], expected[0]) and np.shape(got[1]) == (heads, width) != np.shape(expected[1])


def _only_out_wrong(case: Case, expected: Any, got: Any) -> bool:
    return _same(got[0], expected[0])


_ROW_HINTS = (
    "What does the next token expect to find, and where?",
    "The cache grows by one row at its end: the normalised latent, then the turned rotary key.",
    "new_cache = np.concatenate([cache, np.concatenate([latent, rotary_key])[None]]).",
)
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
            "sum of squares",
            "You divided by the root of the sum of the squares. RMSNorm takes their mean.",
            _NORM_HINTS,
            _with("sum of squares"),
        ),
        Misconception(
            "epsilon outside",
            "The epsilon stands under the root, beside the mean of the squares; you added it to the root.",
            _NORM_HINTS,
            _with("epsilon outside"),
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
            "row count",
            "You turned by the number of cached rows. The position is an argument of its own: the cache may hold a "
            "selection of the earlier tokens.",
            _TURN_HINTS,
            _with("row count"),
        ),
        Misconception(
            "turned by the head",
            "Head h's query was turned by h. All heads belong to the same token: each turns by position.",
            (
                "Your rotate takes one position for each row. What are the rows of q_rope?",
                "The rows are heads, and all heads of a token stand at the same position.",
                "rotate(q_rope, np.full(len(q_rope), position), theta).",
            ),
            _with("turned by the head"),
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
            "scale behind softmax",
            "The weights were multiplied by scale; it belongs to the scores, before the exponential.",
            _SCALE_HINTS,
            _with("scale behind softmax"),
        ),
        Misconception(
            "no division",
            "The weights of a head do not add up to 1: the division by their sum is missing.",
            (
                "Add up the weights of one head.",
                "Softmax is exp(score) divided by the sum of all exp(score) of the same head.",
                "p = p / p.sum(axis=1, keepdims=True).",
            ),
            _with("no division"),
        ),
        Misconception(
            "one maximum",
            "You subtracted the largest score of all heads. A head whose scores lie far below it gets exp = 0 for "
            "every token, and 0 / 0 is NaN. Subtract each head's own largest score.",
            (
                "Take two heads with scores around 0 and around 5,000. What is left of the first one?",
                "The number that is subtracted may differ from head to head: each head is divided by its own sum.",
                "p = np.exp(scores - scores.max(axis=1, keepdims=True)).",
            ),
            _with("one maximum"),
        ),
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
        Misconception(
            "row first",
            "The new row stands in front of the cache. It is appended: the last row.",
            _ROW_HINTS,
            when=_row_first,
        ),
        Misconception(
            "row exchanged",
            "The new row has its rotary key in front. A cached row is the latent first, then the rotary key.",
            _ROW_HINTS,
            when=_row_exchanged,
        ),
        Misconception(
            "not appended",
            "new_cache is the cache as it came. The first result is the cache with the new row.",
            _ROW_HINTS,
            when=_cache_returned_as_it_came,
        ),
        Misconception(
            "not up-projected",
            "Your output is a mixed latent for each head. Its v_up turns that into d_v values.",
            _VALUE_HINTS,
            when=_mixed_latents,
        ),
        Misconception(
            "latent of the row",
            "Of the new cache only the last row's latent is wrong. Look at its normalisation.",
            _NORM_HINTS,
            when=_row_wrong_in("latent"),
        ),
        Misconception(
            "rotary key of the row",
            "Of the new cache only the last row's rotary key is wrong. It is turned by position, all of it, once.",
            _TURN_HINTS,
            when=_row_wrong_in("rotary"),
        ),
        Misconception(
            "only the output",
            "new_cache is right, so normalising, turning and appending work; out is not.",
            (
                "Check in order: the queries' width and turn, the scores, the weights' sums, the mixed latents.",
                "Query of head h: q_nope[h] @ k_up[h], then q_rope[h] turned by position. Scores: query · row · scale. "
                "Each head's weights add up to 1. Values: the first d_latent elements of the rows.",
                "p = softmax(q @ new_cache.T * scale) over the tokens; mixed = p @ new_cache[:, :d_latent]; out[h] = "
                "v_up[h] @ mixed[h].",
            ),
            when=_only_out_wrong,
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
