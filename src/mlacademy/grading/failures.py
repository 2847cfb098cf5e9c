"""Everything that can go wrong with an answer, each as one clear sentence with a reason and, where it helps, hints."""

from __future__ import annotations

import linecache
import signal
import sysconfig
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlacademy.grading.compare import Difference, describe, show_value
from mlacademy.grading.confine import MEMORY
from mlacademy.grading.exercise import Case, Exercise
from mlacademy.grading.process import LOAD_SECONDS, Reply


@dataclass(frozen=True)
class Failure:
    """``sentence`` says what happened, ``why`` what it means; ``lines`` are the learner's own lines it came through.

    ``report`` is what the emulator said, shortened. ``comparable`` is true when a result came back, so that a
    misconception may explain it.
    """

    kind: str
    sentence: str
    why: str = ""
    hints: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    comparable: bool = False


def unanswered(exercise: Exercise, where: str = "") -> Failure:
    """The blank is still there."""
    return Failure("unanswered", f"{exercise.entry} is not answered yet{where}: about {_lines(exercise)} are missing.")


def missing(exercise: Exercise) -> Failure:
    """The notebook has no such name."""
    return Failure("unanswered", f"There is no {exercise.entry} in this notebook yet: run the cell that defines it.")


def _lines(exercise: Exercise) -> str:
    return "1 line" if exercise.lines == 1 else f"{exercise.lines} lines"


def not_a_function(exercise: Exercise, answer: Any) -> Failure:
    """The name holds something else."""
    came = "a value" if answer is not None and not isinstance(answer, (int, float, str)) else describe(answer)
    signature = f"{exercise.entry}({', '.join(exercise.parameters)})"
    return Failure("type", f"The answer is {came}; expected the function {signature}.")


def not_a_dict(exercise: Exercise, got: Any, keys: Iterable[Any]) -> Failure:
    """A dict of predictions was asked for."""
    return Failure(
        "type", f"{exercise.entry} is {describe(got)}; expected a dict with the keys {', '.join(map(repr, keys))}."
    )


def library(exercise: Exercise, name: str) -> Failure:
    """The library did the work."""
    sentence = f"The answer uses {name}: this exercise asks you to write that yourself."
    return Failure("library", sentence, hints=exercise.hints)


def unpicklable(exercise: Exercise, error: Exception) -> Failure:
    """The answer holds on to something that cannot leave the notebook's process."""
    sentence = f"{exercise.entry} cannot be sent to the checker: {type(error).__name__}: {str(error)[:200]}."
    why = "It refers to something outside itself that lives in this notebook only (an open file, a lock, a generator)."
    return Failure("unpicklable", sentence, why)


def oversized(exercise: Exercise, size: int) -> Failure:
    """The answer drags too much data along."""
    sentence = f"{exercise.entry} carries {size >> 20} MB of data from the notebook along."
    return Failure(
        "unpicklable", sentence, "It refers to a large variable outside itself; pass what it needs as a parameter."
    )


def nothing(exercise: Exercise, expected: Any) -> Failure:
    """None came back."""
    sentence = f"{exercise.entry} returned None; expected {describe(expected)}."
    return Failure("none", sentence, "A function without a return statement on the path taken gives None.")


def malformed(exercise: Exercise, text: str) -> Failure:
    """The bytes from the worker make no sense."""
    return Failure("malformed", f"{exercise.entry} disturbed the process it runs in: {text}.")


def lost(exercise: Exercise) -> Failure:
    """No word about this case."""
    return Failure("lost", f"{exercise.entry} did not get as far as this case.")


def of_difference(exercise: Exercise, difference: Difference) -> Failure:
    """A result came, and it differs."""
    reveal = exercise.kind != "value"
    sentence = difference.say(exercise.show.get(difference.output), reveal=reveal)
    return Failure(difference.kind, sentence, difference.why, comparable=True)


