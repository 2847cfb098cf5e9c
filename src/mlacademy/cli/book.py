"""Build the course as a book of web pages, in English and 简体中文; no network is needed.

The lessons are executed, so the first build takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from mlacademy.book import BookError, build
from mlacademy.cli.terminal import CommandError, console
from mlacademy.workspace.course import course_root


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where the pages go (default: book/_build/html)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="read and write N pages at a time (default: 1)"
    )


@contextlib.contextmanager
def _heartbeat(seconds: float = 15) -> Iterator[None]:
    """Print the elapsed time now and then, so that a long silence is not taken for a hang."""
    over, started = threading.Event(), time.perf_counter()

    def beat() -> None:
        while not over.wait(seconds):
            console().print(f"  … {time.perf_counter() - started:.0f} s")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        raise CommandError(f"--jobs must be at least 1; got {options.jobs}")
    output = options.output.resolve() if options.output else None
    try:
        with _heartbeat():
            pages = build(course_root(), output, progress=console().print, jobs=options.jobs)
    except BookError as error:
        if error.log:
            console().print(error.log.strip()[-4000:], markup=False)
        raise CommandError(str(error)) from error
    for language, page in pages.items():
        console().print(f"{language}: [bold]{page}[/]")
    return 0
