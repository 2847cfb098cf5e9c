"""A prepared launch hands the driver the config of its plan, in the stream it is told."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from mlacademy.gpu import DeviceError, LaunchPlan, prepared

pytest.importorskip("cuda.bindings.driver")

CLUSTER, PROGRAMMATIC = 4, 6  # of CUlaunchAttributeID


class FakeLibrary:
    """Notes what `cuLaunchKernelEx` is given."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.calls: list[tuple[bytes, int, int]] = []

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        assert extra.value is None
        parameter = ctypes.c_void_p.from_address(pointers.value).value
        assert parameter is not None
        self.calls.append((ctypes.string_at(config.value, 56), function.value, parameter))
        return self.status


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(prepared, "_library", lambda: fake)
    return fake


def attributes(config: bytes) -> dict[int, tuple[int, int, int]]:
    address, count = struct.unpack_from("<QI", config, 40)
    memory = ctypes.string_at(address, 72 * count) if count else b""
    return {
        struct.unpack_from("<I", memory, at)[0]: struct.unpack_from("<3I", memory, at + 8)
        for at in range(0, len(memory), 72)
    }


def test_the_config_is_the_plan(library: FakeLibrary) -> None:
    plan = LaunchPlan(grid=(2, 3, 66), block=(384, 1), cluster=2, smem_bytes=230_144, programmatic=True)
    buffer = ctypes.create_string_buffer(256)
    launch = prepared.PreparedLaunch(0x1234, "k", plan, ctypes.addressof(buffer))
    for stream in (0, 0x7F00_0000_1000, 0):
        launch(stream)
        config, function, parameter = library.calls[-1]
        assert struct.unpack_from("<7I", config) == (2, 3, 66, 384, 1, 1, 230_144)
        assert struct.unpack_from("<Q", config, 32) == (stream,)
        assert (function, parameter) == (0x1234, ctypes.addressof(buffer))
        found = attributes(config)
        assert found[CLUSTER] == (2, 1, 1)
        assert found[PROGRAMMATIC][0] == 1


def test_a_plain_plan_has_no_attributes(library: FakeLibrary) -> None:
    buffer = ctypes.create_string_buffer(8)
    prepared.PreparedLaunch(1, "k", LaunchPlan(grid=4, block=64), ctypes.addressof(buffer))(0)
    assert attributes(library.calls[0][0]) == {}


def test_a_refused_launch_is_said(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(prepared, "driver", lambda: driver)
    library.status = 1
    buffer = ctypes.create_string_buffer(8)
    launch = prepared.PreparedLaunch(1, "scale", LaunchPlan(grid=4, block=64), ctypes.addressof(buffer))
    with pytest.raises(
        DeviceError, match=r"launching scale failed: a value is out of range .*CUDA_ERROR_INVALID_VALUE"
    ):
        launch(0)
