"""Run somebody else's notebook behind a wall: bubblewrap, no network, nothing writable, nothing of the class visible.

nbgrader runs notebooks in Jupyter kernels, so the wall is a kernel provisioner: it starts the kernel inside
bubblewrap and talks to it over sockets in a private folder. The second judging puts its worker behind the same wall.
Linux only; ``available()`` says whether this machine has it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

import mlacademy
from mlacademy.gpu.includes import header_layer

KERNEL = "mlacademy-sandbox"
MEMORY_MB = 8192
CPU_SECONDS = 600
PROCESSES = 512
MAX_OUTPUT = 1 << 20
"""How much a sandboxed notebook may print in all, in bytes."""


def available() -> bool:
    """Whether notebooks can be run behind the wall here."""
    return sys.platform == "linux" and shutil.which("bwrap") is not None and shutil.which("prlimit") is not None


def command(
    argv: Sequence[str],
    *,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    hide: Path | None = None,
    cwd: str = "/tmp",
) -> list[str]:
    """``argv`` in bubblewrap: its own processes, network and /tmp; the system, Python and this package read-only.

    ``read`` and ``write`` are further paths to show. ``hide`` is a package that appears empty.
    """
    package = Path(mlacademy.__file__).resolve().parent
    own = [package, header_layer()]  # a kernel's answer includes the course's headers
    visible = dict.fromkeys([Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), *own, *read])
    wall = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    wall += ["--hostname", "sandbox", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "bin"):
        wall += ["--symlink", f"usr/{name}", f"/{name}"]
    wall += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--proc", "/proc", "--dev", "/dev"]
    wall += ["--tmpfs", "/tmp", "--dir", "/tmp/home"]
    for path in visible:
        if not str(path).startswith("/usr/"):
            wall += ["--ro-bind", str(path), str(path)]
    for path in write:
        wall += ["--bind", str(path), str(path)]
    if hide is not None:  # py.typed is an empty file
        wall += ["--tmpfs", str(hide), "--ro-bind", str(package / "py.typed"), str(hide / "__init__.py")]
    environment = {
        "PATH": f"{sys.prefix}/bin:/usr/bin",
        "HOME": "/tmp/home",
        "LANG": "C.UTF-8",
        "IPYTHONDIR": "/tmp/home/ipython",
        "MPLCONFIGDIR": "/tmp/home",
        "MLACADEMY_PROGRESS": "off",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name, value in environment.items():
        wall += ["--setenv", name, value]
    limits = [f"--as={MEMORY_MB << 20}", f"--cpu={CPU_SECONDS}", f"--nproc={PROCESSES}", "--core=0"]
    return [*wall, "--chdir", cwd, "prlimit", *limits, "--", *argv]


def worker_prefix() -> list[str]:
    """What to put before the worker's command, so that answers see neither judges nor solutions."""
    return command([], hide=Path(mlacademy.__file__).resolve().parent / "grading" / "judges")


class SandboxProvisioner(LocalProvisioner):  # type: ignore[misc, unused-ignore]
    """Starts a Jupyter kernel inside the wall; its sockets lie in a private folder."""

    _folder: Path | None = None

    async def pre_launch(self, **arguments: Any) -> dict[str, Any]:
        manager = self.parent
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="mlacademy-kernel-"))
            manager.transport = "ipc"
            manager.ip = str(self._folder / "s")  # an absolute prefix: the default is relative to the working folder
            manager.connection_file = str(self._folder / "connection.json")
        arguments = await super().pre_launch(**arguments)
        cwd = os.path.abspath(arguments.get("cwd") or os.getcwd())
        arguments["cmd"] = command(arguments["cmd"], read=[Path(cwd)], write=[self._folder], cwd=cwd)
        return {**arguments, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart)
        if not restart and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def kernel() -> Iterator[str]:
    """The name of a sandboxed kernel that this process can start while the context is open."""
    factory = KernelProvisionerFactory.instance()
    entry = importlib.metadata.EntryPoint(KERNEL, f"{__name__}:SandboxProvisioner", KernelProvisionerFactory.GROUP_NAME)
    with tempfile.TemporaryDirectory(prefix="mlacademy-kernelspec-") as folder:
        spec = Path(folder) / "kernels" / KERNEL
        spec.mkdir(parents=True)
        launch = "from mlacademy.grading.kernel import main; main()"
        content = {
            "argv": [sys.executable, "-P", "-c", launch, "-f", "{connection_file}"],
            "display_name": "MLAcademy sandbox",
            "language": "python",
            "interrupt_mode": "message",
            "metadata": {"kernel_provisioner": {"provisioner_name": KERNEL}},
        }
        (spec / "kernel.json").write_text(json.dumps(content), encoding="utf-8")
        before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = os.pathsep.join([folder, *([before] if before else [])])
        factory.provisioners[KERNEL] = entry
        try:
            yield KERNEL
        finally:
            factory.provisioners.pop(KERNEL, None)
            if before is None:
                del os.environ["JUPYTER_PATH"]
            else:
                os.environ["JUPYTER_PATH"] = before
