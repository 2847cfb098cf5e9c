"""Examine a CUDA answer: compile it apart, run it under several schedules, find what went wrong first.

The text is compiled in the worker, never in this process, and the PTX is kept, so that a second check of the same text
does not compile again. Another runner then launches it on every case. On a GPU a process of its own does the same.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from mlacademy.gpu import Device, nvrtc
from mlacademy.gpu.disk_cache import DiskCache, Entry
from mlacademy.gpu.includes import header_layer
from mlacademy.grading import cuda_failures, cuda_source, failures
from mlacademy.grading.cuda_exercise import CudaExercise, KernelMistake, Report
from mlacademy.grading.cuda_gpu import GpuHangs, GpuMissing, run_on_gpu
from mlacademy.grading.cuda_run import CompileAnswer, RunAnswer
from mlacademy.grading.exercise import Misconception
from mlacademy.grading.failures import Failure
from mlacademy.grading.outcomes import Outcome, Prepared, difference, inputs_of, prepare, recognise
from mlacademy.grading.process import Job, Reply, Worker
from mlacademy.grading.wire import WireError, decode

COMPILE_SECONDS = 20.0
PRELOAD = ["mlacademy.grading.cuda_run", "mlacademy._emulator", "cuda.bindings.nvrtc"]
ON_GPU = "on the GPU"


@dataclass(frozen=True)
class Examined:
    """What came of an answer. ``failure`` is None for a right one; ``known`` is the mistake that explains it;
    ``outcome`` the case and ``how`` the schedule that it failed under (none where it did not get as far as running)."""

    cases: int = 0
    runs: int = 0
    failure: Failure | None = None
    known: Misconception | None = None
    outcome: Outcome | None = None
    how: str = ""
    reply: Reply | None = None


@dataclass(frozen=True)
class _Wrong:
    """One run that went wrong."""

    outcome: Outcome
    how: str
    report: Report | None = None


def examine(exercise: CudaExercise, text: Any, streams: Sequence[str], worker: Worker, device: str) -> Examined:
    """Compile the answer ``text`` and run it on the cases of ``streams``, on the ``emulator`` or with ``cuda``."""
    refusal = cuda_source.refusal(exercise, text)
    if refusal is not None:
        return Examined(failure=refusal)
    obstacle = Device.obstacles()[device]
    if obstacle is not None:
        place = "a GPU" if device == "cuda" else "the emulator"
        return Examined(failure=Failure("device", f"{exercise.entry} cannot run on {place} here: {obstacle}."))
    ptx = _compiled(exercise, text, worker)
    if isinstance(ptx, Failure):
        return Examined(failure=ptx)
    prepared = [(item, stream != "visible") for stream in streams for item in prepare(exercise, stream)]
    runs = exercise.runs if device == "emulator" else exercise.runs[:1]
    answer = RunAnswer(
        ptx, text, exercise.entry, exercise.kernel_name, exercise.arch, runs, exercise.step_budget, device
    )
    launches = [exercise.launch(**inputs_of(item.case, item.pickled)) for item, _ in prepared]
    reply = None
    if device == "emulator":
        reply = worker.run(_job(exercise, answer, launches))
        results = _results(exercise, reply, len(prepared))
    else:
        try:
            results = list(run_on_gpu(answer, launches, exercise.seconds))
        except (GpuMissing, GpuHangs) as error:
            if isinstance(error, GpuMissing):
                return Examined(failure=Failure("device", f"{exercise.entry} cannot run on the GPU: {error}."))
            why = "The same check without device= runs it on the emulator, which says who waits for what."
            return Examined(failure=Failure("timeout", f"{exercise.entry}: {error}.", why))
    wrong: list[_Wrong] = []
    for (item, hidden), result in zip(prepared, results, strict=True):
        wrong = _of_case(exercise, item, hidden, result, answer)
        if wrong:
            break
    done = Examined(cases=len(prepared), runs=len(runs), reply=reply)
    if wrong:
        return _tell(exercise, wrong, done)
    missing = next((says for pattern, says in exercise.uses.items() if not re.search(pattern, ptx)), None)
    return done if missing is None else replace(done, failure=Failure("unused", missing, hints=exercise.hints))


def text_of(exercise: CudaExercise, reply: Reply) -> Any:
    """The answer's text as the worker found it in a notebook's cells, or why there is none."""
    for message, buffers in reply.messages:
        if message.get("case") == 0 and message.get("m") == "result":
            try:
                return decode(message.get("value") or {}, buffers)
            except WireError as error:
                return failures.malformed(exercise, str(error))
    return failures.of_end(exercise, reply) or failures.lost(exercise)


def _compiled(exercise: CudaExercise, text: str, worker: Worker) -> str | Failure:
    """The answer's PTX, from the cache or from the compiler in the worker."""
    compiler = nvrtc.identity()
    if compiler is None:
        return Failure("compiler", f"{exercise.entry} cannot be compiled here: {nvrtc.missing_sentence()}.")
    headers = sorted((path.name, path.read_bytes()) for path in header_layer().glob("*.cuh"))
    parts = [compiler, exercise.arch, exercise.entry, text, *map(repr, headers)]
    key = "answer-" + hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    store = DiskCache()
    kept = store.get(key)
    if kept is not None:
        return kept.ptx
    job = Job(
        answer=pickle.dumps(CompileAnswer(exercise.entry, exercise.arch)),
        calls=[pickle.dumps([text])],
        preload=PRELOAD,
        path=_path(),
        call_seconds=COMPILE_SECONDS,
        total_seconds=COMPILE_SECONDS,
    )
    reply = worker.run(job)
    result = _results(exercise, reply, 1)[0]
    if isinstance(result, Failure):
        again = result.kind in ("timeout", "crash", "memory", "raised")
        sentence = f"The compiler did not get through {exercise.entry}: {result.sentence}"
        return Failure("compile", sentence) if again else result
    if "missing" in result:
        return Failure("compiler", f"{exercise.entry} cannot be compiled here: {result['missing']}.")
    if "ptx" not in result:
        return cuda_failures.does_not_compile(exercise, result.get("errors") or [], str(result.get("log")))
    ptx = str(result["ptx"])
    store.put(key, Entry(ptx, b""))
    return ptx


