"""Exercise 09.5: when the steps of each block begin, in a pipeline with a few buffers and one queue of multiplies."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mlacademy.grading.compare import Exact
from mlacademy.grading.exercise import Case, Exercise, Misconception

Times = tuple[list[int], list[int], list[int]]


def _cases(rng: np.random.Generator, hidden: bool) -> Iterable[Case]:
    def case(label: str, blocks: int, fill: int, scores: int, softmax: int, output: int, buffers: int) -> Case:
        durations = {"fill": fill, "scores": scores, "softmax": softmax, "output": output}
        return Case({"blocks": blocks, **durations, "buffers": buffers}, label, (("block",),) * 3)

    if not hidden:
        yield case("one block", 1, 900, 1152, 1200, 1024, 2)
        yield case("the multiplies set the pace", 5, 900, 1152, 1200, 1024, 2)
        yield case("the gathering sets the pace", 5, 4000, 1152, 1200, 1024, 2)
        yield case("one buffer", 4, 900, 1152, 1200, 1024, 1)
        yield case("three buffers", 6, 2500, 400, 3000, 300, 3)
        return
    for buffers in (1, 2, 3, 4):
        blocks, (fill, scores, softmax, output) = 9, rng.integers(100, 4000, 4).tolist()
        yield case("random durations", blocks, fill, scores, softmax, output, buffers)
    yield case("a long softmax", 7, 700, 300, 5000, 200, 2)


def _as(mistake: str = "") -> Callable[..., Times]:
    """The times, right or with one mistake."""

    def model(blocks: int, fill: int, scores: int, softmax: int, output: int, buffers: int) -> Times:
        begins: Times = ([], [], [])
        filled: list[int] = []  # when each block is stored
        freed: list[int] = []  # when its buffer is given back
        cores = 0  # when the tensor cores are through with what is in their queue
        held = 1 if mistake == "one buffer" else buffers
        for i in range(blocks):
            before = filled[-1] if filled else 0
            room = freed[i - held] if i >= held and mistake != "no end of buffers" else 0
            if mistake == "after the block before" and freed:
                room = freed[-1]
            if mistake == "gathers at once":
                before = 0
            begins[0].append(max(before, room))
            filled.append(begins[0][-1] + fill)
            begins[1].append(max(filled[-1], 0 if mistake == "no queue" and not i else cores))
            if mistake == "no queue" and i:
                begins[1][-1] = max(filled[-1], begins[1][-2] + scores)
            there = begins[1][-1] + scores
            weighed = there if mistake == "no softmax" else there + softmax
            begins[2].append(weighed)
            if mistake == "no queue" and len(begins[2]) > 1:
                begins[2][-1] = max(weighed, begins[2][-2] + output)
            cores = begins[2][-1] + output
            freed.append(there if mistake == "free after the scores" else cores)
        return begins

    return model


_BUFFER_HINTS = (
    "Which block lay in the buffer before block i, and when may it be overwritten?",
    "Block i goes where block i − buffers lay, which is free when its output has been multiplied.",
    "stores[i] = max(stores[i − 1] + fill, output[i − buffers] + output's time), where these blocks exist.",
)
_QUEUE_HINTS = (
    "How many things can the tensor cores do at once?",
    "Their queue holds: scores of block 0, output 0, scores 1, output 1 … Each begins when the one before it has "
    "ended.",
    "scores[i] = max(when block i is stored, when output i − 1 has ended).",
)

PIPELINE = Exercise(
    id="09.5",
    title="A pipeline on paper",
    entry="pipeline",
    points=3,
    lines=10,
    parameters=("blocks", "fill", "scores", "softmax", "output", "buffers"),
    outputs=("stores", "scores", "output"),
    cases=_cases,
    reference=_as(),
    compare=Exact(),
    misconceptions=(
        Misconception(
            "one buffer",
            "You computed as if there were one buffer. Block i goes where block i − buffers lay.",
            _BUFFER_HINTS,
            _as("one buffer"),
        ),
        Misconception(
            "after the block before",
            "You let each block wait for the one before it to be multiplied. It waits for the one that lay in its "
            "buffer.",
            _BUFFER_HINTS,
            _as("after the block before"),
        ),
        Misconception(
            "no end of buffers",
            "Your gathering never waits for a buffer: it stores over blocks that are still being multiplied.",
            _BUFFER_HINTS,
            _as("no end of buffers"),
        ),
        Misconception(
            "free after the scores",
            "You gave a buffer back when its scores were made. The block is read once more, as values.",
            _BUFFER_HINTS,
            _as("free after the scores"),
        ),
        Misconception(
            "gathers at once",
            "Your blocks are gathered at the same time. gather stores one after the other.",
            (
                "Who stores block 1 while block 0 is being stored?",
                "It is one role: block i begins when block i − 1 is stored, and not before its buffer is free.",
                "stores[i] ≥ stores[i − 1] + fill.",
            ),
            _as("gathers at once"),
        ),
        Misconception(
            "no softmax",
            "The softmax is missing between the scores and the output of a block.",
            (
                "What must be there before p times v can begin?",
                "p is made of the block's scores, which takes `softmax` cycles.",
                "output[i] = scores[i] + the scores' time + the softmax's time.",
            ),
            _as("no softmax"),
        ),
        Misconception(
            "no queue",
            "Your tensor cores multiply scores and output at the same time. They take one job after the other.",
            _QUEUE_HINTS,
            _as("no queue"),
        ),
    ),
    hints=(
        "Go block by block, and write down for each of the three steps what it must wait for.",
        "stores: the block before is stored, the buffer is free. scores: the block is stored, output i − 1 has ended. "
        "output: the softmax of block i has ended.",
        "stores[i] = max(stores[i−1] + fill, end[i − buffers]); scores[i] = max(stores[i] + fill, end[i−1]); "
        "output[i] = scores[i] + its time + softmax; end[i] = output[i] + its time.",
    ),
    forbids=("mlacademy.gpu", "mlacademy.ops"),
)
