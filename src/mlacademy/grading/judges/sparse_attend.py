"""Exercise 03.4: sparse attention of one request over a list of slots with holes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mlacademy.grading.compare import Close
from mlacademy.grading.exercise import Case, Exercise, Misconception
from mlacademy.grading.judges import sparse_mistakes as mistakes


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(
        label: str,
        indices: list[int],
        length: int | None = None,
        *,
        spread: float = 1.0,
        d_v: int = 4,
        older: tuple[int, ...] = (),
        below: float = 0.0,
    ) -> Case:
        """A cache that is NaN wherever no entry that counts points, but for the slots of `older` tokens.

        ``below`` moves the scores of head h down, by about 5 · scale · below · 4^h.
        """
        h, d, pages, page = 3, 6, 5, 4
        length = len(indices) if length is None else length
        used = [*older, *(slot for slot in indices[:length] if slot != -1)]
        tokens = np.full((pages * page, d), np.nan)
        tokens[used] = rng.normal(size=(len(used), d))
        q = spread * rng.normal(size=(h, d))
        if below:
            tokens[:, -1], q[:, -1] = tokens[:, -1] + 5.0, -below * 4.0 ** np.arange(h)
        scale = float(rng.uniform(0.3, 0.9))
        inputs = {
            "q": q,
            "cache": tokens.reshape(pages, page, d),
            "indices": np.array(indices, dtype=np.int64),
            "length": length,
            "scale": scale,
            "d_v": d_v,
        }
        return Case(inputs, label=label, axes=(("head", "element"), ("head",)))

    if not hidden:
        yield case("no holes", [7, 2, 13, 5])
        yield case("slot 0 in the list", [0, 9, 4])
        yield case("holes in front and between", [-1, 6, -1, -1, 11, 3])
        yield case("a slot that is named twice", [8, 1, 8, -1, 14])
        yield case("entries behind the length", [10, -1, 2, 15, 6], length=3, older=(15, 6))
        yield case("garbage behind the length", [4, 9, 2_147_483_647, -7], length=2)
        yield case("large logits", [3, 17, 6, -1], spread=900.0)
        yield case("scores far below zero", [12, -1, 7, 3], below=1_000.0)
        yield case("a list of holes", [-1, -1, -1])
        return
    for count in (1, 5, 12, 40):
        indices = rng.integers(0, 20, count)
        indices[rng.random(count) < 0.3] = -1
        indices[0] = 0
        yield case("slots, holes and duplicates anywhere", indices.tolist(), d_v=int(rng.integers(2, 6)))
        length = int(rng.integers(0, count + 1))
        yield case("garbage behind the length", [*indices.tolist()[:length], 10**6, -5], length=length)
    yield case("large logits", rng.integers(0, 20, 9).tolist(), spread=2000.0)
    yield case("a length of 0", [3, 4], length=0)
    yield case("a list of holes", [-1] * 6)


def _digits(value: float) -> str:
    return f"{value:.10g}"


_HOLE_HINTS = (
    "Which entries of the list may contribute to the sums at all?",
    "Two ways work: drop the holes before you read the cache, or read something harmless for them and set their "
    "scores to minus infinity, so that their weight is exactly 0.",
    "used = indices[:length]; used = used[used != -1]; rows = cache.reshape(-1, d)[used]; go on with these rows alone.",
)
_LSE_HINTS = (
    "The output is right; look at lse. Which logarithm, and of what?",
    "lse is the natural logarithm of the sum of exp(scaled score). If you subtracted the largest score before exp, it "
    "has to come back.",
    "lse = top + np.log(np.exp(scores − top).sum(axis=1)).",
)
_MAXIMUM_HINTS = (
    "What are np.exp(1000.0) and np.exp(-1000.0)?",
    "Subtract each head's own largest score before exp, and add it to the logarithm afterwards.",
    "top = scores.max(axis=1, keepdims=True); weights = np.exp(scores − top)",
)
_VALUE_HINTS = (
    "A cached row serves twice: whole as the key, in part as the value. Which part?",
    "The value is the latent, which stands first. RoPE, which stands last, belongs to the key alone.",
    "values = rows[:, :d_v]",
)
_EMPTY_HINTS = (
    "What are the largest score and the sum of exponentials of nothing?",
    "Treat a list without a single token before you divide by its sum.",
    "if used.size == 0: return np.zeros((h, d_v)), np.full(h, np.inf)",
)

SPARSE_ATTENTION = Exercise(
    id="03.4",
    title="Attend to a list of slots",
    entry="attend",
    points=4,
    lines=12,
    parameters=("q", "cache", "indices", "length", "scale", "d_v"),
    outputs=("out", "lse"),
    cases=_cases,
    reference=mistakes.attend,
    compare=Close(
        atol=1e-9,
        rtol=1e-9,
        why="values are a few units, and float64 scores of tens of thousands bring about 1e-11 into the weights",
    ),
    misconceptions=(
        Misconception(
            "empty",
            "No entry counts in this case, and NaN came out: 0 was divided by 0, or −∞ taken from −∞. "
            "The output is 0 and lse is +∞ then.",
            _EMPTY_HINTS,
            when=mistakes.empty,
        ),
        Misconception(
            "zeros",
            "Your holes take part: a row of zeros has the score 0, and softmax gives a score of 0 the weight e⁰ = 1. "
            "A hole needs the weight 0, that is the score −∞.",
            _HOLE_HINTS,
            mistakes.attend_as("zeros"),
        ),
        Misconception(
            "last",
            "A hole read the last slot of the pool: in NumPy the index −1 counts from the end.",
            _HOLE_HINTS,
            mistakes.attend_as("last"),
        ),
        Misconception(
            "masked NaN",
            "Your holes have the weight 0, but the row that you read in their place holds NaN, and 0 · NaN is NaN. "
            "Replace a hole's values as well, or do not read them at all.",
            _HOLE_HINTS,
            mistakes.attend_as("masked NaN"),
        ),
        Misconception(
            "slot 0",
            "You left slot 0 out. It is a slot like any other; only −1 is a hole.",
            (
                "Which test separates tokens from holes in your answer?",
                "An entry of 0 names the first token of page 0.",
                "Keep entries that differ from −1: used[used != -1].",
            ),
            mistakes.attend_as("slot 0"),
        ),
        Misconception(
            "unique",
            "You attended to each slot once. A slot that is named twice counts twice; no kernel looks for duplicates.",
            (
                "How often does the list name each slot?",
                "np.unique and set() drop repetitions.",
                "Index the cache with the list as it is; repeated entries give repeated rows.",
            ),
            mistakes.attend_as("unique"),
        ),
        Misconception(
            "length",
            "You read entries at or behind length. They are holes whatever they hold.",
            (
                "Which argument did you not use?",
                "Only the first length entries count.",
                "used = indices[:length]",
            ),
            mistakes.attend_as("length"),
        ),
        Misconception(
            "filter first",
            "You dropped the holes first and took length entries of what was left. length counts places of the list, "
            "holes included.",
            (
                "Which entries does your answer use in this case, and where in the list do they stand?",
                "The list ends at length. What is cut off first cannot move up.",
                "used = indices[:length]; used = used[used != -1]",
            ),
            mistakes.attend_as("filter first"),
        ),
        Misconception(
            "first hole",
            "You stopped at the first hole. Holes may stand anywhere, with tokens behind them.",
            (
                "Which entries does your answer use in this case?",
                "A hole says nothing about the entries behind it.",
                "Pass over a hole (continue), do not end the loop (break).",
            ),
            mistakes.attend_as("first hole"),
        ),
        Misconception(
            "no scale",
            "You left out scale: the scores are scale · q·k.",
            (
                "Which argument did you not use?",
                "Softmax depends on how far scores are apart; scale decides that.",
                "scores = scale * (q @ rows.T)",
            ),
            mistakes.attend_as("no scale"),
        ),
        Misconception(
            "root",
            "You scaled by 1/√d. The scale is an argument here: latent attention's is not 1/√d of the cached row.",
            (
                "Which argument did you not use?",
                "DeepSeek-V3.2 scales by 0.1352, not by 1/√576 = 0.0417.",
                "scores = scale * (q @ rows.T)",
            ),
            mistakes.attend_as("root"),
        ),
        Misconception(
            "heads",
            "Your weights sum to 1 over the heads of a token. Softmax goes over the tokens, for each head by itself.",
            (
                "Which sums of your weights are 1: those of a head, or those of a token?",
                "With scores of shape [h, n] the tokens are the last axis.",
                "weights / weights.sum(axis=1, keepdims=True), and the maximum along the same axis.",
            ),
            when=mistakes.over_heads,
        ),
        Misconception(
            "undivided",
            "Your output is the sum of weight times value; it is not divided by the sum of the weights.",
            (
                "What do the weights of one head add up to in your answer?",
                "Softmax weights are exponentials divided by their sum, so that they add up to 1.",
                "out = weights @ rows[:, :d_v] / weights.sum(axis=1, keepdims=True)",
            ),
            when=mistakes.undivided,
        ),
        Misconception(
            "short keys",
            "You computed the scores over the first d_v elements. The key is the whole row; only the value is shorter.",
            (
                "How many products does one score add up?",
                "The last columns, RoPE, carry the token's position. They belong to the key.",
                "scores = scale * (q @ rows.T)",
            ),
            mistakes.attend_as("short keys"),
        ),
        Misconception(
            "last values",
            "You took the last d_v columns as values; the value is the first d_v columns of a row.",
            _VALUE_HINTS,
            mistakes.attend_as("last values"),
        ),
        Misconception(
            "all values",
            "Your output is as wide as a key. The value is the first d_v columns of a row only.",
            _VALUE_HINTS,
            mistakes.attend_as("all values"),
        ),
        Misconception(
            "base 2",
            "Your lse is a base-2 logarithm. Asked is the natural one.",
            _LSE_HINTS,
            mistakes.attend_as("base 2"),
        ),
        Misconception(
            "relative",
            "Your lse is relative to the largest score: after subtracting it for exp, add it back.",
            _LSE_HINTS,
            mistakes.attend_as("relative"),
        ),
        Misconception(
            "sum",
            "You returned the sum of the exponentials; asked is its natural logarithm.",
            _LSE_HINTS,
            mistakes.attend_as("sum"),
        ),
        Misconception(
            "minus infinity",
            "A list without tokens has lse = +∞ by the kernels' convention, not −∞: then exp(score − lse) is 0 for "
            "whoever uses it. (A *partial* result uses −∞; that is chapter 06.)",
            (
                "What does the statement say about a list without tokens?",
                "ln 0 is −∞, but the public interface marks an empty row by +∞.",
                "Return +np.inf for every head when no entry counts.",
            ),
            mistakes.attend_as("minus infinity"),
        ),
        Misconception(
            "empty lse",
            "No entry counts in this case: out is right, and lse must be +∞ for every head.",
            _EMPTY_HINTS,
            when=mistakes.empty_lse,
        ),
        Misconception(
            "hole outweighs",
            "The scores of a head lie far below zero here, and your holes outweigh the tokens: the number that stands "
            "for a hole's score is larger than theirs. Only −∞ is below every score.",
            _HOLE_HINTS,
            when=mistakes.hole_outweighs,
        ),
        Misconception(
            "one maximum",
            "You subtracted one maximum for all heads. A head whose scores all lie far below it gets exp(…) = 0 for "
            "every token, and then divides 0 by 0.",
            _MAXIMUM_HINTS,
            mistakes.attend_as("one maximum"),
        ),
        Misconception(
            "overflow",
            "The scores of this case are large, and exp of anything above 709 overflows in float64. Softmax does not "
            "change when a head's largest score is subtracted from all of its scores; then no exponent is above 0.",
            _MAXIMUM_HINTS,
            when=mistakes.overflow,
        ),
        Misconception(
            "underflow",
            "All scores of a head lie far below zero here, and exp of anything below −745 is 0. Subtract the head's "
            "largest score, also where it is negative (a maximum that starts from 0 never gets below 0).",
            _MAXIMUM_HINTS,
            when=mistakes.underflow,
        ),
        Misconception(
            "poisoned",
            "NaN reached your result. Slots that the list does not name hold NaN, and a weight of 0 does not help: "
            "0 · NaN is NaN. Read only the slots that count.",
            _HOLE_HINTS,
            when=mistakes.poisoned,
        ),
        Misconception(
            "single",
            "You computed in float32, which keeps about 7 digits. Asked is float64, the type of the inputs.",
            (
                "Which dtype does your result have?",
                "One float32 array in a product of two is enough to lose digits before the product.",
                "Leave the inputs in float64; create arrays without a dtype, or with np.float64.",
            ),
            when=mistakes.single,
        ),
        Misconception("only lse", "The output is right; lse is not.", _LSE_HINTS, when=mistakes.only_lse),
    ),
    hints=(
        "In this order: which slots count, their rows, the scores of all heads, softmax, values.",
        "Drop the holes first; then there is nothing special left but the empty list. Slot s is row s of "
        "cache.reshape(-1, d). Softmax goes over the tokens, for each head by itself.",
        "used = indices[:length]; used = used[used != −1]; rows = cache.reshape(-1, d)[used]; scores = scale · q "
        "@ rows.T [h, n]; subtract the row maximum; out = weights @ rows[:, :d_v] / their sum; lse = top + ln(sum).",
    ),
    show={"out": _digits, "lse": _digits},
    forbids=("mlacademy.attention", "mlacademy.softmax", "mlacademy.cache", "mlacademy.sparse"),
)
