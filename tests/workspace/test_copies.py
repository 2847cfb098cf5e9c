"""The copies in work/: seeding, updating and restoring them, on small courses made for the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from mlacademy import notebooks
from mlacademy.workspace import Workspace, course_root
from mlacademy.workspace.course import documents

LESSON, EXERCISE = Path("lessons/04_tiles.ipynb"), Path("exercises/02_fp8/02_fp8.ipynb")


def code(name: str, source: str, **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "id": name, "metadata": metadata, "source": source}


def publish(root: Path, path: Path, *cells: dict[str, Any]) -> None:
    """Put a pristine notebook into the course."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    notebooks.write({"cells": list(cells)}, root / path)


def solution(name: str, source: str) -> dict[str, Any]:
    return code(name, source, nbgrader={"grade_id": name, "solution": True})


@pytest.fixture
def course(tmp_path: Path) -> Workspace:
    root = tmp_path / "course"
    (root / "src" / "mlacademy").mkdir(parents=True)
    (root / "src" / "mlacademy" / "__init__.py").touch()
    publish(root, LESSON, code("one", "1"), code("two", "2"))
    cells = [
        code("02-3-statement", "'say'"), solution("02-3-answer", "def f(): ..."),
        code("02-3-check", "check()"), solution("02-31-answer", "def g(): ..."),
    ]  # fmt: skip
    publish(root, EXERCISE, *cells)
    (root / "exercises" / "02_fp8" / "data.csv").write_text("1,2\n")
    for ignored in ("lessons/claims/04.toml", "lessons/.ipynb_checkpoints/04.ipynb", "lessons/__pycache__/x.pyc"):
        (root / ignored).parent.mkdir(exist_ok=True)
        (root / ignored).touch()
    return Workspace(root)


def read(course: Workspace, path: Path) -> dict[str, Any]:
    return json.loads((course.work / path).read_bytes())


def write(course: Workspace, path: Path, cell: int, source: str) -> None:
    """Write in a cell of a copy, as the learner does."""
    notebook = read(course, path)
    notebook["cells"][cell]["source"] = source
    (course.work / path).write_text(json.dumps(notebook))


def sources(course: Workspace, path: Path) -> list[str]:
    return [notebooks.source(cell) for cell in read(course, path)["cells"]]


def update(course: Workspace) -> dict[str, str]:
    """Update the copies and return the action of each file that was not current."""
    done, _ = course.apply(course.plan_update())
    return {step.path.as_posix(): step.action for step in done if step.action != "current"}


def test_the_course_is_found_from_below_and_its_documents_are_what_learners_need(course: Workspace) -> None:
    assert course_root(course.root / "lessons") == course.root
    assert [path.as_posix() for path in documents(course.root)] == [
        "lessons/04_tiles.ipynb", "exercises/02_fp8/02_fp8.ipynb", "exercises/02_fp8/data.csv",
    ]  # fmt: skip


def test_outside_a_course_the_packages_own_clone_is_found(tmp_path: Path, repository: Path) -> None:
    assert course_root(tmp_path) == repository


def test_seeding_makes_what_is_missing_and_leaves_what_is_there(course: Workspace) -> None:
    assert len(course.seed()) == 3
    write(course, LESSON, 0, "mine")
    (course.work / "exercises/02_fp8/data.csv").unlink()
    assert [path.name for path in course.seed()] == ["data.csv"]
    assert sources(course, LESSON)[0] == "mine"


def test_a_copy_is_writable_even_where_the_original_is_not(course: Workspace) -> None:
    (course.root / LESSON).chmod(0o444)
    course.seed()
    assert (course.work / LESSON).stat().st_mode & 0o200


def test_nothing_to_update_changes_nothing_and_makes_no_backup(course: Workspace) -> None:
    course.seed()
    write(course, EXERCISE, 1, "def f(): return 7")
    before = (course.work / EXERCISE).read_bytes()
    assert update(course) == {}
    assert (course.work / EXERCISE).read_bytes() == before
    assert not (course.records / "backups").exists()


def test_update_merges_and_keeps_the_file_as_it_was_in_the_backup(course: Workspace) -> None:
    course.seed()
    write(course, LESSON, 0, "mine")
    before = (course.work / LESSON).read_bytes()
    publish(course.root, LESSON, code("one", "1"), code("new", "1.5"), code("two", "22"))
    assert update(course) == {LESSON.as_posix(): "merged"}
    assert sources(course, LESSON) == ["mine", "1.5", "22"]
    (backup,) = (course.records / "backups").iterdir()
    assert (backup / LESSON).read_bytes() == before
    assert update(course) == {}


def test_an_update_overwritten_by_an_open_editor_is_made_again(course: Workspace) -> None:
    course.seed()
    write(course, LESSON, 0, "mine")
    open_in_editor = (course.work / LESSON).read_bytes()
    publish(course.root, LESSON, code("one", "1"), code("new", "1.5"), code("two", "22"))
    update(course)
    (course.work / LESSON).write_bytes(open_in_editor)
    update(course)
    assert sources(course, LESSON) == ["mine", "1.5", "22"]