def of_end(exercise: Exercise, reply: Reply) -> Failure | None:
    """Why the run stopped before its end; None when it did not."""
    entry = exercise.entry
    if any(message.get("m") == "done" for message, _ in reply.messages) and reply.end == "closed":
        return None
    failed = next((message for message, _ in reply.messages if message.get("m") == "load failed"), None)
    if failed is not None:
        return _load_failed(exercise, failed)
    if reply.end == "load timeout":
        return Failure("timeout", f"{entry} could not be loaded within {LOAD_SECONDS:g} s and was stopped.")
    if reply.end == "call timeout":
        why = "A loop that does not end, or far more work than the exercise needs."
        return Failure("timeout", f"{entry} was still running after {exercise.seconds:g} s and was stopped.", why)
    if reply.end == "total timeout":
        why = "Each case ended in time, but together they take too long."
        return Failure(
            "timeout", f"{entry} needed more than {4 * exercise.seconds:g} s for all cases and was stopped.", why
        )
    if reply.end in ("malformed", "flood"):
        return malformed(exercise, "what it sent back is not a result")
    if reply.signal is not None:
        name = signal.Signals(reply.signal).name if reply.signal in signal.valid_signals() else str(reply.signal)
        why = "It touched memory that is not its own." if name in ("SIGSEGV", "SIGBUS") else ""
        return Failure("crash", f"{entry} crashed its process ({name}).", why)
    if reply.end == "closed" and reply.exit is not None:
        return Failure("exit", f"{entry} ended its process (exit code {reply.exit}) instead of returning a result.")
    return Failure("lost", f"The process that ran {entry} is gone; check again.")


def _load_failed(exercise: Exercise, message: dict[str, Any]) -> Failure:
    kind, text = _error(message)
    if kind == "NameError" and text == exercise.entry:
        return missing(exercise)
    if kind == "LibraryCall":
        return library(exercise, text)
    if kind == "MemoryError":
        return _memory(exercise)
    return Failure("load", f"{exercise.entry} could not be loaded by the checker: {kind}: {text}")


def of_message(exercise: Exercise, message: dict[str, Any], answer: Any) -> Failure | None:
    """What a runner's message about one case says went wrong; None for a result to be compared."""
    kind = message.get("m")
    if kind == "too large":
        return Failure("too large", f"{exercise.entry} returned {str(message.get('text'))[:200]}.")
    if kind == "raised":
        return _raised(exercise, message, answer)
    if kind != "result":
        return malformed(exercise, "what it sent back is not a result")
    names = exercise.parameters
    for position in message.get("overrun") or []:
        sentence = f"{exercise.entry} wrote outside {names[position]}: the bytes around the buffer have changed."
        return Failure("overrun", sentence)
    for position in message.get("changed") or []:
        sentence = f"{exercise.entry} changed its input {names[position]}; it must leave its inputs as they were."
        why = "An in-place operation (x *= 2, x[i] = …, x.sort()) writes into the caller's data; work on a copy."
        return Failure("changed inputs", sentence, why)
    return None


def _error(message: dict[str, Any]) -> tuple[str, str]:
    """The class and the text of an exception, on one line: some libraries write whole paragraphs."""
    kind, text = str(message.get("type")), " ".join(str(message.get("text")).split())
    return kind, text if len(text) <= 300 else text[:299] + "…"


def _memory(exercise: Exercise) -> Failure:
    return Failure("memory", f"{exercise.entry} asked for more memory than the {MEMORY >> 30} GiB an answer may use.")


