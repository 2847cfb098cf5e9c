"""What can go wrong with a kernel, each as one sentence: it does not compile, it breaks a rule while it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlacademy.gpu.includes import without_comments
from mlacademy.grading.cuda_exercise import CudaExercise, Report
from mlacademy.grading.failures import Failure

_SHOWN_LINES = 6
_WIDTH = 170
_COMPILE_HINTS = (
    "Mend the first error and check again: later ones often follow from it.",
    "The course's functions are declared in kernels/cuda, one header a feature, each with a comment.",
    "Compare your line with the declaration: the name, the number of arguments, pointer or address.",
)
_PLACE = re.compile(r"(.*?): (kernel \w+, .*)$")
_MANGLED = re.compile(r"_ZZ\w*?\d+\w+?E(\d+)([A-Za-z_]\w*)")


def does_not_compile(exercise: CudaExercise, messages: Sequence[Mapping[str, Any]], log: str) -> Failure:
    """The compiler's errors, with the learner's own lines under the sentence."""
    errors = [one for one in messages if one.get("severity") == "error"]
    if not errors:
        return Failure("compile", f"{exercise.entry} does not compile.", lines=tuple(log.splitlines()[:_SHOWN_LINES]))
    first = errors[0]
    many = f" ({len(errors)} errors; the first is the one to mend)" if len(errors) > 1 else ""
    sentence = f"{exercise.entry} does not compile{many}: {_place(exercise, first)}{str(first.get('message'))[:300]}."
    lines: list[str] = []
    for one in errors[:2]:
        source, column = str(one.get("source") or ""), int(one.get("column") or 0)
        if source:
            margin = f"{one.get('line')} | "
            lines.append(margin + source[:_WIDTH])
            if 0 < column <= _WIDTH:
                lines.append(" " * (len(margin) + column - 1) + "^")
    why = f'Line 1 is the line with {exercise.entry} = r""".' if any(_own(exercise, one) for one in errors) else ""
    return Failure("compile", sentence, why, _COMPILE_HINTS, tuple(lines))


def _own(exercise: CudaExercise, message: Mapping[str, Any]) -> bool:
    return bool(message.get("file") == exercise.entry)


def _place(exercise: CudaExercise, message: Mapping[str, Any]) -> str:
    line = message.get("line")
    if not line:
        return ""
    return f"line {line}: " if _own(exercise, message) else f"{message.get('file')}, line {line}: "


def refused(exercise: CudaExercise, sentence: str) -> Failure:
    """The kernel does not fit the launch: another name, other parameters."""
    return Failure(
        "parameters",
        f"{exercise.entry} cannot be launched: {sentence[:300]}.",
        f"The kernel's name ({exercise.kernel_name}) and its parameters are given; the body is yours.",
    )


def overrun(exercise: CudaExercise) -> Failure:
    """Bytes beside a buffer changed (on a GPU; the emulator stops such a store itself)."""
    return Failure("overrun", f"{exercise.entry} wrote outside its buffers: the bytes around one of them have changed.")


def report_of(data: Mapping[str, Any], source: str, name: str) -> Report:
    """What came from the emulator as a ``Report``, with the learner's own lines."""
    line = _own_line(data, name)
    lines = source.splitlines()
    waits = [
        {**row, "object": readable(str(row.get("object"))), "line": _own_line(row, name)}
        for row in data.get("waits") or ()
    ]
    barriers = [row["object"] for row in waits if row.get("kind") == "mbarrier"]
    return Report(
        rule=str(data.get("rule")),
        text=readable(str(data.get("text"))),
        object=readable(str(data.get("object"))) or "".join(barriers[:1]),
        line=line,
        code=lines[line - 1].strip() if 0 < line <= len(lines) else "",
        waits=waits,
        answer=without_comments(source),
    )


def _own_line(place: Mapping[str, Any], name: str) -> int:
    return int(place.get("source_line") or 0) if place.get("source_file") == name else 0