def test_a_copy_that_lost_its_record_is_merged_with_the_likeliest_base(course: Workspace) -> None:
    course.seed()
    publish(course.root, LESSON, code("one", "1"), code("two", "22"))
    update(course)
    notebook = read(course, LESSON)
    del notebook["metadata"]["mlacademy"]
    notebook["cells"][0]["source"] = "mine"
    (course.work / LESSON).write_text(json.dumps(notebook))
    publish(course.root, LESSON, code("one", "1"), code("two", "222"))
    update(course)
    assert sources(course, LESSON) == ["mine", "222"]


def test_a_file_saved_while_the_update_runs_is_left_alone(course: Workspace) -> None:
    course.seed()
    publish(course.root, LESSON, code("one", "11"))
    steps = course.plan_update()
    write(course, LESSON, 1, "written meanwhile")
    done, backup = course.apply(steps)
    assert [step.reason for step in done if step.action == "skipped"] == [
        "it was saved while the update ran; run the command again"
    ]
    assert sources(course, LESSON) == ["1", "written meanwhile"]
    assert backup is None


def test_an_unreadable_copy_is_left_alone_and_the_others_go_on(course: Workspace) -> None:
    course.seed()
    cells = ('{"cell_type": "code"}', '{"cell_type": "code", "source": 3}', '{"cell_type": "code", "source": [3]}')
    marks = ("[]", '{"nbgrader": null}', '{"tags": "a"}')
    cells += tuple(f'{{"cell_type": "code", "source": "x", "metadata": {mark}}}' for mark in marks)
    contents = ["{ half", "[" * 100_000, '{"nbformat": 3}', '{"nbformat": 4, "cells": [7]}']
    contents += [f'{{"nbformat": 4, "cells": [], {more}}}' for more in ('"metadata": [1]', '"nbformat_minor": null')]
    contents += [f'{{"nbformat": 4, "cells": [{cell}]}}' for cell in cells]
    for broken in contents:
        (course.work / LESSON).write_text(broken)
        publish(course.root, EXERCISE, code("fresh", broken))
        steps = {step.path: step for step in course.plan_update()}
        assert "notebook" in steps[LESSON].reason
        assert update(course) == {LESSON.as_posix(): "skipped", EXERCISE.as_posix(): "merged"}
        assert (course.work / LESSON).read_text() == broken


def test_a_copy_that_is_no_file_is_left_alone_and_the_others_go_on(course: Workspace) -> None:
    course.seed()
    copy = course.work / LESSON
    for count, replace in enumerate([copy.mkdir, lambda: copy.symlink_to(copy.name)]):
        copy.rmdir() if copy.is_dir() else copy.unlink()
        replace()
        publish(course.root, EXERCISE, code("fresh", str(count)))
        assert "cannot be read" in {step.path: step for step in course.plan_update()}[LESSON].reason
        assert update(course) == {LESSON.as_posix(): "skipped", EXERCISE.as_posix(): "merged"}


def test_a_copy_that_leads_elsewhere_is_updated_there(course: Workspace, tmp_path: Path) -> None:
    course.seed()
    elsewhere = (course.work / LESSON).rename(tmp_path / "my notebook.ipynb")
    (course.work / LESSON).symlink_to(elsewhere)
    publish(course.root, LESSON, code("one", "11"))
    assert update(course) == {LESSON.as_posix(): "merged"}
    assert (course.work / LESSON).is_symlink()
    assert "11" in elsewhere.read_text()


def test_text_that_utf_8_cannot_hold_is_kept(course: Workspace) -> None:
    course.seed()
    write(course, LESSON, 0, "half = '\ud83d'")
    publish(course.root, LESSON, code("one", "1"), code("two", "22"))
    assert update(course) == {LESSON.as_posix(): "merged"}
    assert sources(course, LESSON) == ["half = '\ud83d'", "22"]


@pytest.mark.parametrize("damage", ["draft of a killed run", "record cut short", "no records"])
def test_damaged_records_stop_no_update(course: Workspace, damage: str) -> None:
    course.seed()
    (record,) = (course.records / "base" / LESSON).iterdir()
    if damage == "draft of a killed run":
        record.with_name(f".{record.name}.1234.part").write_bytes(record.read_bytes()[:20])
    elif damage == "record cut short":
        record.write_bytes(record.read_bytes()[:20])
    else:
        record.unlink()
    notebook = read(course, LESSON)
    notebook["metadata"].pop("mlacademy")  # as a tool that cleans notebooks leaves it
    notebook["cells"][0]["source"] = "mine"
    (course.work / LESSON).write_text(json.dumps(notebook))
    assert update(course) == {LESSON.as_posix(): "merged"}
    assert sources(course, LESSON)[0] == "mine"
    publish(course.root, LESSON, code("one", "1"), code("two", "22"))
    assert update(course) == {LESSON.as_posix(): "merged"}
    assert "mine" in sources(course, LESSON)
    assert sources(course, LESSON)[-1] == "22"


