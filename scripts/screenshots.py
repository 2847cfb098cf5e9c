"""Photograph every widget in a real JupyterLab, in light and in dark, into docs/screenshots/.

    .venv/bin/python scripts/screenshots.py                    # all widgets, both themes
    .venv/bin/python scripts/screenshots.py splits --out /tmp  # one of them, elsewhere
    .venv/bin/python scripts/screenshots.py --readme           # the README's picture: chapter 04 in JupyterLab

It writes a notebook with one cell a widget into a temporary folder, opens it in headless Chromium and crops each
widget to `<widget>-light.png` and `<widget>-dark.png`. Needs playwright and a Chromium (`--chromium`); talks to this
machine only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Page, sync_playwright

from mlacademy.machine import chromium

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "screenshots"
WIDTH, HEIGHT = 1000, 1000  # the narrowest window the course promises to work in
TRACED = """from mlacademy.gpu import Device, samples
trace = samples.run("wgmma_ring", Device("emulator"), trace=True)[0].trace
"""


@dataclass(frozen=True)
class Shot:
    """How a widget is photographed: its arguments and what is set before; the part in focus, by index or by keys."""

    after: str = ""
    part: int | None = None
    keys: tuple[str, ...] = ()
    before: str = ""
    arguments: str = ""


SHOTS = {
    "token_bytes": Shot(part=138),
    "number_line": Shot(part=5),
    "compression": Shot(part=2),
    "splits": Shot("w.presets.value = 'H800 / H200, V3.2, b = 16'", part=10),
    "softmax": Shot("w.presets.value = 'holes at the front'", part=9),
    "combine": Shot("w.presets.value = 'a sink as large as the rest'", part=1),
    "swizzle": Shot(part=42),
    "fragment": Shot(part=60),
    "barrier": Shot("w.set(step=8)", part=13, before=TRACED, arguments="trace"),
    "timeline": Shot(keys=("ArrowRight", *["ArrowDown"] * 5, "ArrowRight"), before=TRACED, arguments="trace"),
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
MARGIN = 10


def main() -> int:
    """Take the pictures; return 1 if one of them came out larger than 150 KB."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("widgets", nargs="*", metavar="widget", help=f"any of {', '.join(SHOTS)}; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--chromium", default=chromium())
    parser.add_argument("--readme", action="store_true", help="photograph chapter 04 in JupyterLab for the README")
    arguments = parser.parse_args()
    names = arguments.widgets or list(SHOTS)
    unknown = set(names) - SHOTS.keys()
    if unknown:
        parser.error(f"no such widget: {', '.join(sorted(unknown))}; there are {', '.join(SHOTS)}")
    if arguments.chromium is None:
        parser.error("no Chromium found: install the package chromium, or name one with --chromium")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.readme:
        return photograph_chapter(arguments.chromium, arguments.out / "readme.png")
    too_large = 0
    with tempfile.TemporaryDirectory(prefix="screenshots-") as folder, sync_playwright() as playwright:
        write_notebook(Path(folder) / "widgets.ipynb", names)
        browser = playwright.chromium.launch(executable_path=arguments.chromium, headless=True, args=FLAGS)
        for theme in ("light", "dark"):
            with jupyterlab(Path(folder), theme) as address:
                for path in photograph(browser, address, names, theme, arguments.out):
                    size = path.stat().st_size
                    too_large += size > 150_000
                    print(
                        f"{path.name:28} {size / 1000:6.1f} KB" + ("  too large" if size > 150_000 else ""), flush=True
                    )
        browser.close()
    return 1 if too_large else 0


def write_notebook(path: Path, names: list[str]) -> None:
    """Write one code cell a widget."""
    cells = [
        nbformat.v4.new_code_cell(
            f"{shot.before}from mlacademy import viz\nw = viz.explore_{name}({shot.arguments})\n{shot.after}\nw"
        )
        for name, shot in ((name, SHOTS[name]) for name in names)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


@contextlib.contextmanager
def jupyterlab(folder: Path, theme: str) -> Iterator[str]:
    """Run JupyterLab on a free loopback port with its own configuration; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = folder / f".{theme}"
    environment = {name: value for name, value in os.environ.items() if name != "MLACADEMY_STATIC"} | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_CONFIG_PATH": str(ROOT / "src" / "mlacademy" / "cli" / "jupyter"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"),
        *(f"--ServerApp.root_dir={folder}", "--LabApp.extension_manager=readonly"),
    ]
    with (folder / f"{theme}.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api/status?token={TOKEN}", server)
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers, a minute at most."""
    for _ in range(240):
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=1):
            return
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with code {server.returncode}")
        time.sleep(0.25)
    raise RuntimeError("JupyterLab did not answer within a minute")


