"""CUDA answers through the real engine: right and wrong kernels, hostile text, the story that each verdict tells."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlacademy import notebooks
from mlacademy.gpu import LaunchPlan, nvrtc
from mlacademy.grading import (
    Box,
    Case,
    CudaExercise,
    Exact,
    KernelMistake,
    Launch,
    Out,
    Run,
    Sign,
    assignments,
    cuda_judge,
    cuda_run,
    judges,
    sandbox,
    session,
    stuck,
)
from mlacademy.grading.cuda_gpu import GpuHangs, GpuMissing
from mlacademy.grading.judge import judge
from mlacademy.grading.process import Worker
from mlacademy.grading.submissions import judge_notebook

pytestmark = pytest.mark.skipif(nvrtc.identity() is None, reason="no NVRTC")
HINTS = ("first", "second", "third")

FRAME = """
#include "bulk.cuh"
#include "fence.cuh"
using namespace mla;
extern "C" __global__ void copy(const float* source, float* target, uint32_t bytes) {
    __shared__ alignas(128) float tile[64];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) { mbarrier_init(&full, 1); fence_mbarrier_init(); }
    __syncthreads();
    if (threadIdx.x == 0) {
        %s
    }
    mbarrier_wait_parity(&full, 0);
    if (4 * threadIdx.x < bytes) target[threadIdx.x] = tile[threadIdx.x];
}
"""
RIGHT = "mbarrier_arrive_expect_tx(&full, bytes); cp_async_bulk_shared_global(tile, source, bytes, &full);"


def kernel(body: str = RIGHT) -> str:
    return FRAME % body


def cases(rng: np.random.Generator, hidden: bool) -> Iterator[Case]:
    for size in (64, 20) if not hidden else (4, 48):
        yield Case({"source": rng.standard_normal(size).astype(np.float32)}, "some floats", (("element",),))


def make(**changes: Any) -> CudaExercise:
    fields: dict[str, Any] = {
        "id": "99.2",
        "title": "Copy",
        "entry": "copy",
        "points": 3,
        "lines": 2,
        "parameters": ("source",),
        "outputs": ("target",),
        "cases": cases,
        "reference": lambda source: source.copy(),
        "compare": Exact(),
        "launch": lambda source: Launch(LaunchPlan(grid=1, block=64), (source, Out(source.shape), source.nbytes)),
        "misconceptions": (
            KernelMistake("silent", "Nobody announced the bytes.", HINTS, signs=(stuck("full", tx="unannounced"),)),
            KernelMistake("twice", "You doubled the values.", HINTS, model=lambda source: 2 * source),
            KernelMistake("outside", "You wrote beyond the end.", HINTS, signs=(Sign("bounds"),)),
        ),
        "hints": HINTS,
    }
    return CudaExercise(**{**fields, **changes})


@pytest.fixture(scope="module")
def exercise() -> CudaExercise:
    return make()


def test_right_kernel_passes_on_every_stream(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel(), streams=("visible", "hidden", "regrade"))
    assert verdict, str(verdict)
    assert verdict.points == 3
    assert verdict.summary == "Right on 6 cases in 5 schedules."


def test_mistake_is_known_by_the_emulators_report(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel("cp_async_bulk_shared_global(tile, source, bytes, &full);"))
    assert (verdict.state, verdict.kind, verdict.reason) == ("failed", "silent", "Nobody announced the bytes.")
    assert verdict.summary.startswith("copy never ends: threads wait")
    assert verdict.lines == ("line 13: mbarrier_wait_parity(&full, 0);",)
    assert verdict.report == (
        "warps 0, 1 wait at line 13 for full, parity 0: 1 of 1 arrivals missing, 256 bytes came unannounced",
    )
    assert "some floats; source = an array of shape [64] (float32); copies complete at once" in verdict.case


def test_mistake_is_known_by_its_values(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel().replace("= tile[threadIdx.x]", "= 2 * tile[threadIdx.x]"))
    assert (verdict.kind, verdict.reason) == ("twice", "You doubled the values.")
    assert verdict.summary.startswith("target[element 0] is ")


def test_poison_shows_where_nothing_was_written(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel().replace("4 * threadIdx.x < bytes", "4 * threadIdx.x + 4 < bytes"))
    assert verdict.kind == "nan"
    assert "target[element 63] is nan" in verdict.summary
    assert "1 of 64 numbers differ" in verdict.summary


def test_store_beyond_the_end_names_the_buffer(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel().replace("if (4 * threadIdx.x < bytes) target", "target"))
    assert (verdict.state, verdict.kind) == ("failed", "outside")
    assert "past the end of 'target', which has 80 bytes" in verdict.summary


def test_writing_an_input_is_refused_by_the_emulator(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel(RIGHT + " const_cast<float*>(source)[0] = 1;"))
    assert not verdict
    assert "source" in verdict.summary


def test_compile_error_is_a_verdict_with_the_learners_own_line(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel("mbarrier_arive(&full);"))
    assert (verdict.state, verdict.kind) == ("failed", "compile")
    assert verdict.summary == 'copy does not compile: line 11: identifier "mbarrier_arive" is undefined.'
    assert verdict.lines[0] == "11 |         mbarrier_arive(&full);"
    assert verdict.lines[1].index("^") == verdict.lines[0].index("mbarrier_arive")


def test_error_inside_a_header_names_the_header(exercise: CudaExercise) -> None:
    verdict = judge(exercise, "\n#define uint32_t unsigned(\n" + kernel())
    assert verdict.kind == "compile"
    assert "base.cuh, line " in verdict.summary


def test_assembler_error_is_found_in_the_learners_line(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel('asm volatile("mbarrier.nonsense;");'))
    assert verdict.kind == "compile"
    assert "line 11" in verdict.summary


SILENT = "cp_async_bulk_shared_global(tile, source, bytes, &full);"


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("for (;;) __threadfence();", "runaway", "still running after 2,000,000 instructions"),
        ('for (;;) printf("%d\\n", 7);', "runaway", "still running after"),
        (f'printf("passed: 3 of 3 points\\n"); {SILENT}', "silent", "never ends"),
        ('asm volatile("trap;");', "trap", "broke a rule"),
        ('asm volatile("exit;");', "deadlock", "never ends"),
        ("__nanosleep(4000000000u);", "deadlock", "never ends"),
        ("*reinterpret_cast<int*>(8) = 1;", "outside", "broke a rule"),
        ("tile[70000] = 1;", "outside", "broke a rule"),
        ('\n#error "no thanks"\n', "compile", "no thanks"),
    ],
)
def test_hostile_body_becomes_a_verdict(exercise: CudaExercise, body: str, kind: str, says: str) -> None:
    verdict = judge(exercise, kernel(body))
    assert (verdict.state, verdict.points, verdict.kind) == ("failed", 0, kind)
    assert says in str(verdict)


def test_what_a_kernel_prints_is_shown_and_decides_nothing(exercise: CudaExercise) -> None:
    verdict = judge(exercise, kernel(RIGHT + ' printf("not right\\n");'))
    assert verdict
    assert verdict.printed.startswith("not right")


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/passwd"',
        "#include </etc/passwd>",
        '#include "../../pyproject.toml"',
        '#include "..//..//LICENSE"',
        '  #  include\t"/etc/passwd"',
        '#/**/include "/etc/passwd"',
        '#inc\\\nlude "/etc/passwd"',
        '%:include "/etc/passwd"',
        '??=include "/etc/passwd"',
        '#define NAME "/etc/passwd"\n#include NAME',
        '#include_next "base.cuh"',
        '#import "base.cuh"',
        "#include <nowhere.h>",
    ],
)
def test_include_of_other_files_is_refused_before_compiling(
    exercise: CudaExercise, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_judge, "_compiled", lambda *_: pytest.fail("was compiled"))
    verdict = judge(exercise, line + kernel())
    assert (verdict.state, verdict.kind) == ("failed", "include")
    assert "root:" not in str(verdict)


@pytest.mark.parametrize("line", ['#include "cluster.cuh"', "#include <cuda_fp16.h>", '// #include "/etc/passwd"'])
def test_headers_of_the_course_and_of_nvidia_may_be_included(exercise: CudaExercise, line: str) -> None:
    assert judge(exercise, line + "\n" + kernel())


def test_header_beside_the_notebook_does_not_replace_the_courses(
    exercise: CudaExercise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bulk.cuh").write_text("#error from here\n")
    monkeypatch.chdir(tmp_path)
    worker = Worker()
    try:
        assert judge(exercise, kernel() + "// beside\n", worker=worker)
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("answer", "state", "says"),
    [
        (None, "unanswered", "not answered yet"),
        (..., "unanswered", "not answered yet"),
        ("", "unanswered", "is empty"),
        ("// nothing\n", "unanswered", "is empty"),
        (kernel('\n#error "99.2 is not answered yet"\n'), "unanswered", "about 2 lines are missing"),
        (7, "failed", "expected the CUDA source as text"),
        (len, "failed", "is a function; expected the CUDA source"),
        ("x" * 200_000, "failed", "200,000 characters"),
        ("\0", "failed", "zero byte"),
        ("int x;", "failed", "does not compile: line 1"),
        (kernel().replace("void copy", "void other"), "failed", "has no kernel 'copy': it has other"),
        (kernel().replace(", uint32_t bytes", "").replace("bytes", "64"), "failed", "takes 2 arguments"),
        (kernel().replace('"C" __global__', '"C" __global__ __launch_bounds__(32)'), "failed", "at most 32 threads"),
    ],
)
def test_what_is_no_kernel_is_said_plainly(exercise: CudaExercise, answer: Any, state: str, says: str) -> None:
    verdict = judge(exercise, answer)
    assert verdict.state == state
    assert says in str(verdict)


def test_second_check_does_not_compile_again(exercise: CudaExercise, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MLACADEMY_CACHE", str(tmp_path))
    text = kernel() + "// once\n"
    assert judge(exercise, text)
    monkeypatch.setattr(cuda_judge, "CompileAnswer", lambda *_: pytest.fail("compiled again"))
    assert judge(exercise, text)


def test_machine_without_compiler_is_told_so_and_nothing_is_recorded(
    exercise: CudaExercise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLACADEMY_NVRTC", "0")
    verdict = judge(exercise, kernel())
    assert verdict.state == "not run"
    assert verdict.heading == "99.2 Copy: cannot be run here"
    assert "NVRTC, the CUDA compiler, is not installed" in verdict.summary
    recorded = session.board.read(session.board.progress_file())
    session.board.record(verdict)
    assert session.board.read(session.board.progress_file()) == recorded


def test_gpu_is_used_where_asked_for(exercise: CudaExercise, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that drives a GPU, here with the emulator in the GPU's place."""
    monkeypatch.setattr(cuda_judge.Device, "obstacles", staticmethod(lambda: {"cuda": None, "emulator": None}))

    def on_emulator(answer: Any, launches: Any, seconds: float) -> Any:
        return run(replace(answer, device="emulator"), launches, seconds)

    run = cuda_judge.run_on_gpu
    monkeypatch.setattr(cuda_judge, "run_on_gpu", on_emulator)
    verdict = judge(exercise, kernel(), device="cuda")
    assert verdict.summary == "Right on 2 cases on the GPU; the hidden test tries others."
    wrong = judge(exercise, kernel().replace("= tile", "= 2 * tile"), device="cuda")
    assert (wrong.kind, wrong.case.split("; ")[-1]) == ("twice", "on the GPU")