def test_a_read_only_copy_is_left_alone(course: Workspace) -> None:
    course.seed()
    (course.work / LESSON).chmod(0o444)
    publish(course.root, LESSON, code("one", "11"))
    assert update(course) == {LESSON.as_posix(): "skipped"}
    with pytest.raises(ValueError, match="read-only"):
        course.plan_reset(LESSON)


def test_a_renamed_notebook_takes_its_answers_along(course: Workspace) -> None:
    course.seed()
    write(course, LESSON, 0, "mine")
    new = Path("lessons/04_scheduler.ipynb")
    (course.root / LESSON).unlink()
    publish(course.root, new, code("one", "1"), code("two", "22"))
    course.seed()  # `mlacademy lab` ran before `mlacademy update`
    assert update(course) == {new.as_posix(): "renamed"}
    assert sources(course, new) == ["mine", "22"]
    assert not (course.work / LESSON).exists()
    assert update(course) == {}


def test_a_removed_notebook_goes_to_the_backup_unless_it_was_written_in(course: Workspace) -> None:
    course.seed()
    write(course, EXERCISE, 1, "mine")
    (course.root / LESSON).unlink()
    (course.root / EXERCISE).unlink()
    assert update(course) == {LESSON.as_posix(): "retired", EXERCISE.as_posix(): "kept"}
    assert not (course.work / LESSON).exists()
    assert sources(course, EXERCISE)[1] == "mine"
    (backup,) = (course.records / "backups").iterdir()
    assert (backup / LESSON).exists()
    assert update(course) == {}, "a kept file is the learner's from now on"


def test_a_deleted_copy_comes_back_pristine(course: Workspace) -> None:
    course.seed()
    (course.work / LESSON).unlink()
    assert update(course) == {LESSON.as_posix(): "new"}
    assert sources(course, LESSON) == ["1", "2"]


def test_other_files_are_replaced_only_when_untouched(course: Workspace) -> None:
    course.seed()
    data = Path("exercises/02_fp8/data.csv")
    (course.root / data).write_text("3,4\n")
    assert update(course) == {data.as_posix(): "replaced"}
    (course.work / data).write_text("mine\n")
    (course.root / data).write_text("5,6\n")
    assert update(course) == {data.as_posix(): "kept"}
    assert (course.work / data).read_text() == "mine\n"


def test_reset_restores_the_answer_of_one_exercise_only(course: Workspace) -> None:
    course.seed()
    write(course, EXERCISE, 1, "wrong")
    write(course, EXERCISE, 2, "check('changed')")
    write(course, EXERCISE, 3, "other answer")
    course.apply([course.plan_reset_exercise("02.3")])
    assert sources(course, EXERCISE)[1:] == ["def f(): ...", "check('changed')", "other answer"]
    (backup,) = (course.records / "backups").iterdir()
    assert "wrong" in (backup / EXERCISE).read_text()


def test_reset_of_an_unknown_exercise_or_file_is_refused(course: Workspace) -> None:
    course.seed()
    for exercise in ("02.4", "09.1", "02.", "two"):
        with pytest.raises(ValueError, match="there is no exercise"):
            course.plan_reset_exercise(exercise)
    with pytest.raises(ValueError, match="the course has no file"):
        course.plan_reset(Path("lessons/none.ipynb"))


def test_reset_mends_a_notebook_that_cannot_be_read(course: Workspace) -> None:
    course.seed()
    (course.work / LESSON).write_text("{ half")
    course.apply([course.plan_reset(LESSON)])
    assert sources(course, LESSON) == ["1", "2"]


def test_two_backups_within_a_second_get_folders_of_their_own(course: Workspace) -> None:
    course.seed()
    for text in ("a", "b", "c"):
        write(course, LESSON, 0, text)
        course.apply([course.plan_reset(LESSON)])
    kept = [json.loads((folder / LESSON).read_text()) for folder in (course.records / "backups").iterdir()]
    assert sorted(notebook["cells"][0]["source"] for notebook in kept) == ["a", "b", "c"]


def test_an_update_killed_midway_loses_nothing_and_can_be_run_again(course: Workspace) -> None:
    lessons = [Path(f"lessons/{i:02}_many.ipynb") for i in range(30)]
    for path in lessons:
        publish(course.root, path, code("one", "1"), code("two", "2"))
    course.seed()
    for path in lessons:
        write(course, path, 0, f"mine {path.name}")
        publish(course.root, path, code("one", "1"), code("two", "22"))
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from mlacademy.workspace import Workspace
        course = Workspace(Path({str(course.root)!r}))
        steps = course.plan_update()
        def slowly():
            for step in steps:
                print("step", flush=True)
                yield step
                time.sleep(0.01)
        course.apply(slowly())
    """)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(7):
        child.stdout.readline()
    time.sleep(0.003)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    for path in lessons:
        assert sources(course, path)[0] == f"mine {path.name}"
    update(course)
    assert all(sources(course, path) == [f"mine {path.name}", "22"] for path in lessons)