def photograph(browser: Browser, address: str, names: list[str], theme: str, out: Path) -> Iterator[Path]:
    """Open the notebook, run it, and crop every widget."""
    # The course's settings let JupyterLab follow the browser's colour scheme.
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/lab/tree/widgets.ipynb?token={TOKEN}&reset")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell", timeout=90_000)
    wait_for_kernel(page)
    page.keyboard.press("Control+b")  # the window is 1,000 pixels wide; the file browser is not needed
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    for index, name in enumerate(names):
        yield crop(page, index, SHOTS[name], out / f"{name}-{theme}.png")
    if errors:
        print(f"{theme}: the page's console shows {len(errors)} errors, the first: {errors[0]}", file=sys.stderr)
    page.close()


def wait_for_kernel(page: Page) -> None:
    """Wait until the status bar says that the notebook's kernel is idle; earlier, "Run All" can get lost."""
    page.locator("#jp-main-statusbar").get_by_text("| Idle").first.wait_for(timeout=90_000)


def photograph_chapter(program: str, path: Path) -> int:
    """Open chapter 04 as a learner does, run it, and save the window with the scheduler's widget in view."""
    with tempfile.TemporaryDirectory(prefix="screenshots-") as name, sync_playwright() as playwright:
        folder = Path(name)
        shutil.copytree(
            ROOT / "lessons", folder / "lessons", ignore=shutil.ignore_patterns("claims", "errata", "zh_CN")
        )
        shutil.copytree(ROOT / "exercises", folder / "exercises")
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=FLAGS)
        with jupyterlab(folder, "light") as address:
            page = browser.new_page(viewport={"width": 1360, "height": 940})
            page.goto(f"{address}/lab/tree/lessons/04_tile_scheduler.ipynb?token={TOKEN}&reset")
            page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell", timeout=90_000)
            wait_for_kernel(page)
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            drawing = page.locator(".mla-drawing svg").first
            drawing.wait_for(state="attached", timeout=180_000)
            page.locator(".jp-CodeCell", has=drawing).first.evaluate("cell => cell.scrollIntoView({block: 'start'})")
            drawing.wait_for(timeout=30_000)
            page.locator(".widget-dropdown select").first.select_option(label="H800 / H200, V3.2, b = 16")
            page.wait_for_timeout(1500)
            drawing.locator("[data-detail]").nth(10).focus()
            page.locator(".jp-CodeCell", has=drawing).first.evaluate("cell => cell.scrollIntoView({block: 'start'})")
            page.wait_for_timeout(1000)
            page.screenshot(path=path, animations="disabled")
        browser.close()
    print(f"{path.name} {path.stat().st_size / 1000:.1f} KB")
    return 0


def crop(page: Page, index: int, shot: Shot, path: Path) -> Path:
    """Scroll to the widget of one cell, focus one of its parts, and save what the widget covers."""
    cell = page.locator(".jp-CodeCell").nth(index)
    cell.scroll_into_view_if_needed()
    drawing = cell.locator(".mla-drawing svg, .mla-canvas")
    drawing.wait_for(timeout=90_000)
    cell.evaluate("element => element.querySelector('.jp-OutputArea').scrollIntoView({block: 'center'})")
    if shot.part is not None:
        drawing.locator("[data-detail]").nth(shot.part).focus()
    else:
        drawing.focus()
    for key in shot.keys:
        page.keyboard.press(key)
    cell.evaluate("element => element.querySelector('.jp-OutputArea').scrollIntoView({block: 'center'})")
    page.wait_for_timeout(400)
    box = cell.locator(".jp-OutputArea-output .widget-vbox").first.bounding_box()
    assert box is not None
    clip = {
        "x": box["x"] - MARGIN / 2,
        "y": box["y"] - MARGIN / 2,
        "width": box["width"] + MARGIN,
        "height": min(box["height"] + MARGIN, HEIGHT - box["y"] - 30),
    }
    page.screenshot(path=path, clip=clip, animations="disabled")  # type: ignore[arg-type]
    return path


if __name__ == "__main__":
    sys.exit(main())
