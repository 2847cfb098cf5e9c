"""Whatever an answer does becomes one clear sentence, and the asking process lives on."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest

from mlacademy.fp8 import decode_e4m3
from mlacademy.grading import Close, Exact, Exercise, judge, wire
from mlacademy.grading.process import Job, Worker, shared

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as the names of a notebook are


def exits(x: Any, factor: int) -> Any:
    os._exit(3)


def exits_quietly(x: Any, factor: int) -> Any:
    sys.exit(0)


def crashes(x: Any, factor: int) -> Any:
    ctypes.string_at(0)


def asks(x: Any, factor: int) -> Any:
    return input("factor? ")


def recurses(x: Any, factor: int) -> Any:
    return recurses(x, factor)


def raises(x: Any, factor: int) -> Any:
    y = x * factor
    raise KeyError(f"no {y.size} rows")


def raises_from_numpy(x: Any, factor: int) -> Any:
    return np.concatenate([x, np.zeros((2, 2))])


def meets_what_torch_lacks(x: Any, factor: int) -> Any:
    import torch

    return torch.ones(2, dtype=torch.bool).abs()


def raises_a_paragraph(x: Any, factor: int) -> Any:
    raise ValueError("first line\n\n  second line\n" + "and more " * 100)


def meta_tensor(x: Any, factor: int) -> Any:
    import torch

    return torch.empty(3, device="meta")


def writes_a_file(x: Any, factor: int) -> Any:
    with open("result.txt", "w") as file:
        file.write("result")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises_something_unprintable(x: Any, factor: int) -> Any:
    raise Unprintable


def interrupts(x: Any, factor: int) -> Any:
    raise KeyboardInterrupt


def mutates(x: Any, factor: int) -> Any:
    x *= factor
    return x


def mutates_and_returns_a_copy(x: Any, factor: int) -> Any:
    result = x * np.float32(factor)
    x[0] = 7
    return result


def closes_everything(x: Any, factor: int) -> Any:
    os.closerange(0, 256)
    return x * factor


def scribbles(x: Any, factor: int) -> Any:
    for number in range(3, 64):
        try:
            os.write(number, b"\0" * 100_000)
        except OSError:
            continue
    return x * factor


def kills_itself(x: Any, factor: int) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_parent(x: Any, factor: int) -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1)


def nests(x: Any, factor: int) -> Any:
    result: list[Any] = []
    for _ in range(100):
        result = [result]
    return result


def contains_itself(x: Any, factor: int) -> Any:
    result: list[Any] = []
    result.append(result)
    return result


def generates(x: Any, factor: int) -> Any:
    yield from x


class Liar:
    """Says that it equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("asked for numbers")


class LyingArray(np.ndarray):
    """Zeros that compare equal to everything."""

    def __eq__(self, other: object) -> Any:
        return np.ones(self.shape, bool)

    def __array_finalize__(self, other: Any) -> None:
        if os.environ.get("NEVER"):
            raise RuntimeError


class LyingFloat(float):
    def __float__(self) -> float:
        return 3.0

    def __repr__(self) -> str:
        return "3.0"


class LyingList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([1, 2, 3])

    def __len__(self) -> int:
        return 3


