"""The IPython kernel that graded notebooks run in: an ordinary one with a limit on what it prints."""

from __future__ import annotations

from typing import Any

from ipykernel import iostream
from ipykernel.kernelapp import IPKernelApp

from mlacademy.grading.sandbox import MAX_OUTPUT


def limit_output(most: int = MAX_OUTPUT) -> None:
    """Drop what is printed beyond ``most`` characters: endless printing must not fill the grader's memory."""
    write = iostream.OutStream.write
    left = [most]

    def limited(stream: Any, text: str) -> int:
        if left[0] > 0:
            write(stream, text[: left[0]])
            left[0] -= len(text)
            if left[0] <= 0:
                write(stream, "\n[cut: too much output]\n")
        return len(text)

    iostream.OutStream.write = limited  # type: ignore[method-assign, assignment]


def main() -> None:
    """Start the kernel; the arguments are Jupyter's."""
    limit_output()
    IPKernelApp.launch_instance(argv=None, outstream_class="ipykernel.iostream.OutStream")
