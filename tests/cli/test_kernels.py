"""`mlacademy kernels`: what it prints, and the one sentence of each failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlacademy import cli
from mlacademy.cli.kernels import what_works
from mlacademy.gpu import Device, nvrtc

needs_nvrtc = pytest.mark.skipif(nvrtc.identity() is None, reason=nvrtc.missing_sentence())


@pytest.fixture(autouse=True)
def cache_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_CACHE", str(tmp_path / "cache"))


def kernels(*arguments: str) -> int:
    return cli.main(["kernels", *arguments])


def test_list_names_kernels_and_says_what_works_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels("list") == 0
    shown = capsys.readouterr().out
    for line in (
        f"{'bulk_copy':<31} Copy memory through shared memory by bulk copies: the smallest complete pipeline.",
        f"{'cluster_sum':<31} Sum float32 values: each CTA sums a slice",
        f"{'wgmma_tile':<31} One warpgroup multiplies tiles",
        f"{'decode/schedule':<31} The tile scheduler of split decode",
        *what_works(),
    ):
        assert line in shown


def test_each_obstacle_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NVRTC", "0")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr(Device, "obstacles", staticmethod(lambda: {"emulator": "it is not built", "cuda": "no driver"}))
    compiling, emulating, on_gpu = what_works()
    assert compiling.startswith("NVRTC has no build for macOS")
    assert emulating == "No emulator: it is not built."
    assert on_gpu == "No GPU: no driver."


@needs_nvrtc
def test_compile_says_what_it_made_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "copy.ptx"
    assert kernels("compile", "bulk_copy", "-o", str(out)) == 0
    shown = capsys.readouterr().out
    assert "bulk_copy.cu for sm_90a: compiled in" in shown
    assert "  bulk_copy(uint8_t* source, uint8_t* target, uint64_t bytes); " in shown
    assert " registers, 16,512 bytes of static shared memory" in shown
    assert kernels("compile", "bulk_copy.cu", "--ptx") == 0
    assert capsys.readouterr().out == out.read_text()
    assert kernels("compile", "bulk_copy", "-o", str(tmp_path / "copy.cubin")) == 0
    assert (tmp_path / "copy.cubin").read_bytes().startswith(b"\x7fELF")
    assert "found in the cache" in capsys.readouterr().out


@needs_nvrtc
def test_compile_of_ones_own_file_shows_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.cu"
    file.write_text("__global__ void k(int* p) {\n  *p = q;\n}\n")
    assert kernels("compile", str(file)) == 1
    said = capsys.readouterr().err
    assert 'mine.cu, line 2: error: identifier "q" is undefined' in said
    assert said.strip().splitlines()[-1] == "mlacademy kernels: mine.cu does not compile for sm_90a"


@needs_nvrtc
def test_disassemble_prints_the_tensor_core_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    if nvrtc.tool("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed")
    assert kernels("disassemble", "wgmma_tile", "--kernel", "wgmma_tile") == 0
    shown = capsys.readouterr().out
    assert shown.count("HGMMA.64x64x16.F32.BF16") == 4
    assert "UTMALDG.2D" in shown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compile", "nothing"], "there is no file nothing and no kernel of that name: `mlacademy kernels list`"),
        (["compile", "bulk_copy", "--arch", "sm_1"], "arch must be sm_ and one of"),
        (["compile", "bulk_copy", "-o", "copy.txt"], "--output must end in .ptx or .cubin, got copy.txt"),
        (["run", "nothing"], "there is no kernel 'nothing' to run; there are bulk_copy, cluster_sum, wgmma_tile"),
        (["run", "bulk_copy", "--scale", "0"], "--scale must be at least 1; got 0"),
    ],
)
def test_wrong_use_ends_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kernels(*arguments) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("mlacademy kernels: ")
    assert sentence in line


@pytest.mark.parametrize("kind", ["emulator", "cuda"])
def test_run_compares_with_the_independent_answer_or_says_why_not(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    obstacle = Device.obstacles()[kind]
    status = kernels("run", "cluster_sum", "--device", kind)
    shown = capsys.readouterr()
    if obstacle:
        assert status == 1
        assert shown.err.strip() == f"mlacademy kernels: {obstacle}"
    else:
        assert status == 0
        assert "right: 3 values, largest error" in shown.out


def test_run_writes_a_timeline_and_says_who_waited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if Device.obstacles()["emulator"]:
        pytest.skip("the emulator is not built")
    target = tmp_path / "trace.json"
    assert kernels("run", "bulk_copy", "--trace", str(target)) == 0
    shown = capsys.readouterr().out
    assert "bulk_copy: " in shown
    assert " cycles modelled, 3 CTAs, 6 warps" in shown
    assert "consumer on full[0]" in shown
    assert target.stat().st_size > 1000
    assert kernels("run", "all", "--trace", str(target)) == 1
    assert "--trace is for one kernel on the emulator" in capsys.readouterr().err