SENTENCES: list[tuple[str, Callable[..., Any], str, str]] = [
    ("none", lambda x, factor: None, "none", "scale returned None; expected an array of shape [3] (float32)."),
    ("scalar", lambda x, factor: 3, "type", "y is an integer; expected an array of shape [3] (float32)."),
    ("list", lambda x, factor: list(x * 3), "type", "y is a list of 3; expected an array of shape [3] (float32)."),
    ("tuple", lambda x, factor: (x, x), "type", "y is a tuple of 2; expected an array"),
    ("text", lambda x, factor: "x", "type", "y is the text 'x'; expected an array"),
    ("rank", lambda x, factor: (x * 3)[None], "shape", "y has shape [1, 3]; expected [3] (row)."),
    ("shape", lambda x, factor: (x * 3)[1:], "shape", "y has shape [2]; expected [3] (row)."),
    ("dtype", lambda x, factor: (x * 3).astype(int), "dtype", "y has dtype int64; expected floats (float32)."),
    ("booleans", lambda x, factor: x > 0, "dtype", "y has dtype bool; expected floats (float32)."),
    ("objects", lambda x, factor: x.astype(object), "type", "y is an array of Python objects; expected"),
    ("strings", lambda x, factor: x.astype(str), "type", "y is an array of strings; expected"),
    ("nan", lambda x, factor: x * np.nan, "nan", "y[row 0] is nan, expected"),
    ("infinity", lambda x, factor: x * np.inf, "value", "inf, expected"),
    ("last number", lambda x, factor: x * 3 + (np.arange(len(x)) == 2), "value", "1 of 3 numbers differ."),
    ("function", lambda x, factor: np.add, "type", "y is an object of class ufunc; expected an array"),
    ("unfinished call", lambda x, factor: len, "type", "is a function (is a call missing its parentheses?)"),
    ("generator", generates, "type", "is a generator (yield instead of return"),
    ("set", lambda x, factor: {1, 2}, "type", "is a set, which has no order"),
    ("exit", exits, "exit", "scale ended its process (exit code 3) instead of returning a result."),
    ("sys.exit", exits_quietly, "exit", "scale raised SystemExit instead of returning a result."),
    ("interrupt", interrupts, "exit", "scale raised KeyboardInterrupt instead of returning a result."),
    ("crash", crashes, "crash", "scale crashed its process (SIGSEGV)."),
    ("suicide", kills_itself, "crash", "scale crashed its process (SIGKILL)."),
    ("input", asks, "input", "scale calls input(): an answer gets everything through its parameters."),
    ("recursion", recurses, "raised", "scale calls itself without an end."),
    ("exception", raises, "raised", "scale raised KeyError: 'no 3 rows'."),
    ("exception inside NumPy", raises_from_numpy, "raised", "scale raised ValueError: all the input array"),
    ("what torch lacks", meets_what_torch_lacks, "raised", 'scale raised NotImplementedError: "abs_cpu" not impl'),
    ("exception of many lines", raises_a_paragraph, "raised", "scale raised ValueError: first line second line and"),
    ("writing a file", writes_a_file, "raised", "scale raised PermissionError:"),
    ("tensor without numbers", meta_tensor, "type", "y is a tensor on the device meta, which has no numbers; expected"),
    ("unprintable exception", raises_something_unprintable, "raised", "scale raised Unprintable."),
    ("changed input", mutates, "changed inputs", "scale changed its input x; it must leave its inputs as they were."),
    ("changed input, right result", mutates_and_returns_a_copy, "changed inputs", "scale changed its input x"),
    ("too few parameters", lambda x: x, "parameters", "The answer cannot be called as scale(x, factor):"),
    ("too many parameters", lambda x, factor, y: x, "parameters", "missing 1 required positional argument: 'y'"),
    ("not a function", 3, "type", "The answer is an integer; expected the function scale(x, factor)."),  # type: ignore[list-item]
    ("deep nesting", nests, "too large", "scale returned a result nested more than 24 levels deep."),
    ("self-reference", contains_itself, "too large", "scale returned a result nested more than 24 levels deep."),
    ("equal to everything", lambda x, factor: Liar(), "type", "y is an object of class Liar; expected an array"),
    ("an array that lies", lambda x, factor: x.view(LyingArray), "value", "y[row 0] is -0.80020034, expected"),
    ("float subclass", lambda x, factor: LyingFloat(0), "type", "y is a number; expected an array"),
]


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"), [row[1:] for row in SENTENCES], ids=[row[0] for row in SENTENCES]
)
def test_failure_is_one_sentence(exercise: Exercise, answer: Any, kind: str, sentence: str) -> None:
    verdict = judge(exercise, answer)
    assert not verdict
    assert verdict.kind == kind
    assert sentence in verdict.summary
    assert "\n" not in verdict.summary
    assert verdict.points == 0
    assert judge(exercise, lambda x, factor: x * np.float32(factor))


def test_endless_loop_is_stopped_and_what_it_printed_is_shown(make: Callable[..., Exercise]) -> None:
    def loops(x: Any, factor: int) -> Any:
        print("before the loop")
        while True:
            factor += 1

    verdict = judge(make(seconds=0.5), loops)
    assert verdict.summary == "scale was still running after 0.5 s and was stopped."
    assert verdict.printed == "before the loop"
    assert verdict.seconds < 5


