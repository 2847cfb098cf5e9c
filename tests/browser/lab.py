"""JupyterLab as `mlacademy lab` starts it, and a headless Chromium that looks at it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from mlacademy.machine import chromium

TOKEN = "for-the-test"
START_SECONDS = 120
RUN_SECONDS = 240


@contextlib.contextmanager
def running_lab(course: Path, log: Path) -> Iterator[str]:
    """Run `mlacademy lab --no-browser` in the course's folder; gives the server's address, and stops it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("mlacademy")), "lab", "--no-browser", "--port", str(port)]
    base = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=course, env=os.environ | {"JUPYTER_TOKEN": TOKEN}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_up(base, server, log)
            yield base
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_up(base: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, f"`mlacademy lab` ended by itself:\n{log.read_text()}"
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}/api/status?token={TOKEN}", timeout=2):
            return
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not answer within {START_SECONDS} s:\n{log.read_text()}")


@dataclass
class Browser:
    """One page, with what it asked of the network and what it complained of."""

    page: Page
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def open_notebook(self, base: str, path: str) -> None:
        """Open a notebook and wait until its kernel is idle: earlier, a command to run cells can get lost."""
        self.page.goto(f"{base}/lab/tree/{path}?token={TOKEN}&reset")
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell", timeout=START_SECONDS * 1000)
        self._wait_for_idle_kernel(START_SECONDS)

    def run_all(self, code_cells: int) -> None:
        """Run all cells from the menu and wait until each of them has a number."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        prompts = self.page.locator(".jp-CodeCell .jp-InputPrompt").filter(has_text=re.compile(r"\[\d+\]"))
        expect(prompts).to_have_count(code_cells, timeout=RUN_SECONDS * 1000)
        self._wait_for_idle_kernel(RUN_SECONDS)

    def _wait_for_idle_kernel(self, seconds: float) -> None:
        status = self.page.locator("#jp-main-statusbar").get_by_text(re.compile(r"\| Idle"))
        status.first.wait_for(timeout=seconds * 1000)


FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")


@contextlib.contextmanager
def browser(*, width: int = 1280, dark: bool = False) -> Iterator[Browser]:
    """A headless Chromium with one page of that width."""
    with sync_playwright() as engine:
        program = engine.chromium.launch(
            executable_path=chromium(),
            headless=True,
            args=[*FLAGS, "--disable-component-update", "--disable-sync"],
        )
        try:
            page = program.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
            seen = Browser(page)
            page.on("request", lambda request: seen.hosts.add(_host(request.url)))
            page.on("websocket", lambda channel: seen.hosts.add(_host(channel.url)))
            page.on("console", lambda said: seen.errors.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: seen.errors.append(str(error)))
            yield seen
        finally:
            program.close()


def _host(url: str) -> str:
    """The host a request goes to; requests that stay in the page (data:, blob:) name none and count as loopback."""
    found = re.match(r"(?:https?|wss?)://([^/:]+)", url)
    return found.group(1) if found else "127.0.0.1"
