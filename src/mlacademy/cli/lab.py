"""Open JupyterLab at chapter 00, on your own copies of the lessons and exercises in work/.

Copies that are missing are made; what is there stays as it is. Stop JupyterLab with Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import sys
from pathlib import Path

from mlacademy.cli.terminal import CommandError, console
from mlacademy.workspace import Workspace, course_root

START = Path("lessons", "00_machine_and_course.ipynb")
SETTINGS = Path(__file__).with_name("jupyter")
"""A Jupyter configuration folder: no news or update pop-ups, light or dark as the system is, and none of the
instructor's tools (`.venv/bin/jupyter lab` shows them)."""

QUIET = 40
"""The server's log level: errors and the address, which it logs as critical."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    parser.add_argument(
        "--port", type=int, metavar="N", help="serve on this port (default: 8888, or the next free one)"
    )
    parser.add_argument(
        "notebook",
        nargs="?",
        metavar="CHAPTER",
        help="open this chapter instead of 00",
    )


def _start_page(workspace: Workspace, chapter: str | None) -> Path:
    """The copy to open, below ``work/``. Raises ``CommandError`` for a chapter that is not there."""
    copies = sorted((workspace.work / "lessons").glob("*.ipynb"))
    if chapter is None:
        found = [workspace.work / START] if (workspace.work / START).exists() else copies[:1]
    else:
        found = [path for path in copies if path.name.startswith(f"{chapter.zfill(2)}_")]
    if not found:
        there = ", ".join(path.name[:2] for path in copies)
        raise CommandError(f"there is no chapter {chapter or '00'}; there are {there or 'none'}")
    return found[0].relative_to(workspace.work)


def _check_port(port: int) -> None:
    if not 0 < port < 65536:
        raise CommandError(f"--port must lie in 1 to 65535; got {port}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(f"port {port} cannot be used ({error.strerror}): choose another with --port") from error


def command(workspace: Workspace, page: Path, *, port: int | None, browser: bool) -> list[str]:
    """The command line of the JupyterLab server."""
    line = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={workspace.work}", "--ServerApp.ip=127.0.0.1"]
    line += [f"--LabApp.default_url=/lab/tree/{page.as_posix()}", "--LabApp.extension_manager=readonly"]
    line += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"] if port else []
    line += [f"--Application.log_level={QUIET}"] + ([] if browser else ["--no-browser"])
    line += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return line


def environment() -> dict[str, str]:
    """The server's environment: the course's settings, and this environment's programs before all others."""
    found = dict(os.environ)
    former = found.get("JUPYTER_CONFIG_PATH")
    found["JUPYTER_CONFIG_PATH"] = os.pathsep.join([str(SETTINGS), *([former] if former else [])])
    found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), found.get("PATH", "")])
    found.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    return found


def run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise CommandError("JupyterLab is not installed: run `make setup`")
    if options.port is not None:
        _check_port(options.port)
    workspace = Workspace(course_root())
    made = workspace.seed()
    out = console()
    if made:
        out.print(f"Made {len(made)} copies of lessons and exercises in {workspace.work}.")
    waiting = [step for step in workspace.plan_update() if step.writes and step.path not in made]
    if waiting:
        count = f"{len(waiting)} of your copies have" if len(waiting) > 1 else "One of your copies has"
        out.print(f"{count} a newer version: [bold]mlacademy update[/] brings it in and keeps what you wrote.")
    page = _start_page(workspace, options.notebook)
    out.print(f"Opening JupyterLab at [bold]work/{page}[/]. Stop it with Ctrl-C.")
    sys.stdout.flush()
    os.chdir(workspace.work)
    line = command(workspace, page, port=options.port, browser=not options.no_browser)
    os.execve(line[0], line, environment())