def _path() -> list[str]:
    return [os.path.abspath(folder) for folder in sys.path]


def _job(exercise: CudaExercise, answer: RunAnswer, launches: Sequence[Any]) -> Job:
    return Job(
        answer=pickle.dumps(answer),
        calls=[cloudpickle.dumps([launch]) for launch in launches],
        preload=PRELOAD,
        path=_path(),
        call_seconds=exercise.seconds,
        total_seconds=4 * exercise.seconds,
    )


def _results(exercise: CudaExercise, reply: Reply, cases: int) -> list[Any]:
    """What the runner said of each case: plain data, or a ``Failure`` where it said nothing."""
    ended = failures.of_end(exercise, reply)
    results: list[Any] = [ended or failures.lost(exercise)] * cases
    for message, buffers in reply.messages:
        case = message.get("case")
        if isinstance(case, int) and 0 <= case < cases:
            failure = failures.of_message(exercise, message, None)
            try:
                results[case] = failure or decode(message.get("value") or {}, buffers)
            except WireError as error:
                results[case] = failures.malformed(exercise, str(error))
    return results


def _of_case(exercise: CudaExercise, item: Prepared, hidden: bool, results: Any, answer: RunAnswer) -> list[_Wrong]:
    """The runs of one case that went wrong."""
    if isinstance(results, Failure):
        return [_Wrong(Outcome(item.case, hidden, item.expected, None, results), "")]
    wrong = []
    for run, result in zip(answer.runs, results, strict=False):
        how = str(run) if answer.device == "emulator" else ON_GPU
        failure, got, report = None, None, None
        if "refused" in result:
            failure = cuda_failures.refused(exercise, str(result["refused"]))
        elif "report" in result:
            report = cuda_failures.report_of(result["report"], answer.source, answer.name)
            failure = cuda_failures.of_report(exercise, report)
        elif result["overrun"]:
            failure = cuda_failures.overrun(exercise)
        else:
            outputs = result["outputs"]
            got = outputs[0] if len(outputs) == 1 else tuple(outputs)
            found = difference(exercise, item.case, item.expected, got)
            failure = failures.of_difference(exercise, found) if found else None
        if failure is not None:
            wrong.append(_Wrong(Outcome(item.case, hidden, item.expected, got, failure), how, report))
    return wrong


def _tell(exercise: CudaExercise, wrong: Sequence[_Wrong], done: Examined) -> Examined:
    """Which of a case's wrong runs to tell: the one whose mistake is known by the emulator's report, then the one known
    by its values, then the first report, then the first of all."""
    told, known = wrong[0], None
    for one in wrong:
        if one.report is not None and (known := _by_sign(exercise, one.report)) is not None:
            told = one
            break
    if known is None:
        values = [one for one in wrong if one.report is None and one.outcome.failure and one.outcome.failure.comparable]
        for one in values:
            if (known := recognise(exercise, [one.outcome])) is not None:
                told = one
                break
        else:
            told = next((one for one in wrong if one.report is not None), told)
    return replace(done, failure=told.outcome.failure, known=known, outcome=told.outcome, how=told.how)


def _by_sign(exercise: CudaExercise, report: Report) -> Misconception | None:
    mistakes = (known for known in exercise.misconceptions if isinstance(known, KernelMistake))
    return next((known for known in mistakes if any(sign.fits(report) for sign in known.signs)), None)
