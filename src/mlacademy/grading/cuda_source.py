"""The text of a CUDA answer: is it one, is it answered, and does it include only what it may?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mlacademy.gpu import nvrtc
from mlacademy.gpu.includes import header_layer, without_comments
from mlacademy.grading.compare import describe
from mlacademy.grading.cuda_exercise import CudaExercise
from mlacademy.grading.failures import Failure

MAX_TEXT = 100_000
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(include_next|include|import|embed)\b[ \t]*([^\n]*)", re.MULTILINE)
_NAMED = re.compile(r"(?:\"([^\"]+)\"|<([^>]+)>)\s*")
_BLANK = re.compile(r"^[ \t]*#[ \t]*error\b[^\n]*not answered yet", re.MULTILINE)
_TRIGRAPHS = {"??=": "#", "??/": "\\", "%:": "#"}


def refusal(exercise: CudaExercise, answer: Any) -> Failure | None:
    """Why ``answer`` is not even compiled; None for text that may be."""
    name = exercise.entry
    if answer is None or answer is Ellipsis:
        return Failure("unanswered", f"{name} is not answered yet: it is the CUDA source as text.")
    if type(answer) is not str:
        came = "a function" if callable(answer) else describe(answer)
        return Failure("type", f'{name} is {came}; expected the CUDA source as text: {name} = r""" … """.')
    if len(answer) > MAX_TEXT:
        return Failure("too large", f"{name} has {len(answer):,} characters; a kernel may have {MAX_TEXT:,}.")
    if "\0" in answer:
        return Failure("type", f"{name} holds a zero byte: it is not the text of a kernel.")
    plain = _plain(answer)
    if not plain.strip():
        return Failure("unanswered", f"{name} is empty: the kernel goes there.")
    if _BLANK.search(plain):
        size = "1 line is" if exercise.lines == 1 else f"{exercise.lines} lines are"
        sentence = f"{name} is not answered yet: about {size} missing. Put them in place of the line with #error."
        return Failure("unanswered", sentence)
    return next((found for found in map(_foreign, _DIRECTIVE.finditer(plain)) if found is not None), None)


def _plain(text: str) -> str:
    """The text as the compiler's first phases leave it: other spellings of ``#`` and ``\\`` replaced, lines joined."""
    for spelling, sign in _TRIGRAPHS.items():
        text = text.replace(spelling, sign)
    return without_comments(re.sub(r"\\[ \t]*\r?\n", "", text).replace("\r", "\n"))


def _foreign(found: re.Match[str]) -> Failure | None:
    directive, rest = found.groups()
    named = _NAMED.fullmatch(rest)
    if directive != "include" or named is None:
        return Failure("include", f"An answer may not use #{directive} {rest.strip()[:60]}: a header is named.")
    name = named[1] or named[2]
    parts = Path(name).parts
    inside = not name.startswith("/") and ".." not in parts and "\\" not in name
    if inside and any((folder / name).is_file() for folder in (header_layer(), *nvrtc.include_folders())):
        return None
    known = ", ".join(sorted(path.name for path in header_layer().glob("*.cuh")))
    why = f"An answer may include the course's headers ({known}) and NVIDIA's, such as <cuda_fp16.h>."
    return Failure("include", f"There is no header {name[:80]} for an answer to include.", why)
