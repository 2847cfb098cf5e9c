"""nbgrader's configuration of this course, for its own programs run in this folder: `nbgrader generate_assignment …`.

`mlacademy release --exercises` and `mlacademy grade` use the same settings; the gradebook made here is git-ignored.
"""

from pathlib import Path

from mlacademy.grading.assignments import course_config

root = Path(__file__).resolve().parents[1]
c = get_config()  # noqa: F821 -- nbgrader defines it
c.merge(course_config(root, root / "gradebook.db"))
