"""Run a notebook from top to bottom without a browser and say how each cell went.

The tests, ``mlacademy lessons`` and ``make lessons`` all run lessons through ``execute``.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlacademy.notebooks import source

CELL_SECONDS = 120
"""How long one cell may take before it counts as hanging; the course aims at 20 s on two cores."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RULER = re.compile(r"^-{60,}$", re.MULTILINE)


@dataclass
class Run:
    """How a notebook ran: seconds of each executed code cell by name, in order, and what stopped it, if anything.

    ``code_cells`` counts the code cells with text. ``error`` is one line on what went wrong, ``failed`` the name of
    the cell that stopped the run (None when no cell was to blame), ``source`` and ``traceback`` are that cell's.
    """

    path: Path
    code_cells: int = 0
    seconds: float = 0.0
    cells: dict[str, float] = field(default_factory=dict)
    running: str | None = None
    failed: str | None = None
    error: str | None = None
    source: str = ""
    traceback: str = ""

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The cell that took longest, with its seconds; None before any has run."""
        return max(self.cells.items(), key=lambda item: item[1], default=None)


def _listen(client: Any, run: Run, progress: Callable[[Run], None]) -> None:
    """Make ``client`` note in ``run`` which cell runs and how long each took."""
    started = 0.0

    def begin(cell: Any, cell_index: int) -> None:
        nonlocal started
        started, run.running = time.perf_counter(), cell.get("id", f"cell {cell_index}")
        progress(run)

    def end(cell: Any, cell_index: int, execute_reply: Any = None) -> None:
        run.cells[cell.get("id", f"cell {cell_index}")] = time.perf_counter() - started
        run.running = None

    client.on_cell_start = begin
    client.on_cell_executed = end


def execute(path: Path, *, cell_seconds: int = CELL_SECONDS, progress: Callable[[Run], None] = lambda run: None) -> Run:
    """Run the notebook at ``path`` in its own folder, in a fresh kernel; the file stays as it is.

    ``progress`` is called with the run whenever a cell starts. A cell that raises, hangs longer than
    ``cell_seconds`` or kills its kernel ends the run and is reported in it; nothing is raised for that.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    run, started = Run(path), time.perf_counter()
    try:
        notebook: Any = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises what its parsers raise
        run.error = f"not a readable notebook: {error}".splitlines()[0]
        return run
    run.code_cells = sum(cell["cell_type"] == "code" and bool(source(cell).strip()) for cell in notebook.cells)
    client = NotebookClient(
        notebook,
        timeout=cell_seconds,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--HistoryManager.hist_file=:memory:", "--IPKernelApp.log_level=40"],
    )
    _listen(client, run, progress)
    try:
        asyncio.run(client.async_execute(env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}))
    except CellExecutionError as error:
        run.error = f"{error.ename}: {error.evalue}".splitlines()[0]
        run.traceback = _RULER.split(_COLOUR.sub("", error.traceback))[-1].strip()
    except CellTimeoutError:
        run.error = f"ran longer than {cell_seconds} s"
    except DeadKernelError:
        run.error = "its kernel died"
    run.seconds = time.perf_counter() - started
    if run.error is not None:
        run.failed = run.running or next(reversed(run.cells), None)
        run.source = next((source(cell) for cell in notebook.cells if cell.get("id") == run.failed), "")
    return run
