"""Exercise 09.4: the merge of partial results, as a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlacademy.gpu import LaunchPlan
from mlacademy.grading import Case, Close, CudaExercise, KernelMistake, Launch, Out, Sign
from mlacademy.grading.judges.kernel_shared import poisoned

Floats = NDArray[np.float32]
Starts = NDArray[np.int32]
Outputs = tuple[Floats, Floats]
LOG2E, WIDTH = float(np.log2(np.e)), 64


def _cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    axes = (("request", "head", "column"), ("request", "head"))

    def case(
        label: str, splits: list[int], heads: int, level: float, *, sink: bool = False, empty: float = 0.0
    ) -> Case:
        slots = sum(splits)
        lse = (level * rng.uniform(-1, 1, (1, heads)) + 3 * rng.standard_normal((slots, heads))).astype(np.float32)
        part = rng.standard_normal((slots, heads, WIDTH)).astype(np.float32)
        nothing = rng.random((slots, heads)) < empty
        if empty:
            nothing[: splits[0], 0] = True  # a head that no slot of the first request has seen
        lse[nothing], part[nothing] = -np.inf, 0
        logits = (lse.max(0).clip(-200, 200) / LOG2E + rng.standard_normal(heads)).astype(np.float32) if sink else None
        inputs = {"part": part, "lse_log2": lse, "num_splits": np.cumsum([0, *splits]).astype(np.int32), "sink": logits}
        return Case(inputs, label, axes)

    if not hidden:
        yield case("one request of three slots", [3], 2, 0)
        yield case("several requests", [1, 4, 2], 3, 2)
        yield case("with a sink", [2, 3], 3, 2, sink=True)
        yield case("empty slots", [3, 2, 4], 3, 2, empty=0.4)
        yield case("log-sum-exps far from 0", [2, 5], 4, 300)
        return
    yield case("many slots", [8, 1, 6], 5, 2)
    yield case("empty slots and a sink", [3, 5, 2], 4, 2, sink=True, empty=0.4)
    yield case("log-sum-exps far from 0, with a sink", [4, 3], 4, 200, sink=True)


def _launch(part: Floats, lse_log2: Floats, num_splits: Starts, sink: Floats | None) -> Launch:
    requests, heads = len(num_splits) - 1, lse_log2.shape[1]
    outs = (Out((requests, heads, WIDTH)), Out((requests, heads)))
    plan = LaunchPlan(grid=(heads, requests), block=WIDTH)
    return Launch(plan, (part, lse_log2, num_splits, sink, *outs))


def _as(mistake: str = "") -> Callable[..., Outputs]:
    """The merge, right or with one mistake."""

    def model(part: Floats, lse_log2: Floats, num_splits: Starts, sink: Floats | None) -> Outputs:
        requests, heads = len(num_splits) - 1, lse_log2.shape[1]
        out, lse = np.zeros((requests, heads, WIDTH)), np.full((requests, heads), np.inf)
        power, log = (np.exp, np.log) if mistake == "base e" else (np.exp2, np.log2)
        for request in range(requests):
            first, end = int(num_splits[request]), int(num_splits[request + 1])
            if mistake == "one slot":
                end = first + 1
            lses, values = lse_log2[first:end].astype(np.float64), part[first:end].astype(np.float64)
            top = lses.max(0)
            floor = np.where(np.isneginf(top), 0, top)
            weights = power(lses - floor)
            total = weights.sum(0)
            drain = np.zeros(heads)
            if sink is not None and mistake != "no sink":
                drain = power(np.asarray(sink, np.float64) * (1 if mistake == "sink unscaled" else LOG2E) - floor)
            if mistake == "sink unshifted" and sink is not None:
                drain = power(np.asarray(sink, np.float64) * LOG2E)
            seen = total > 0
            below = np.where(seen, total + drain, 1)
            if mistake == "average":
                weights, below = np.ones_like(lses), np.full(heads, float(len(lses)))
            if mistake == "not divided":
                below = np.ones(heads)
            out[request] = np.einsum("sh,shd->hd", weights, values) / below[:, None]
            whole = log(np.where(seen, total + (drain if mistake == "sink in the lse" else 0), 1)) + floor
            if mistake == "relative":
                whole = whole - floor
            unit = {"base 2": 1.0, "base e": 1.0, "wrong way": LOG2E}.get(mistake, 1 / LOG2E)
            natural = whole * unit
            lse[request] = np.where(seen, natural, -np.inf if mistake == "partial mark" else np.inf)
        return out.astype(np.float32), lse.astype(np.float32)

    def quiet(**inputs: Any) -> Outputs:
        with np.errstate(all="ignore"):
            return model(**inputs)

    return quiet


_LSE_HINTS = (
    "Which base does the caller's lse have, and which the partial ones?",
    "G = largest + log2(Σ 2^(l − largest)) is in base 2; the caller gets the natural logarithm.",
    "lse = (largest + log2f(sum)) * kLn2.",
)
_SINK_HINTS = (
    "Where does the sink stand in the three formulas, and in which units?",
    "It joins the denominator of out alone, as 2^(sink · log2 e), relative to the same maximum as the weights.",
    "out = Σ weight · part / (sum + exp2f(sink[head] * kLog2E - largest)); lse without it.",
)
_WEIGHT_HINTS = (
    "A slot that has seen ten times the weight counts how much more?",
    "Slot i counts 2^(l_i), relative to the largest so that nothing overflows.",
    "weight = exp2f(l - largest); out = Σ weight · part / Σ weight.",
)
_EMPTY_HINTS = (
    "What is the largest of no numbers, or of −∞ only?",
    "If all slots are empty, neither subtract the largest nor divide: out is 0, lse is +∞, whatever the sink.",
    "if (largest == -kInfinity) { out = 0; lse = kInfinity; }",
)

MERGE = CudaExercise(
    id="09.4",
    title="Merge partial results",
    entry="merge",
    points=4,
    lines=16,
    parameters=("part", "lse_log2", "num_splits", "sink"),
    outputs=("out", "lse"),
    cases=_cases,
    reference=_as(),
    compare=Close(
        atol=2.0**-15,
        rtol=2.0**-15,
        why="float32 keeps 24 bits; arguments of exp2f of up to 300 cost 8 of them",
    ),
    launch=_launch,
    misconceptions=(
        KernelMistake(
            "null sink",
            "Your kernel reads sink where it is null: without a sink there is no such array.",
            ("When is there no sink?", "A pointer that may be null is tested before it is followed.", "sink ? … : 0."),
            signs=(Sign("bounds", text="null|0x0\\b|address 0", answer=r"sink\s*\["),),
        ),
        KernelMistake(
            "outside",
            "An index leaves its array. Slot s of a head lies at s · heads + head, a request's output at request · "
            "heads + head.",
            (
                "Which of your indices grows with the slot, and which with the request?",
                "part and lse_log2 go by slots, out and lse by requests.",
                "lse_log2[slot * heads + head]; out[64 * (request * heads + head) + d].",
            ),
            signs=(Sign("bounds"),),
        ),
        KernelMistake("one slot", "Only the first slot of a request is in the result.", _WEIGHT_HINTS, _as("one slot")),
        KernelMistake(
            "average",
            "You averaged the slots. A slot counts by the weight it has seen.",
            _WEIGHT_HINTS,
            _as("average"),
        ),
        KernelMistake(
            "not divided",
            "The weighted outputs were added but not divided by the sum of the weights.",
            _WEIGHT_HINTS,
            _as("not divided"),
        ),
        KernelMistake(
            "base e",
            "You computed with powers of e. The partial log-sum-exps are in base 2.",
            _LSE_HINTS,
            _as("base e"),
        ),
        KernelMistake("base 2", "out is right, but lse is still in base 2.", _LSE_HINTS, _as("base 2")),
        KernelMistake(
            "relative",
            "out is right, but lse lacks the maximum that you subtracted.",
            _LSE_HINTS,
            _as("relative"),
        ),
        KernelMistake(
            "wrong way",
            "out is right, but lse was converted the wrong way: from base 2 to natural one multiplies by ln 2.",
            _LSE_HINTS,
            _as("wrong way"),
        ),
        KernelMistake("no sink", "The sink has no effect on your result.", _SINK_HINTS, _as("no sink")),
        KernelMistake(
            "sink in the lse",
            "out is right, but the sink has entered lse. It takes part in the output alone.",
            _SINK_HINTS,
            _as("sink in the lse"),
        ),
        KernelMistake(
            "sink unscaled",
            "The sink is in natural units, and you used it as if in base 2.",
            _SINK_HINTS,
            _as("sink unscaled"),
        ),
        KernelMistake(
            "sink unshifted",
            "The weights are relative to the largest log-sum-exp, your sink is not.",
            _SINK_HINTS,
            _as("sink unshifted"),
        ),
        KernelMistake(
            "partial mark",
            "A head that no slot has seen has lse −∞ in your result. That is the mark inside the kernels; the caller "
            "gets +∞.",
            _EMPTY_HINTS,
            _as("partial mark"),
        ),
        KernelMistake(
            "NaN",
            "There is NaN in the result: −∞ − (−∞), 0 / 0, or an overflow of 2^l.",
            (
                "Which of your cases fails: empty slots, or log-sum-exps far from 0?",
                "2^300 is no float32: subtract the largest first. If even that is −∞, all slots are empty.",
                "exp2f(l - largest), after a branch for largest == -kInfinity.",
            ),
            when=poisoned,
        ),
    ),
    hints=(
        "First the largest l of the request's slots; then weights, sum and output in one loop.",
        "weight = exp2f(l - largest). Without any token: out 0, lse +∞. With a sink the denominator grows.",
        "out = Σ weight · part / (Σ weight + exp2f(sink · kLog2E - largest)); lse = (largest + log2f(Σ weight)) · "
        "kLn2.",
    ),
)
