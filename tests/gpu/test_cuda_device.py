"""The GPU device: what it asks of the driver, by a driver that keeps "GPU memory" on the host; then a real one."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, DeviceError, LaunchPlan, Module, TensorMap, cuda_device, staging
from mlacademy.gpu import driver as driver_module

PTX = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u32 k_param_2)
{ ret; }
.visible .entry mapped(.param .align 64 .b8 mapped_param_0[128])
{ ret; }
"""


class FakeDriver:
    """Answers like ``cuda.bindings.driver``; a launch adds 1 to each byte of its second pointer argument."""

    def __init__(self, real: Any, refuse: str = "") -> None:
        self.real = real
        self.refuse = refuse
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.memory: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.launches: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name.startswith("cuuint") or name == "cuGetErrorString":
            return getattr(self.real, name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, arguments))
            if name == self.refuse:
                return self.real.CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
            values = getattr(self, f"_{name}", lambda *_: (name,))(*arguments)
            return (self.real.CUresult.CUDA_SUCCESS, *values)

        return call

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (1,)

    def _cuDeviceGetAttribute(self, attribute: Any, device: Any) -> tuple[int]:
        return (9 if "CAPABILITY_MAJOR" in attribute.name else 0,)

    def _cuDeviceGetName(self, size: int, device: Any) -> tuple[bytes]:
        return (b"NVIDIA H200" + bytes(size - 11),)

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        room = ctypes.create_string_buffer(size + 512)
        address = -(-ctypes.addressof(room) // 256) * 256
        self.memory[address] = room
        return (address,)

    def _cuMemFree(self, address: int) -> tuple[()]:
        del self.memory[address]
        return ()

    def _cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[()]:
        ctypes.memmove(target, source, size)
        return ()

    def _cuMemcpyDtoH(self, target: int, source: int, size: int) -> tuple[()]:
        ctypes.memmove(target, source, size)
        return ()

    def _cuTensorMapEncodeTiled(self, *arguments: Any) -> tuple[Any]:
        return (self.real.CUtensorMap(),)

    def _cuLaunchKernelEx(self, config: Any, function: Any, params: int, extra: int) -> tuple[()]:
        pointers = ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p))
        target = ctypes.cast(pointers[1], ctypes.POINTER(ctypes.c_uint64))[0] if pointers[1] else 0
        if any(start <= target < start + len(room) for start, room in self.memory.items()):
            data = (ctypes.c_uint8 * 4).from_address(target)
            for index in range(4):
                data[index] += 1
        self.launches.append(
            {
                "grid": (config.gridDimX, config.gridDimY, config.gridDimZ),
                "smem_bytes": config.sharedMemBytes,
                "stream": int(config.hStream),
                "attributes": [attribute.id.name.removeprefix("CU_LAUNCH_ATTRIBUTE_") for attribute in config.attrs],
            }
        )
        return ()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    bindings = pytest.importorskip("cuda.bindings.driver", reason="NVIDIA's Python bindings are not installed")
    made = FakeDriver(bindings)
    for module in (driver_module, cuda_device, staging):
        monkeypatch.setattr(module, "driver", lambda: made)
    return made


class OnGpu:
    """An array that says its memory is the GPU's."""

    def __init__(self, array: np.ndarray) -> None:
        self.dtype = array.dtype
        self.__cuda_array_interface__ = array.__array_interface__


@pytest.mark.usefixtures("fake")
def test_device_knows_its_gpu() -> None:
    device = Device("cuda")
    assert (device.name, device.arch, device.kind) == ("NVIDIA H200", "sm_90a", "cuda")
    with pytest.raises(ValueError, match="index must be 0 to 0, there are 1 GPUs; got 1"):
        Device("cuda", index=1)


def test_host_arrays_are_copied_there_and_back_once(fake: FakeDriver) -> None:
    memory = np.zeros(4096, np.uint8)
    read_only = np.arange(64, dtype=np.uint8)
    read_only.flags.writeable = False
    Device("cuda").launch(Module.from_ptx(PTX)["k"], LaunchPlan(1, 32), (read_only, memory[1000:1100], 5))
    assert memory.tolist() == [0] * 1000 + [1] * 4 + [0] * 3092
    copied_back = [arguments[2] for name, arguments in fake.calls if name == "cuMemcpyDtoH"]
    assert copied_back == [100]
    assert not fake.memory
    order = [name for name in fake.names() if name in ("cuLaunchKernelEx", "cuStreamSynchronize", "cuMemFree")]
    assert order == ["cuLaunchKernelEx", "cuStreamSynchronize", "cuMemFree", "cuMemFree"]


def test_copies_keep_the_alignment_of_the_host_address(fake: FakeDriver) -> None:
    memory = np.zeros(4096, np.uint8)
    Device("cuda").launch(Module.from_ptx(PTX)["k"], LaunchPlan(1, 32), (memory[:16], memory[48:64], 5))
    for name, arguments in fake.calls:
        if name == "cuMemcpyHtoDAsync":
            assert arguments[0] % 256 == arguments[1] % 256