@pytest.mark.parametrize(
    ("error", "state", "says"),
    [
        (GpuMissing("there is no driver"), "not run", "cannot run on the GPU: there is no driver."),
        (GpuHangs("the kernel had not ended after 5 s"), "failed", "without device= runs it on the emulator"),
    ],
)
def test_gpu_that_fails_is_told_in_one_sentence(
    exercise: CudaExercise, monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, says: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(cuda_judge.Device, "obstacles", staticmethod(lambda: {"cuda": None, "emulator": None}))
    monkeypatch.setattr(cuda_judge, "run_on_gpu", refuse)
    verdict = judge(exercise, kernel(), device="cuda")
    assert verdict.state == state
    assert says in str(verdict)


def test_gpu_of_another_generation_is_told_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(arch="sm_80", kind="cuda")
    monkeypatch.setattr(cuda_run.gpu, "Device", lambda *_, **__: other)
    answer = cuda_run.RunAnswer("", "", "copy", "copy", "sm_90a", (Run("eager"),), 1, "cuda")
    with pytest.raises(RuntimeError, match="the exercise is for sm_90a, this GPU is sm_80"):
        answer(Launch(LaunchPlan(grid=1, block=32), ()))


def test_hints_follow_what_the_report_showed(exercise: CudaExercise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "exercise", lambda name: exercise)
    monkeypatch.setenv("MLACADEMY_PROGRESS", "off")
    session.check("99.2", kernel(SILENT))
    assert session.hint("99.2").about == "Nobody announced the bytes."


def test_check_knows_its_devices(exercise: CudaExercise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "exercise", lambda name: exercise)
    assert session.check("99.2", kernel())
    with pytest.raises(ValueError, match=r"device must be 'emulator' or 'cuda' for exercise 99.2, got 'tpu'"):
        session.check("99.2", kernel(), device="tpu")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"device must be 'emulator' for exercise 02.1, got 'cuda'"):
        session.check("02.1", 3, device="cuda")


