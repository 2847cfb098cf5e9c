"""The learner's copies of lessons and exercises: made in ``work/``, brought up to date, restored.

Lessons and exercises are pristine in git; a learner works on copies in the git-ignored ``work/``. What belongs to
the course in there lies in ``work/.mlacademy/``: ``base/`` keeps every pristine version that a copy was made from,
``backups/<time>/`` keeps each file as it was before ``update`` or ``reset`` changed it.
"""

from mlacademy.workspace.copies import Step, Workspace
from mlacademy.workspace.course import chapter_of, course_root
from mlacademy.workspace.merge import Change, Merge, merge, restore

__all__ = ["Change", "Merge", "Step", "Workspace", "chapter_of", "course_root", "merge", "restore"]
