"""Generate ``exercises/`` from ``solutions/`` through nbgrader, in the course's canonical notebook form.

    python -m mlacademy.grading.assignments                  # all assignments
    python -m mlacademy.grading.assignments 02_fp8_cache     # some of them
    python -m mlacademy.grading.assignments --check          # exit 1 where exercises/ has drifted

A solution region becomes a blank that says how many lines are missing. Cells keep their names, and generating twice
gives the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mlacademy import notebooks
from mlacademy.grading import judges
from mlacademy.grading.cuda_exercise import BLANK
from mlacademy.grading.exercise import Exercise

Progress = Callable[[str], None]
INSTRUCTOR_FILES = ("answers.py", "rubric.md", "nbgrader_config.py")
"""Files beside a solution notebook that never leave ``solutions/``."""

ANSWER_CELL = re.compile(r"(\d\d)-(\d+)-answer")
PROSE_BLANK = "*Write your answer here.*"


def repository() -> Path:
    """The course's root. Raises ``ValueError`` when this installation is not a checkout of the course."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "lessons").is_dir():
        raise ValueError(f"{root} is not a checkout of the course (it has no lessons/)")
    return root


def assignments(root: Path) -> list[str]:
    """The names of the assignments in ``solutions/``. Raises ``ValueError`` on a branch without solutions."""
    names = sorted(path.parent.name for path in (root / "solutions").glob("*/*.ipynb") if path.stem == path.parent.name)
    if not names:
        raise ValueError(f"there are no assignments in {root / 'solutions'}: this is a student branch")
    return names


def course_config(root: Path, database: Path) -> Any:
    """nbgrader's configuration for the course at ``root``, with the gradebook at ``database``."""
    from nbgrader import preprocessors
    from traitlets.config import Config

    config = Config()
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.source_directory = "solutions"
    config.CourseDirectory.release_directory = "exercises"
    config.CourseDirectory.course_id = "mlacademy"
    config.CourseDirectory.db_url = f"sqlite:///{database}"
    config.CourseDirectory.ignore = [".ipynb_checkpoints", "__pycache__", "*.pyc", *INSTRUCTOR_FILES]
    config.ClearSolutions.text_stub = PROSE_BLANK
    config.OverwriteCells.add_missing_cells = True
    steps = ["IncludeHeaderFooter", "LockCells", blanks(), "ClearOutput", "CheckCellMetadata", "ComputeChecksums"]
    steps += ["SaveCells", "ClearHiddenTests", "ClearMarkScheme", "ComputeChecksums", "CheckCellMetadata"]
    config.GenerateAssignment.preprocessors = [
        getattr(preprocessors, step) if isinstance(step, str) else step for step in steps
    ]
    return config


def blanks() -> Any:
    """nbgrader's step that cuts solutions, with blanks that know their exercise."""
    from nbgrader.preprocessors import ClearSolutions

    class Blanks(ClearSolutions):  # type: ignore[misc, unused-ignore]
        def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> Any:
            cell.source = cell.source.strip("\n")
            exercise = exercise_of(cell)
            if exercise is None or cell.cell_type != "code":
                return super().preprocess_cell(cell, resources, cell_index)
            cell.source = cut(cell.source, exercise)
            return cell, resources

    return Blanks


def exercise_of(cell: Any) -> Exercise | None:
    """The exercise that a solution cell answers, from the cell's ``grade_id``."""
    graded = cell["metadata"].get("nbgrader", {})
    match = ANSWER_CELL.fullmatch(str(graded.get("grade_id", "")))
    return judges.exercise(f"{match[1]}.{match[2]}") if match and graded.get("solution") else None


def cut(source: str, exercise: Exercise) -> str:
    """The source with its solution regions replaced by blanks.

    Raises ``ValueError`` where the markers do not pair up or a code cell has none.
    """
    kept: list[str] = []
    inside, regions = False, 0
    for line in source.split("\n"):
        if "### BEGIN SOLUTION" in line or "### END SOLUTION" in line:
            if inside == ("BEGIN" in line):
                raise ValueError(f"exercise {exercise.id}: solution markers do not pair up at {line.strip()!r}")
            inside = not inside
            if inside:
                regions += 1
                indent = line[: len(line) - len(line.lstrip())]
                kept += [indent + blank for blank in _blank(exercise, regions)]
        elif not inside:
            kept.append(line)
    if inside or not regions:
        raise ValueError(f"exercise {exercise.id}: the answer cell needs ### BEGIN SOLUTION and ### END SOLUTION")
    return "\n".join(kept)


