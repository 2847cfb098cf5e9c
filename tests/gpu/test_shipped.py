"""The PTX that ships with the package: it is what the sources give, and it is used where there is no compiler."""

from __future__ import annotations

from pathlib import Path

import kernels_ptx
import pytest

from mlacademy import gpu
from mlacademy.gpu import CompilerMissing
from mlacademy.gpu.compiler import fingerprint
from mlacademy.gpu.includes import header_layer
from mlacademy.gpu.shipped import FOLDER, file_name, opcodes, shipped_ptx

KERNELS = kernels_ptx.sources()


def test_files_and_cells_of_lessons_are_shipped() -> None:
    assert isinstance(KERNELS["bulk_copy.cu"], Path)
    assert "__global__ void first_copy" in str(KERNELS["first_copy.cu"])


def test_only_strings_with_a_kernel_are_taken_from_a_cell() -> None:
    cell = 'a = r"""__global__ void k() {}"""\nb = "text"\nc = 3\nd = f(a)\n'
    assert list(kernels_ptx.kernels_in(cell)) == ["a"]


@pytest.mark.parametrize("name", KERNELS)
def test_shipped_ptx_belongs_to_the_present_source(name: str) -> None:
    ptx = shipped_ptx(name, fingerprint(KERNELS[name], arch="sm_90a", name=name))
    assert ptx is not None, "the sources have changed: python scripts/kernels_ptx.py"


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_compiling_now_gives_the_instructions_that_are_shipped(name: str) -> None:
    shipped = shipped_ptx(name, fingerprint(KERNELS[name], arch="sm_90a", name=name))
    assert shipped is not None
    assert opcodes(gpu.compile(KERNELS[name], name=name).ptx) == opcodes(shipped)


def test_nothing_is_shipped_for_kernels_that_are_gone() -> None:
    assert {path.name for path in FOLDER.glob("*")} == {file_name(name, "sm_90a") for name in KERNELS}


def test_shipped_ptx_names_no_folder() -> None:
    for path in FOLDER.glob("*.ptx"):
        files = [line.split('"')[1] for line in path.read_text().splitlines() if line.lstrip().startswith(".file")]
        assert files
        assert all("/" not in name for name in files)


def test_unmodified_kernel_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NVRTC", "0")
    module = gpu.compile("wgmma_tile.cu")
    assert module.origin == "shipped"
    assert [param.name for param in module["wgmma_tile"].params] == ["a_map", "b_map", "c", "m", "n", "k"]


def test_changed_kernel_needs_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NVRTC", "0")
    file = tmp_path / "bulk_copy.cu"
    file.write_text((header_layer() / "bulk_copy.cu").read_text().replace("kStages = 4", "kStages = 3"))
    with pytest.raises(CompilerMissing):
        gpu.compile(file)


def test_opcodes_leave_out_operands_guards_labels_and_comments() -> None:
    loop = "$L__BB0_2:\n\t@%p1 bra $L__BB0_1; // back\n"
    text = loop + "\tmov.u32 \t%r1, 5;\n{\n.reg .pred p;\nadd.s32 %r2, %r1, 1;\n}\nret;"
    assert opcodes(text) == ["bra", "mov.u32", "add.s32", "ret"]
