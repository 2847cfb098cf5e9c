"""What all tests share: the repository, an environment apart from the user's, and when browser tests are skipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clone import ROOT, copy_tracked
from hypothesis import settings

from mlacademy.machine import chromium

settings.register_profile("mlacademy", deadline=None)  # two shared cores: a slow example is no failure
settings.load_profile("mlacademy")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this clone."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def apart_from_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the kernels and servers that tests start out of the user's Jupyter, IPython and matplotlib folders."""
    home = tmp_path_factory.mktemp("home")
    apart = {
        "IPYTHONDIR": home / "ipython",
        "JUPYTER_CONFIG_DIR": home / "jupyter-config",
        "JUPYTER_DATA_DIR": home / "jupyter-data",
        "JUPYTER_RUNTIME_DIR": home / "jupyter-runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "lab-settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "lab-workspaces",
    }
    former = {name: os.environ.get(name) for name in [*apart, "MPLBACKEND", "PYDEVD_DISABLE_FILE_VALIDATION"]}
    os.environ.update({name: str(path) for name, path in apart.items()})
    os.environ.update({"MPLBACKEND": "Agg", "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    yield
    for name, value in former.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of this clone's tracked files in a git repository of its own, with everything committed."""
    clone = copy_tracked(tmp_path / "clone")
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Copy"]):
        subprocess.run([*git, *command], cwd=clone, check=True, capture_output=True)
    return clone


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Browser tests need Chromium: without it they are skipped here and fail in CI, which must bring it."""
    if item.get_closest_marker("browser") and chromium() is None:
        sentence = "no Chromium here: apt-get install chromium, or name one in MLACADEMY_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
