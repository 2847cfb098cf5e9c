"""Asking running JupyterLab servers which copies are open."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlacademy.workspace.jupyter import open_notebooks


class Sessions(BaseHTTPRequestHandler):
    """Answers like a Jupyter server with one notebook open, to who knows the token."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "token secret" and self.path == "/api/sessions"
        self.send_response(200 if known else 403)
        self.end_headers()
        self.wfile.write(b'[{"path": "lessons/04.ipynb"}]' if known else b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir()
    return tmp_path / "runtime"


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Sessions) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def note(runtime: Path, name: str, **server: object) -> None:
    (runtime / name).write_text(json.dumps(server))


def test_notebooks_open_below_the_folder_are_found(runtime: Path, port: int, tmp_path: Path) -> None:
    work, url = tmp_path / "work", f"http://127.0.0.1:{port}/"
    note(runtime, "jpserver-1.json", hostname="127.0.0.1", url=url, token="secret", root_dir=str(work))
    assert open_notebooks(work) == {work / "lessons" / "04.ipynb"}
    assert open_notebooks(tmp_path / "elsewhere") == set()


def test_servers_that_are_gone_refuse_or_live_elsewhere_count_as_having_none_open(
    runtime: Path, port: int, tmp_path: Path
) -> None:
    work = str(tmp_path / "work")
    note(runtime, "jpserver-1.json", hostname="localhost", url="http://127.0.0.1:9/", token="secret", root_dir=work)
    note(runtime, "jpserver-2.json", hostname="localhost", url=f"http://127.0.0.1:{port}/", token="no", root_dir=work)
    note(runtime, "jpserver-3.json", hostname="example.org", url="http://192.0.2.1/", token="secret", root_dir=work)
    (runtime / "jpserver-4.json").write_text("{ half")
    assert open_notebooks(tmp_path / "work") == set()