def _blank(exercise: Exercise, region: int) -> list[str]:
    size = "1 line" if exercise.lines == 1 else f"{exercise.lines} lines"
    if exercise.kind == "value":
        return [f"# Your answer: about {size}.", f"{exercise.entry} = ..."] if region == 1 else []
    if exercise.kind == "cuda":
        if region == 1:
            return [
                f"// {BLANK}: about {size}, in place of the next one.",
                f'#error "{exercise.id} is not answered yet"',
            ]
        return [f"// {BLANK}, too."]
    if region == 1:
        return [f"# Your code: about {size}.", f'raise NotImplementedError("{exercise.id} is not answered yet")']
    return ["# More of your code."]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep nbgrader's and SQLAlchemy's chatter away; what goes wrong is raised with its log.

    nbgrader runs ``alembic`` by name, so this environment's programs are put first on the path meanwhile.
    """
    loggers = [logging.getLogger(name) for name in ("traitlets", "nbgrader", "alembic", "nbconvert")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    path = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.environ["PATH"] = path
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def api(config: Any) -> Any:
    """nbgrader's in-process interface under a configuration."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    return NbGraderAPI(CourseDirectory(config=config), config=config)


def generate(
    names: Sequence[str] | None = None,
    *,
    root: Path | None = None,
    into: Path | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the student notebooks of the assignments ``names`` (all by default) and return their paths.

    ``into`` is ``exercises/`` unless given. Files beside the notebook are copied, except the instructor's. Raises
    ``ValueError`` for an unknown assignment or a solution that cannot be cut.
    """
    root = root or repository()
    into = into or root / "exercises"
    known = assignments(root)
    for name in names or ():
        if name not in known:
            raise ValueError(f"there is no assignment {name!r}; the assignments are {', '.join(known)}")
    written = []
    with tempfile.TemporaryDirectory(prefix="mlacademy-generate-") as folder:
        course = Path(folder)
        (course / "solutions").mkdir()
        for name in names or known:
            if progress is not None:
                progress(f"generating {name}")
            shutil.copytree(root / "solutions" / name, course / "solutions" / name)
            written += _generate_one(name, course, into)
    return written


def _generate_one(name: str, course: Path, into: Path) -> list[Path]:
    with quiet():
        result = api(course_config(course, course / "gradebook.db")).generate_assignment(name)
    if not result["success"]:
        raise ValueError(f"nbgrader could not generate {name}: {_reason(result)}")
    source, target = course / "exercises" / name, into / name
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(source.rglob("*")):
        if not path.is_file():
            continue
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb":
            notebooks.write(notebooks.read(path), copy)
        else:
            shutil.copyfile(path, copy)
        written.append(copy)
    return written


def _reason(result: dict[str, Any]) -> str:
    text = f"{result.get('error') or ''}\n{result.get('log') or ''}"
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
    own = [line for line in lines if "NbGraderException" not in line]
    return (own or lines or text.split("\n"))[0] or "no reason given"


def drift(*, root: Path | None = None) -> list[str]:
    """What would change in ``exercises/`` if it were generated now, one sentence a file; empty when nothing would."""
    root = root or repository()
    with tempfile.TemporaryDirectory(prefix="mlacademy-drift-") as folder:
        generate(root=root, into=Path(folder))
        return differences(Path(folder), root / "exercises")


def differences(fresh: Path, exercises: Path) -> list[str]:
    """In what ``exercises`` differs from the freshly generated folder ``fresh``, one sentence a file."""
    want, have = _contents(fresh), _contents(exercises)
    found = [f"exercises/{path} is missing" for path in sorted(want.keys() - have.keys())]
    found += [f"exercises/{path} has no source in solutions/" for path in sorted(have.keys() - want.keys())]
    found += [f"exercises/{path} differs" for path in sorted(want.keys() & have.keys()) if want[path] != have[path]]
    return found


def _contents(folder: Path) -> dict[Path, bytes]:
    paths = [path for path in folder.glob("*/**/*") if path.is_file() and path.parent.name != ".ipynb_checkpoints"]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command ``python -m mlacademy.grading.assignments``."""
    parser = argparse.ArgumentParser(description="Generate exercises/ from solutions/.")
    parser.add_argument("names", nargs="*", help="assignments; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where exercises/ has drifted")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            found = drift()
            print("\n".join(found) or "exercises/ agrees with solutions/")
            return 1 if found else 0
        for path in generate(options.names or None, progress=print):
            print(f"  wrote {path}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