def readable(text: str) -> str:
    """``_ZZ9copy_tileE4full`` → ``full``: variables of a function by their own names."""
    return _MANGLED.sub(lambda found: found[2][: int(found[1])] + found[2][int(found[1]) :], text)


def of_report(exercise: CudaExercise, report: Report) -> Failure:
    """A failure told by the emulator: a plain sentence, the learner's line, the report cut short."""
    name = exercise.entry
    first, *rest = report.text.splitlines() or [""]
    why = ""
    if report.rule == "deadlock":
        sentence = f"{name} never ends: threads wait, and nothing is left that could wake them."
        why = rest[-1].strip() if rest else ""
        rest = waiting_table(report.waits) or rest[:-1]
    elif report.rule == "runaway":
        sentence = f"{name} was still running after {exercise.step_budget:,} instructions: a loop that does not end?"
    else:
        found = _PLACE.match(first)
        plain, place = (found[1], found[2]) if found else (first, "")
        kind = "uses what the emulator cannot run" if report.rule.startswith("ptx") else "broke a rule"
        sentence = f"{name} {kind}. {plain}{'' if plain.endswith(('.', '?')) else '.'}"
        rest = [place, *rest] if place else rest
    shown = [line.strip()[:_WIDTH] for line in rest if line.strip()]
    if len(shown) > _SHOWN_LINES:
        shown[_SHOWN_LINES:] = [f"… and {len(shown) - _SHOWN_LINES} more lines"]
    lines = (f"line {report.line}: {report.code}",) if report.line else ()
    return Failure(report.rule, sentence, why, lines=lines, report=tuple(shown), comparable=True)


def waiting_table(waits: Sequence[Mapping[str, Any]]) -> list[str]:
    """A deadlock's table in short: one line for all warps of a CTA that wait for the same.

    >>> waiting_table([{"cta": 0, "warp": w, "kind": "mbarrier", "object": "full", "parity": 0, "phase": 0,
    ...                 "pending": 0, "expected": 1, "tx": 16, "line": 14} for w in (0, 1)])
    ['warps 0, 1 wait at line 14 for full, parity 0: all arrived, 16 bytes still to come']
    """
    ctas = {row.get("cta") for row in waits}
    who: dict[tuple[int, str], list[int]] = {}
    for row in waits:
        place = f" at line {row['line']}" if row.get("line") else ""
        who.setdefault((int(row.get("cta", 0)), f"{place} for {_awaited(row)}"), []).append(int(row.get("warp", 0)))
    lines = []
    for (cta, what), warps in who.items():
        several = len(warps) > 1
        names = ", ".join(map(str, dict.fromkeys(warps))) if len(warps) <= 8 else f"{warps[0]} to {warps[-1]}"
        subject = f"{'warps' if several else 'warp'} {names}" + (f" of CTA {cta}" if len(ctas) > 1 else "")
        lines.append(f"{subject} wait{'' if several else 's'}{what}")
    return lines


def _awaited(row: Mapping[str, Any]) -> str:
    kind = row.get("kind")
    if kind == "barrier":
        number = row.get("object")
        name = "__syncthreads()" if number == "0" else f"named barrier {number}"
        return f"{name}: {row.get('pending')} of {row.get('expected')} threads have not come"
    if kind != "mbarrier":
        other = {"cluster": "the cluster's barrier", "warp": "lanes of its own warp", "copies": "its own copies"}
        return other.get(str(kind), str(kind))
    pending, tx = int(row.get("pending", 0)), int(row.get("tx", 0))
    arrived = f"{pending} of {row.get('expected')} arrivals missing" if pending else "all arrived"
    owed = f", {tx:,} bytes still to come" if tx > 0 else f", {-tx:,} bytes came unannounced" if tx < 0 else ""
    return f"{row.get('object')}, parity {row.get('parity')}: {arrived}{owed}"