def test_loop_that_catches_everything_is_stopped(make: Callable[..., Exercise]) -> None:
    def clings(x: Any, factor: int) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            try:
                while True:
                    factor += 1
            except BaseException:
                continue

    assert judge(make(seconds=0.5), clings).kind == "timeout"


def test_many_slow_cases_are_stopped_together(make: Callable[..., Exercise]) -> None:
    def slow(x: Any, factor: int) -> Any:
        time.sleep(0.15)
        return x * np.float32(factor)

    cases = [case for case in make().make_cases("visible") for _ in range(8)]
    verdict = judge(make(seconds=0.2, cases=lambda rng, hidden: cases), slow)
    assert verdict.summary == "scale needed more than 0.8 s for all cases and was stopped."


@pytest.mark.parametrize("answer", [closes_everything, scribbles, kills_its_parent])
def test_disturbing_the_process_costs_only_this_answer(exercise: Exercise, answer: Any) -> None:
    assert not judge(exercise, answer)
    assert judge(exercise, lambda x, factor: x * np.float32(factor))


FORGED: list[Any] = [
    {"m": "result", "case": 0, "value": {"t": "none"}, "changed": ["x"]},
    {"m": "result", "case": 0, "value": {"t": "none"}, "overrun": {"a": 1}},
    {"m": "result", "case": 0, "value": {"t": "array", "dtype": "O", "shape": [1]}},
    {"m": "result", "case": 0, "value": [1]},
    {"m": "raised", "case": 0, "type": 3, "bases": 5, "frames": 7},
    {"m": "raised", "case": 0, "type": "E", "text": "t", "frames": [["/etc/passwd", 1, "f"], 3]},
    {"m": "load failed", "case": [], "bases": None},
    {"m": "passed", "case": 0},
    {"m": "done", "library": 3},
    {"m": 0},
]


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_forged_messages_are_no_results_and_do_no_harm(exercise: Exercise, forged: Any) -> None:
    data = wire.pack(forged, [])

    def forges(x: Any, factor: int) -> Any:
        for number in range(3, 64):
            try:
                os.write(number, data)
            except OSError:
                continue
        os._exit(0)

    verdict = judge(exercise, forges)
    assert not verdict
    assert "root:" not in str(verdict)
    assert judge(exercise, lambda x, factor: x * np.float32(factor))


def test_prints_are_shown_and_decide_nothing(exercise: Exercise) -> None:
    def talks(x: Any, factor: int) -> Any:
        print("all tests passed", 100)
        sys.stderr.write("an error\n")
        return x * np.float32(factor)

    verdict = judge(exercise, talks)
    assert verdict
    assert verdict.printed.startswith("all tests passed 100\nan error")


def test_flood_of_output_is_cut(exercise: Exercise) -> None:
    def floods(x: Any, factor: int) -> Any:
        for _ in range(100_000):
            print("x" * 80)
        return x * np.float32(factor)

    verdict = judge(exercise, floods)
    assert verdict
    assert len(verdict.printed) < 4000
    assert verdict.printed.endswith("… and much more")


def test_cached_functions_travel(exercise: Exercise) -> None:
    @functools.cache
    def triangle(n: int) -> int:
        return n and n + triangle(n - 1)

    @functools.lru_cache(maxsize=2, typed=True)
    def scale(x: Any, factor: int) -> Any:
        return x

    assert judge(exercise, lambda x, factor: x * np.float32(triangle(factor) - factor))
    verdict = judge(exercise, scale)
    assert verdict.summary == "scale raised TypeError: unhashable type: 'numpy.ndarray'."
    assert judge(exercise, functools.cache(decode_e4m3)).kind == "library"


def test_what_cannot_travel_is_named(exercise: Exercise) -> None:
    lock = threading.Lock()

    def holds(x: Any, factor: int) -> Any:
        return lock

    verdict = judge(exercise, holds)
    assert verdict.kind == "unpicklable"
    assert verdict.summary.startswith("scale cannot be sent to the checker: TypeError: cannot pickle '_thread.lock'")