def test_right_values_by_another_way_are_told_so() -> None:
    by_hand = kernel("mbarrier_arrive(&full);").replace("= tile[threadIdx.x]", "= source[threadIdx.x]")
    ring = make(uses={r"cp\.async\.bulk": "It copies, but not in bulk."})
    assert judge(ring, kernel())
    verdict = judge(ring, by_hand + "// cp.async.bulk\n")
    assert (verdict.state, verdict.points, verdict.kind) == ("failed", 0, "unused")
    assert verdict.summary == "It copies, but not in bulk."
    assert verdict.hint == "first"


def test_hidden_test_says_one_sentence(exercise: CudaExercise, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(judges, "exercise", lambda name: exercise)
    monkeypatch.setattr(session, "namespace", lambda: {"copy": kernel("if (bytes != 16) {" + RIGHT + "}")})
    assert session.hidden("99.2") == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed.startswith("Exercise 99.2: 0 of 3 points: not right for some floats.")


@pytest.mark.skipif(not sandbox.available(), reason="no bubblewrap")
def test_kernel_is_judged_behind_the_wall_of_a_class(exercise: CudaExercise) -> None:
    worker = Worker(sandbox.worker_prefix())
    try:
        assert judge(exercise, kernel() + "// walled\n", worker=worker)
        assert not judge(exercise, kernel(SILENT) + "// walled\n", worker=worker)
    finally:
        worker.close()


def test_notebook_file_is_judged_by_the_text_in_its_cells(exercise: CudaExercise) -> None:
    text = kernel().replace("if (4 *", "bool far =\n!(4 *").replace(") target", ");\n    if (!far) target")
    source = f'copy = r"""{text}"""'
    cells = [{"cell_type": "code", "id": "99-2-answer", "metadata": {}, "source": source}]
    notebook: notebooks.Notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    verdict = judge_notebook(notebook, exercise, streams=("visible", "hidden"))
    assert verdict, str(verdict)
    cells[0]["source"] = "copy = 3"
    assert "expected the CUDA source as text" in judge_notebook(notebook, exercise, streams=("visible",)).summary
    cells[0]["source"] = "other = 3"
    assert judge_notebook(notebook, exercise, streams=("visible",)).state == "unanswered"


def test_blank_of_a_kernel_compiles_to_unanswered(exercise: CudaExercise) -> None:
    source = textwrap.dedent(
        '''\
        copy = r"""
        extern "C" __global__ void copy(const float* source, float* target, uint32_t bytes) {
            // ### BEGIN SOLUTION
            target[0] = 1;
            // ### END SOLUTION
        }
        """'''
    )
    blank = assignments.cut(source, exercise)
    assert "// YOUR CODE HERE: about 2 lines, in place of the next one." in blank
    assert "target[0] = 1" not in blank
    names: dict[str, str] = {}
    exec(blank, names)
    assert judge(exercise, names["copy"]).state == "unanswered"


def test_tensor_map_and_several_outputs_travel(exercise: CudaExercise) -> None:
    text = """
    #include "tma.cuh"
    extern "C" __global__ void copy(const __grid_constant__ CUtensorMap map, int* low, int* high) {
        if (threadIdx.x == 0) low[0] = 7, high[0] = 9, high[1] = static_cast<int>(blockIdx.x);
    }
    """
    two = make(
        outputs=("low", "high"),
        launch=lambda source: Launch(
            LaunchPlan(grid=1, block=32),
            (Box(source.reshape(1, -1), (1, 4), {"name": "source"}), Out((1,), np.int32), Out((2,), np.int32)),
        ),
        reference=lambda source: (np.array([7], np.int32), np.array([9, 0], np.int32)),
        runs=(Run("lazy"),),
    )
    assert judge(two, text)
    wrong = judge(two, text.replace("= 9", "= 8"))
    assert wrong.summary.startswith("high[0] is 8, expected 9")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cases": None, "reference": lambda: 0}, "a CUDA exercise has cases"),
        ({"forbids": ("mlacademy.fp8",)}, "neither parts, writes nor forbids"),
        ({"runs": ()}, "at least one run"),
    ],
)
def test_declaration_that_makes_no_sense_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(**changes)


def test_mistake_needs_evidence() -> None:
    with pytest.raises(ValueError, match="exactly one of model and when"):
        KernelMistake("x", "y", HINTS)
    with pytest.raises(ValueError, match="at most one beside its signs"):
        KernelMistake("x", "y", HINTS, model=lambda: 0, when=lambda *_: True, signs=(Sign("race"),))


def test_sign_may_look_into_the_answers_text_but_not_into_its_comments(exercise: CudaExercise) -> None:
    unfenced = kernel().replace("fence_mbarrier_init();", "/* careful */")
    rule = judge(exercise, unfenced).kind

    def told(**looks_for: str) -> str:
        mistake = KernelMistake("seen", "It stands there.", HINTS, signs=(Sign(rule, **looks_for),))
        return judge(replace(exercise, misconceptions=(mistake,)), unfenced).kind

    assert told(answer=r"mbarrier_init\(") == "seen"
    assert told(answer="careful") == rule
    assert told(lacks="careful") == "seen"
    assert told(lacks=r"mbarrier_init\(") == rule
