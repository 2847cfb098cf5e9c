"""The command ``mlacademy``: one module a command, loaded only when it is called.

A command module has ``configure(parser)``, which adds its arguments, and ``run(options)``, which does the work and
returns the exit status. Errors that a person can act on end a command with one sentence on standard error and
status 1; wrong usage ends it with status 2.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import mlacademy
from mlacademy.cli.terminal import CommandError, complain

COMMANDS = {
    "doctor": "tell what this machine is, what of the course runs on it, and how to mend what is missing",
    "lab": "open JupyterLab at chapter 00, on your own copies in work/",
    "lessons": "run every lesson without a browser and print a table",
    "check": "grade the answers in one of your exercise notebooks",
    "reset": "restore an exercise or a notebook as it came",
    "update": "bring your copies up to date without touching what you wrote",
    "grade": "grade a folder of submissions and write a CSV (instructors)",
    "release": "write the student branch, which has no solutions (instructors)",
    "book": "build the course as a book of web pages",
    "bench": "list and run the benchmarks",
    "kernels": "list, compile, disassemble and run CUDA kernels",
}


def _top_parser() -> argparse.ArgumentParser:
    lines = [f"  {name:<9} {summary}" for name, summary in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="mlacademy",
        usage="mlacademy [-h] [--version] COMMAND ...",
        description="A JupyterLab course on the GPU kernels behind DeepSeek-V3.2.",
        epilog="\n".join(["commands:", *lines, "", "`mlacademy COMMAND --help` tells more about one of them."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mlacademy {mlacademy.__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return parser


def parser_of(name: str) -> argparse.ArgumentParser:
    """The argument parser of one command."""
    module = importlib.import_module(f"mlacademy.cli.{name}")
    parser = argparse.ArgumentParser(
        prog=f"mlacademy {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.configure(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mlacademy`` with ``argv`` (default: the process's arguments) and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else None
    if name not in COMMANDS:
        top = _top_parser()
        if name is None:
            top.print_help()
            return 2
        top.parse_known_args(arguments[:1])
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `mlacademy {close[0]}`?" if close else "`mlacademy --help` lists the commands."
        complain(f"mlacademy: there is no command {name!r}: {hint}")
        return 2
    try:
        options = parser_of(name).parse_args(arguments[1:])
        status: int = importlib.import_module(f"mlacademy.cli.{name}").run(options)
        sys.stdout.flush()
    except (CommandError, ValueError) as error:
        complain(f"mlacademy {name}: {error}")
        return 1
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        complain(f"mlacademy {name}: {error.strerror or error}{where}")
        return 1
    except KeyboardInterrupt:
        complain(f"\nmlacademy {name}: stopped.")
        return 130
    except Exception as error:
        if os.environ.get("MLACADEMY_TRACEBACK"):
            raise
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        complain(f"mlacademy {name}: {reason} (set MLACADEMY_TRACEBACK=1 to see where)")
        return 1
    return status