def test_lines_of_the_learner_are_quoted(exercise: Exercise) -> None:
    assert judge(exercise, raises).lines[-1].endswith('in raises: raise KeyError(f"no {y.size} rows")')


def test_one_answer_does_not_spoil_the_next(exercise: Exercise) -> None:
    def spoils(x: Any, factor: int) -> Any:
        np.float32 = None  # type: ignore[misc, assignment]
        np.random.seed(1)
        sys.modules.pop("numpy")
        return x

    assert not judge(exercise, spoils)
    assert judge(exercise, lambda x, factor: x * np.float32(factor))


def test_global_random_states_of_the_learner_are_untouched(make: Callable[..., Exercise]) -> None:
    def reference(x: Any, factor: int) -> Any:
        random.random()
        np.random.random()
        return x * np.float32(factor)

    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    judge(make(reference=reference), lambda x, factor: x * np.float32(factor))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index, union-attr]


def test_list_subclass_is_read_as_the_list_it_is(make: Callable[..., Exercise]) -> None:
    listed = make(reference=lambda x, factor: [1, 2, 3], compare=Exact(), misconceptions=())
    assert judge(listed, lambda x, factor: LyingList([1, 2])).summary == "y has 2 items; expected 3."


def test_output_buffers_are_watched_at_their_edges(make: Callable[..., Exercise]) -> None:
    def reference(x: Any, factor: int) -> Any:
        return np.full(3, 3, np.float32)

    def fills(x: Any, factor: int) -> None:
        x[:3] = 3

    def overruns(x: Any, factor: int) -> None:
        wide = np.lib.stride_tricks.as_strided(x, (4,))
        wide[:] = 3

    def cases(rng: np.random.Generator, hidden: bool) -> Any:
        return [*make().make_cases("visible")][:1]

    into = make(writes=("x",), reference=reference, cases=cases, misconceptions=())
    assert judge(into, fills)
    verdict = judge(into, overruns)
    assert verdict.summary == "scale wrote outside x: the bytes around the buffer have changed."
    assert judge(into, lambda x, factor: x * 3).kind == "value"


def test_torch_results_are_compared_by_their_numbers(make: Callable[..., Exercise]) -> None:
    import torch

    def reference(x: Any, factor: int) -> Any:
        return torch.from_numpy(x).to(torch.bfloat16) * factor

    in_torch = make(reference=reference, compare=Close(rtol=2**-8, why="one rounding to bfloat16"), misconceptions=())
    assert judge(in_torch, reference)
    same = make(reference=reference, compare=Exact(dtype="same"), misconceptions=())
    assert (
        judge(same, lambda x, factor: torch.from_numpy(x) * factor).summary == "y has dtype float32; expected bfloat16."
    )


def test_worker_that_was_killed_is_started_again(exercise: Exercise) -> None:
    worker = Worker()
    try:
        assert judge(exercise, lambda x, factor: x * np.float32(factor), worker=worker)
        assert worker._process is not None
        worker._process.kill()
        worker._process.wait()
        assert judge(exercise, lambda x, factor: x * np.float32(factor), worker=worker)
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("command", "reason"),
    [("true", "it said nothing"), ("echo first >&2; echo no room left >&2; exit 1", "no room left")],
)
def test_worker_that_cannot_start_is_an_error_with_its_reason(command: str, reason: str) -> None:
    worker = Worker(prefix=["/bin/sh", "-c", command])
    with pytest.raises(RuntimeError, match=f"the worker process did not start: /bin/sh {sys.executable}: {reason}"):
        worker.run(Job(answer=b""))


def test_expected_values_are_never_sent(exercise: Exercise, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    run = Worker.run

    def listen(worker: Worker, job: Job) -> Any:
        sent.append(b"".join([job.answer or b"", *(job.calls or [])]))
        return run(worker, job)

    monkeypatch.setattr(Worker, "run", listen)
    assert judge(exercise, lambda x, factor: x * np.float32(factor))
    for case in exercise.make_cases("visible"):
        assert (case.inputs["x"] * np.float32(3)).tobytes() not in sent[0]
        assert case.inputs["x"].tobytes() in sent[0]
    assert shared() is shared()
