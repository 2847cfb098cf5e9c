"""Edit the course's notebooks as text: notebook -> percent script -> the same notebook, byte for byte.

    python scripts/notebook.py export lessons/04_tile_scheduler.ipynb -o draft.py
    python scripts/notebook.py import draft.py -o lessons/04_tile_scheduler.ipynb
    python scripts/notebook.py format lessons/*.ipynb        # rewrite in canonical form
    python scripts/notebook.py check  lessons/*.ipynb        # exit 1 where a file is not canonical

The text form is jupytext's "py:percent". A cell's marker carries its name: `# %% name="split-predict"` or
`# %% [markdown] name="split-text"`. nbgrader's metadata follows as `nbgrader={...}`. Commit only the notebook.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from mlacademy import notebooks


def to_text(notebook: notebooks.Notebook) -> str:
    """The percent script of a notebook."""
    draft = nbformat.v4.new_notebook()
    for cell in notebook["cells"]:
        make = nbformat.v4.new_code_cell if cell["cell_type"] == "code" else nbformat.v4.new_markdown_cell
        draft.cells.append(make(notebooks.source(cell), metadata={"name": cell["id"], **cell["metadata"]}))
    text: str = jupytext.writes(draft, fmt="py:percent")
    return text


def from_text(text: str) -> notebooks.Notebook:
    """The notebook of a percent script. Raises ``ValueError`` where a cell has no name."""
    draft: Any = jupytext.reads(text, fmt="py:percent")
    cells = []
    for position, cell in enumerate(draft.cells):
        metadata = dict(cell.metadata)
        name = metadata.pop("name", None)
        if name is None:
            raise ValueError(f'cell {position} has no name: write `# %% name="..."` on its marker line')
        cells.append({"cell_type": cell.cell_type, "id": name, "metadata": metadata, "source": cell.source})
    return notebooks.canonical({"cells": cells})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, text in (("export", "notebook to percent script"), ("import", "percent script to notebook")):
        action = actions.add_parser(name, help=text)
        action.add_argument("file", type=Path)
        action.add_argument("-o", "--output", type=Path, required=True)
    for name, text in (("format", "rewrite in canonical form"), ("check", "exit 1 where a file is not canonical")):
        actions.add_parser(name, help=text).add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.action == "export":
        options.output.write_text(to_text(notebooks.read(options.file)), encoding="utf-8")
    elif options.action == "import":
        notebooks.write(from_text(options.file.read_text(encoding="utf-8")), options.output)
    else:
        stale = [f for f in options.files if f.read_text(encoding="utf-8") != notebooks.dumps(notebooks.read(f))]
        for file in stale:
            if options.action == "format":
                notebooks.write(notebooks.read(file), file)
            print(f"{'rewrote' if options.action == 'format' else 'not canonical:'} {file}")
        return 1 if stale and options.action == "check" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
