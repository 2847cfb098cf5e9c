"""Run every lesson from top to bottom without a browser, and print a table of how each went.

The tracked originals are run unless --work asks for your copies; no file is changed. Exits with 1 when a lesson fails.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from mlacademy.cli.execute import CELL_SECONDS, Run, execute
from mlacademy.cli.terminal import CommandError, complain, console
from mlacademy.workspace.course import chapter_of, course_root

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="CHAPTER", nargs="+", default=[], help="run these chapters: --only 02 04")
    parser.add_argument("--work", action="store_true", help="run your copies in work/ instead of the originals")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="run N lessons at a time (default: 2)")
    parser.add_argument(
        "--cell-seconds",
        type=int,
        default=CELL_SECONDS,
        metavar="S",
        help=f"stop a cell that takes longer (default: {CELL_SECONDS})",
    )


def lessons(root: Path, only: Iterable[str] = (), *, work: bool = False) -> list[Path]:
    """The lesson notebooks of the course at ``root``, or the learner's copies, in order.

    ``only`` names chapters by number, ``"4"`` or ``"04"``. Raises ``ValueError`` for a chapter that has no lesson.
    """
    shelf = root / "work" / "lessons" if work else root / "lessons"
    found = sorted(path for path in shelf.rglob("*.ipynb") if not any(p.startswith(".") for p in path.parts[-2:]))
    if not found:
        hint = "`mlacademy lab` makes the copies" if work else "the clone is incomplete"
        raise ValueError(f"there are no notebooks in {shelf}: {hint}")
    wanted = [chapter.zfill(2) for chapter in only]
    there = sorted({chapter_of(path) or path.stem for path in found})
    for chapter in wanted:
        if chapter not in there:
            raise ValueError(f"there is no chapter {chapter}; there are {', '.join(there)}")
    return [path for path in found if not wanted or chapter_of(path) in wanted]


def _row(run: Run | None) -> tuple[str, str, str, str]:
    """Cells, seconds, slowest cell and verdict of a run that may not have begun."""
    if run is None:
        return "", "", "", "[dim]waiting[/]"
    slowest = f"{run.slowest[0]} ({run.slowest[1]:.1f} s)" if run.slowest else ""
    cells = f"{len(run.cells)} of {run.code_cells}"
    if run.seconds == 0 and run.ok:
        return cells, "", slowest, f"[cyan]running[/] {run.running or ''}"
    verdict = "[green]ok[/]" if run.ok else f"[red]failed[/] at {run.failed or 'the start'}"
    return cells, f"{run.seconds:.1f}", slowest, verdict


def _table(paths: list[Path], runs: dict[Path, Run], shelf: Path) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("lesson", no_wrap=True)
    table.add_column("cells", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("slowest cell")
    table.add_column("verdict")
    for path in paths:
        table.add_row(str(path.relative_to(shelf).with_suffix("")), *_row(runs.get(path)))
    return table


def _run_all(paths: list[Path], shelf: Path, options: argparse.Namespace, out: Console) -> dict[Path, Run]:
    """Run the lessons, showing a live table on a terminal and one line a lesson elsewhere."""
    from rich.live import Live

    runs: dict[Path, Run] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        futures: dict[Future[Run], Path] = {}

        def note(run: Run) -> None:
            runs[run.path] = run
            if out.is_terminal:
                live.update(_table(paths, runs, shelf))

        def finished(future: Future[Run]) -> None:
            if future.cancelled() or future.exception() is not None:
                return
            note(future.result())
            if not out.is_terminal:
                cells, seconds, _, verdict = _row(future.result())
                out.print(f"{futures[future].relative_to(shelf)}: {cells} cells in {seconds} s: {verdict}")

        with Live(_table(paths, runs, shelf), console=out, refresh_per_second=4, transient=True) as live:
            try:
                for path in paths:
                    future = pool.submit(execute, path, cell_seconds=options.cell_seconds, progress=note)
                    futures[future] = path
                    future.add_done_callback(finished)
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return runs


def _show_failure(run: Run, shelf: Path, out: Console) -> None:
    from rich.markup import escape

    where = run.failed or "the start"
    out.print(f"\n[bold red]{run.path.relative_to(shelf)}[/] failed at [bold]{where}[/]: {escape(run.error or '')}")
    if run.source:
        out.print(escape("\n".join(f"  | {line}" for line in run.source.splitlines())))
    tail = run.traceback.strip().splitlines()[-12:]
    if tail:
        out.print(escape("\n".join(f"  {line}" for line in tail)))


def run(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        raise CommandError(f"--jobs must be at least 1; got {options.jobs}")
    root = course_root()
    paths = lessons(root, options.only, work=options.work)
    shelf = root / "work" / "lessons" if options.work else root / "lessons"
    out = console()
    count = "1 lesson" if len(paths) == 1 else f"{len(paths)} lessons"
    out.print(f"Running {count} in {shelf}, {options.jobs} at a time.")
    runs = _run_all(paths, shelf, options, out)
    out.print(_table(paths, runs, shelf))
    failed = [runs[path] for path in paths if not runs[path].ok]
    if not failed:
        return 0
    _show_failure(failed[0], shelf, out)
    names = ", ".join(str(run.path.relative_to(shelf)) for run in failed)
    complain(f"mlacademy lessons: {len(failed)} of {len(paths)} lessons failed: {names}")
    return 1
