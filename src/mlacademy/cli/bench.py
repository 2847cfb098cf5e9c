"""List the benchmarks, or run some of them; each prints a table and writes JSON to benchmarks/results/.

    mlacademy bench                   list them
    mlacademy bench reference         run benchmarks/reference.py
    mlacademy bench --all             run all of them, one after another

What follows `--` goes to the benchmark: mlacademy bench reference -- --help
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import time
from pathlib import Path

from mlacademy.cli.terminal import CommandError, complain, console
from mlacademy.workspace.course import course_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the benchmark to run, as listed")
    parser.add_argument("arguments", nargs="*", metavar="-- ARG", help="arguments for the benchmark")
    parser.add_argument("--all", action="store_true", help="run all benchmarks")


def question(script: Path) -> str:
    """The first line of a script's docstring, which says what it measures."""
    words = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    return words.splitlines()[0] if words else ""


def _run(script: Path, arguments: list[str], root: Path) -> bool:
    out, started = console(), time.perf_counter()
    out.print(f"[bold]{script.stem}[/]: {question(script)}")
    sys.stdout.flush()
    status = subprocess.run([sys.executable, str(script), *arguments], cwd=root, check=False).returncode
    out.print(
        f"{script.stem}: {'done' if status == 0 else f'exit status {status}'} in {time.perf_counter() - started:.1f} s"
    )
    return status == 0


def run(options: argparse.Namespace) -> int:
    root = course_root()
    scripts = {path.stem: path for path in sorted((root / "benchmarks").glob("[!_]*.py"))}
    if options.name is None and not options.all:
        if not scripts:
            raise CommandError(f"there are no benchmarks in {root / 'benchmarks'}")
        for name, path in scripts.items():
            console().print(f"[bold]{name:<16}[/] {question(path)}")
        return 0
    if options.name is not None and options.name not in scripts:
        raise CommandError(f"there is no benchmark {options.name!r}; there are {', '.join(scripts) or 'none'}")
    chosen = list(scripts) if options.all else [options.name]
    failed = [name for name in chosen if not _run(scripts[name], options.arguments, root)]
    if failed:
        complain(f"mlacademy bench: {', '.join(failed)} failed")
    return 1 if failed else 0
