"""Which of the learner's notebooks a running JupyterLab has open.

A notebook that changes on disk stays as it was in the browser until it is reloaded, so commands that change copies
name the open ones. Only servers of this user on this machine are asked, through the files in which Jupyter notes
their addresses.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def _servers() -> Iterator[dict[str, Any]]:
    from jupyter_core.paths import jupyter_runtime_dir

    for file in Path(jupyter_runtime_dir()).glob("jpserver-*.json"):
        try:
            server = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # the server is going away or another user's
        if isinstance(server, dict) and server.get("hostname") in ("localhost", "127.0.0.1", "::1"):
            yield server


def open_notebooks(folder: Path) -> set[Path]:
    """The notebooks below ``folder`` that have a running kernel in some JupyterLab, as absolute paths.

    Servers that do not answer within a second count as having none open.
    """
    found = set()
    for server in _servers():
        request = urllib.request.Request(
            f"{server['url']}api/sessions", headers={"Authorization": f"token {server.get('token', '')}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=1) as reply:
                sessions = json.load(reply)
        except (OSError, ValueError):
            continue
        for session in sessions:
            path = Path(server["root_dir"], session.get("path", "")).resolve()
            if path.is_relative_to(folder.resolve()):
                found.add(path)
    return found
