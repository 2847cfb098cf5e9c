"""What tests of the GPU layer share: a cache of their own, and devices that are skipped where they do not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlacademy.gpu import Device, nvrtc


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(autouse=True)
def cache_apart(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels of tests stay out of the user's cache."""
    monkeypatch.setenv("MLACADEMY_CACHE", str(shared_cache))


@pytest.fixture
def compiler() -> str:
    """The compiler's versions; the test is skipped where there is none."""
    found = nvrtc.identity()
    if found is None:
        pytest.skip(nvrtc.missing_sentence())
    return found


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device in turn."""
    obstacle = Device.obstacles()[request.param]
    if obstacle:
        pytest.skip(obstacle)
    return Device(request.param)
