"""Mutants of the decode kernels: their sources with one mistake each, from the .toml files beside this one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlacademy import gpu
from mlacademy.gpu.disk_cache import DiskCache
from mlacademy.ops import plan

MISTAKES = Path(__file__).parent
SOURCES = Path(__file__).parents[3] / "kernels" / "cuda" / "decode"
ENTRY = re.compile(r'extern "C" __global__ .*?\b(?P<name>\w+)\(const __grid_constant__ .*?\n}\n', re.DOTALL)


@dataclass(frozen=True)
class Mutant:
    """One mistake: in `file`, the text `old`, which stands there once, becomes `new`.

    `entry`: part of the name of the kernels that are tried first. `survives`: why no case shows the mistake, or "".
    """

    kernel: str
    what: str
    old: str
    new: str
    file: str
    entry: str = ""
    survives: str = ""

    @property
    def name(self) -> str:
        return f"{self.kernel}: {self.what}"

    def occurrences(self) -> int:
        """How often `old` stands in the file; 1 is right."""
        return (SOURCES / self.file).read_text(encoding="utf-8").count(self.old)

    def texts(self) -> dict[str, str]:
        """The altered file by its name."""
        source = (SOURCES / self.file).read_text(encoding="utf-8")
        return {self.file: source.replace(self.old, self.new)}


def mutants(kernel: str) -> list[Mutant]:
    """The mutants of a source file, `sparse_decode.cu` say."""
    rows = tomllib.loads((MISTAKES / kernel).with_suffix(".toml").read_text(encoding="utf-8"))["mutant"]
    return [Mutant(kernel, **{"file": kernel, **row}) for row in rows]


@dataclass
class Build:
    """A source file with some texts altered; each kernel of it is compiled when it is asked for, by itself."""

    kernel: str
    altered: dict[str, str]
    cache: DiskCache | None = None
    made: dict[str, gpu.Kernel] = field(default_factory=dict)

    def __getitem__(self, name: str) -> gpu.Kernel:
        if name not in self.made:
            text = self.altered.get(self.kernel) or (SOURCES / self.kernel).read_text(encoding="utf-8")
            alone = ENTRY.sub(lambda entry: entry[0] if entry["name"] == name else "", text)
            headers = {file: text for file, text in self.altered.items() if file != self.kernel}
            module = gpu.compile(alone, name=self.kernel, headers=headers, folders=[SOURCES], cache=self.cache)
            self.made[name] = module[name]
        return self.made[name]


@contextmanager
def in_place(build: Build) -> Iterator[None]:
    """Inside the block operators launch the build's kernels, and all others as they are."""
    kept = plan.compiled
    plan.compiled = lambda source: build if source == build.kernel else kept(source)  # type: ignore[assignment]
    try:
        yield
    finally:
        plan.compiled = kept
