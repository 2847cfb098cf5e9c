"""`Module`: compiled kernels as PTX text and, for a GPU, as CUBIN."""

from __future__ import annotations

import difflib
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mlacademy.gpu import nvrtc
from mlacademy.gpu.errors import CompilerMissing, Diagnostic
from mlacademy.gpu.kernel import Kernel, entries
from mlacademy.gpu.resources import Resources
from mlacademy.gpu.signature import signatures

_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^\s*\.section\s+\.text\.(?P<name>[\w$.]+)", re.MULTILINE)


class Module:
    """Kernels compiled together.

    Attributes:
        ptx: the PTX text.
        name: the source's name, as messages show it.
        source: the CUDA source, or "" for PTX that came from elsewhere.
        warnings: what the compiler remarked on.
        resources: registers and shared memory of each kernel, by symbol; empty for PTX that was not assembled here.
        origin: ``compiled``, ``cache`` or ``shipped`` (PTX that came with the package), or ``ptx``.

    ``module["scale"]`` is the kernel of that name; mangled and full demangled names work too.
    """

    def __init__(
        self,
        ptx: str,
        *,
        name: str = "module.ptx",
        source: str = "",
        cubin: bytes = b"",
        warnings: tuple[Diagnostic, ...] = (),
        resources: Mapping[str, Resources] | None = None,
        origin: str = "ptx",
    ) -> None:
        target = _TARGET.search(ptx)
        if target is None:
            raise ValueError(f"{name} is not PTX: it has no .target line")
        self.ptx = ptx
        self.arch = target.group(1)
        self.name = name
        self.source = source
        self.warnings = warnings
        self.origin = origin
        self.resources = dict(resources or {})
        self._cubin = cubin

    @classmethod
    def from_ptx(cls, text: str, *, name: str = "module.ptx") -> Module:
        """The kernels of PTX text from anywhere. Raises ``ValueError`` for text that is not PTX."""
        return cls(text, name=name)

    @functools.cached_property
    def kernels(self) -> dict[str, str]:
        """The symbol of each kernel in PTX → its readable name."""
        return {name: kernel.demangled for name, kernel in self._kernels.items()}

    @functools.cached_property
    def _kernels(self) -> dict[str, Kernel]:
        return entries(self.ptx, signatures(self.source) if self.source else {}, self)

    def __getitem__(self, name: str) -> Kernel:
        """The kernel called ``name``; ``KeyError`` where there is none or where several share the name."""
        if name in self._kernels:
            return self._kernels[name]
        fits = [kernel for kernel in self._kernels.values() if name in (kernel.demangled, kernel.base_name)]
        if len(fits) == 1:
            return fits[0]
        if fits:
            choices = ", ".join(kernel.demangled for kernel in fits)
            raise KeyError(f"{self.name} has {len(fits)} kernels called {name!r}: say which of {choices}")
        names = [kernel.base_name for kernel in self._kernels.values()]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names) or 'none at all'}"
        raise KeyError(f"{self.name} has no kernel {name!r}: {hint}")

    def __repr__(self) -> str:
        return f"<Module {self.name} for {self.arch}: {', '.join(self.kernels.values()) or 'no kernels'}>"

    @property
    def assembled(self) -> bool:
        """Whether the machine code is at hand without assembling anything."""
        return bool(self._cubin)

    def cubin(self) -> bytes:
        """The machine code for ``arch``.

        NVRTC makes it together with the PTX; PTX that came without source is assembled by ``ptxas`` where a CUDA
        toolkit is installed. Raises ``CompilerMissing`` where neither is there, ``ValueError`` for PTX that does not
        assemble.
        """
        if not self._cubin:
            self._cubin = _assemble(self.ptx, self.arch, self.name)
        return self._cubin

    def sass(self, kernel: str | None = None) -> str:
        """The machine code disassembled, of one kernel or of all.

        Raises ``CompilerMissing`` where NVIDIA's disassembler is not installed, ``KeyError`` for an unknown kernel.
        """
        program = nvrtc.tool("nvdisasm")
        if program is None:
            raise CompilerMissing(f"nvdisasm, NVIDIA's disassembler, is not installed: {nvrtc.INSTALL}")
        symbol = self[kernel].name if kernel else None
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(self.cubin())
            done = subprocess.run([str(program), "-c", str(file)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"nvdisasm cannot read the machine code of {self.name}: {done.stderr.strip()}")
        return done.stdout if symbol is None else _section(done.stdout, symbol)


def _section(listing: str, symbol: str) -> str:
    starts = [(found.start(), found["name"]) for found in _FUNCTION.finditer(listing)]
    for index, (start, name) in enumerate(starts):
        if name == symbol:
            stop = starts[index + 1][0] if index + 1 < len(starts) else len(listing)
            return listing[start:stop].rstrip() + "\n"
    raise KeyError(f"the machine code has no section for {symbol}")


def _assemble(ptx: str, arch: str, name: str) -> bytes:
    program = nvrtc.tool("ptxas") or shutil.which("ptxas")
    if program is None:
        raise CompilerMissing(
            f"{name} came as PTX, and making machine code of it takes ptxas, which a CUDA toolkit brings; "
            "a GPU runs it without: its driver assembles PTX itself"
        )
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        file.write_text(ptx, encoding="utf-8")
        command = [str(program), f"-arch={arch}", str(file), "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"ptxas does not take {name}: {done.stderr.strip().replace(str(file), name)}")
        return out.read_bytes()