def test_gpu_tensors_are_neither_copied_nor_waited_for(fake: FakeDriver) -> None:
    tensor = OnGpu(np.zeros(64, np.uint8))
    Device("cuda").launch(Module.from_ptx(PTX)["k"], LaunchPlan(1, 32), (tensor, tensor, 5), stream=1234)
    assert fake.launches[0]["stream"] == 1234
    assert not {"cuMemAlloc", "cuStreamSynchronize", "cuCtxSynchronize", "cuMemcpyHtoDAsync"} & set(fake.names())


def test_plan_becomes_launch_attributes(fake: FakeDriver) -> None:
    device, kernel = Device("cuda"), Module.from_ptx(PTX)["k"]
    device.launch(kernel, LaunchPlan((4, 2), 32), (None, None, 0))
    device.launch(kernel, LaunchPlan(4, 32, cluster=2, smem_bytes=49_153, programmatic=True), (None, None, 0))
    device.launch(kernel, LaunchPlan(16, 32, cluster=16, smem_bytes=49_152), (None, None, 0))
    assert [one["attributes"] for one in fake.launches] == [
        [],
        ["CLUSTER_DIMENSION", "PROGRAMMATIC_STREAM_SERIALIZATION"],
        ["CLUSTER_DIMENSION"],
    ]
    assert [one["grid"] for one in fake.launches] == [(4, 2, 1), (4, 1, 1), (16, 1, 1)]
    allowed = [(arguments[1].name, arguments[2]) for name, arguments in fake.calls if name == "cuFuncSetAttribute"]
    assert allowed == [
        ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 49_153),
        ("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1),
    ]


def test_a_small_plan_leaves_a_prepared_large_one_its_shared_memory(fake: FakeDriver) -> None:
    device, kernel = Device("cuda"), Module.from_ptx(PTX)["k"]
    for smem_bytes in (1120, 68, 0, 1120, 2000, 1120):
        device.launch(kernel, LaunchPlan(1, 32, smem_bytes=smem_bytes), (None, None, 0))
    assert [arguments[2] for name, arguments in fake.calls if name == "cuFuncSetAttribute"] == [1120, 2000]


def test_module_is_loaded_once_whatever_object_carries_it(fake: FakeDriver) -> None:
    device = Device("cuda")
    for _ in range(3):
        device.launch(Module.from_ptx(PTX)["k"], LaunchPlan(1, 32), (None, None, 0))
    assert fake.names().count("cuModuleLoadDataEx") == 1
    assert "cuModuleUnload" not in fake.names()


def test_tensor_map_is_encoded_for_the_copy(fake: FakeDriver) -> None:
    tensor_map = TensorMap.of(np.zeros((8, 64), np.float16), box=(4, 64), swizzle="128B")
    Device("cuda").launch(Module.from_ptx(PTX)["mapped"], LaunchPlan(1, 32), (tensor_map,))
    ((kind, rank, address, dims, strides, box, *_),) = [a for name, a in fake.calls if name == "cuTensorMapEncodeTiled"]
    assert (kind.name, rank) == ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", 2)
    assert [[int(value) for value in values] for values in (dims, strides, box)] == [[64, 8], [128], [64, 4]]
    assert address != tensor_map.tensor.ctypes.data


def test_refusal_of_the_driver_is_a_sentence_and_leaves_nothing_behind(fake: FakeDriver) -> None:
    device = Device("cuda")
    fake.refuse = "cuLaunchKernelEx"
    with pytest.raises(
        DeviceError, match=r"launching k failed: the GPU has too little free memory \(CUDA_ERROR_OUT_OF"
    ):
        device.launch(Module.from_ptx(PTX)["k"], LaunchPlan(1, 32), (np.zeros(4), np.zeros(4), 0))
    assert not fake.memory


def test_kernel_that_breaks_off_is_named_by_the_drivers_reason(fake: FakeDriver) -> None:
    device, target = Device("cuda"), np.zeros(4)
    fake.refuse = "cuStreamSynchronize"
    with pytest.raises(DeviceError, match="running the kernel failed"):
        device.launch(Module.from_ptx(PTX)["k"], LaunchPlan(1, 32), (np.zeros(4), target, 0))
    assert not fake.memory


@pytest.mark.usefixtures("fake")
def test_address_of_host_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"q must be on the GPU to have an address there, it is in host memory: use"):
        Device("cuda").address(np.zeros(4), "q")


@pytest.mark.gpu
@pytest.mark.usefixtures("compiler")
def test_driver_assembles_ptx_and_quotes_its_complaints() -> None:
    obstacle = Device.obstacles()["cuda"]
    if obstacle:
        pytest.skip(obstacle)
    device = Device("cuda")
    ptx = gpu.compile('extern "C" __global__ void set(int* x) { *x = 7; }').ptx
    target = np.zeros(1, np.int32)
    device.launch(Module.from_ptx(ptx)["set"], LaunchPlan(1, 1), (target,))
    assert target[0] == 7
    with pytest.raises(DeviceError, match=r"does not understand the PTX .* Unknown modifier"):
        device.launch(Module.from_ptx(ptx.replace("st.global", "st.glbal"))["set"], LaunchPlan(1, 1), (target,))