def _raised(exercise: Exercise, message: dict[str, Any], answer: Any) -> Failure:
    kind, text = _error(message)
    bases = [str(base) for base in message.get("bases") or []]
    frames = [frame for frame in message.get("frames") or [] if isinstance(frame, list) and len(frame) == 3]
    own = [frame for frame in frames if _is_own(str(frame[0]))]
    if kind == "LibraryCall":
        return library(exercise, text)
    if "NotImplementedError" in bases and (not text or "not answered yet" in text):
        return unanswered(exercise)
    if "MemoryError" in bases:
        return _memory(exercise)
    if kind in ("SystemExit", "KeyboardInterrupt"):
        return Failure("exit", f"{exercise.entry} raised {kind} instead of returning a result.")
    if kind == "EOFError" and "keyboard" in text:
        return Failure("input", f"{exercise.entry} calls input(): an answer gets everything through its parameters.")
    if kind == "TypeError" and not own and "argument" in text:
        expected = f"{exercise.entry}({', '.join(exercise.parameters)})"
        return Failure("parameters", f"The answer cannot be called as {expected}: {text}.")
    if "RecursionError" in bases:
        sentence, why = (
            f"{exercise.entry} calls itself without an end.",
            "Python stops a recursion of about 1,000 calls.",
        )
        return Failure("raised", sentence, why, lines=_own_lines(own, answer))
    sentence = f"{exercise.entry} raised {kind}" + (f": {text}" if text else "") + ("" if text.endswith(".") else ".")
    why = "An answer may not write files, start processes or use the network." if kind == "PermissionError" else ""
    return Failure("raised", sentence, why, lines=_own_lines(own, answer))


_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")}
    | {str(Path(__file__).resolve().parents[1])}
)


def _is_own(file: str) -> bool:
    """Whether a file name in a traceback is the learner's, not a library's or the checker's."""
    return not (file.startswith(_LIBRARIES) or file.startswith("<frozen"))


def _own_lines(frames: list[list[Any]], answer: Any) -> tuple[str, ...]:
    """The learner's own lines, innermost last: only from files this process already has as source.

    A function that travelled by value has lost its file name on the way; it is found again among the functions that the
    answer reaches.
    """
    codes = _codes(answer)
    known = {*linecache.cache, *(code.co_filename for code in codes)}
    lines = []
    for file, line, function in frames[-3:]:
        if not isinstance(line, int):
            continue
        if file not in known:
            fitting = [code for code in codes if code.co_name == function and code.co_firstlineno <= line]
            file = max(fitting, key=lambda code: code.co_firstlineno).co_filename if fitting else ""
            if not _is_own(file):
                continue
        source = linecache.getline(file, line).strip() if file in known else ""
        lines.append(f"line {line} in {function}" + (f": {source}" if source else ""))
    return tuple(lines)


def _codes(answer: Any) -> list[types.CodeType]:
    """The code of a function, of those inside it, and of the functions that it names."""
    found: list[types.CodeType] = []
    waiting = [answer]
    while waiting:
        function = waiting.pop()
        code = function if isinstance(function, types.CodeType) else getattr(function, "__code__", None)
        if not isinstance(code, types.CodeType) or code in found:
            continue
        found.append(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        names = getattr(function, "__globals__", {})
        waiting += [names[name] for name in code.co_names if isinstance(names.get(name), types.FunctionType)]
    return found


def describe_case(exercise: Exercise, case: Case) -> str:
    """``empty rows; lengths = [0, 3], topk = 4``: the label, and the inputs as far as they are short."""
    parts = [f"{name} = {_show_input(value, exercise.show.get(name))}" for name, value in case.inputs.items()]
    inputs = ", ".join(parts)
    return "; ".join(text for text in (case.label, inputs) if text)


def _show_input(value: Any, show: Callable[[Any], str] | None) -> str:
    if isinstance(value, np.ndarray) and value.size <= 8:
        return _show_list(value, show or show_value)
    if isinstance(value, (list, tuple)) and len(repr(value)) <= 80:
        return repr(value) if show is None else f"[{', '.join(map(show, value))}]"
    if isinstance(value, (bool, int, float, str, np.generic, type(None))):
        return (show or show_value)(value)
    try:
        return describe(value)
    except (TypeError, ValueError, KeyError):
        return f"an object of class {type(value).__name__}"


def _show_list(array: np.ndarray[Any, Any], show: Callable[[Any], str]) -> str:
    if array.ndim == 0:
        return show(array[()])
    return f"[{', '.join(_show_list(np.asarray(row), show) for row in array)}]"
