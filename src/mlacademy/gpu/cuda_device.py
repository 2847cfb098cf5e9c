"""A real GPU as a device: the driver API, without synchronising, so that launches can be captured in a CUDA graph."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mlacademy.gpu.device import Device, LaunchReport
from mlacademy.gpu.driver import ask, driver, load_ptx
from mlacademy.gpu.errors import DeviceError
from mlacademy.gpu.kernel import Kernel
from mlacademy.gpu.module import Module
from mlacademy.gpu.packing import described, pack
from mlacademy.gpu.plan import PORTABLE_CLUSTER, LaunchPlan
from mlacademy.gpu.prepared import PreparedLaunch, launch_config
from mlacademy.gpu.staging import Staging
from mlacademy.gpu.tensor_map import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES, Im2colMap, TensorMap
from mlacademy.gpu.tensors import TensorView, view_of


class CudaDevice(Device):
    """Runs kernels on GPU number ``index``, in its primary context, which torch shares.

    GPU tensors are used where they are and nothing waits. Arrays in host memory are copied to the GPU before the
    launch and back after it, which does wait: convenient in a lesson, refused inside a graph capture.
    """

    kind = "cuda"

    def __init__(self, kind: str = "cuda", *, index: int = 0) -> None:
        driver()
        count = ask("cuDeviceGetCount", doing="counting the GPUs")
        if not 0 <= index < count:
            raise ValueError(f"index must be 0 to {count - 1}, there are {count} GPUs; got {index}")
        self.index = index
        self._device = ask("cuDeviceGet", index, doing=f"opening GPU {index}")
        self._context = ask("cuDevicePrimaryCtxRetain", self._device, doing=f"opening GPU {index}")
        attribute = driver().CUdevice_attribute
        major = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        self.arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
        self.sms = self._attribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        padded = ask("cuDeviceGetName", 128, self._device, doing="asking the GPU's name")
        self.name = padded.split(b"\0")[0].decode()
        self._loaded: dict[str, _Loaded] = {}  # by PTX: a CUDA graph may outlive the Module, so nothing is unloaded

    @classmethod
    def obstacle(cls) -> str | None:
        try:
            if not ask("cuDeviceGetCount", doing="counting the GPUs"):
                return "there is no NVIDIA GPU on this machine"
        except DeviceError as error:
            return str(error)
        return None

    def launch(
        self, kernel: Kernel, plan: LaunchPlan, args: Sequence[Any], *, stream: Any = None, **options: Any
    ) -> LaunchReport:
        """Put ``kernel`` into ``stream``: a torch stream, a stream's address, or None for torch's current stream.

        Further ``options`` are the emulator's and have no effect here.
        """
        self.check(kernel, plan)
        self._enter()
        handle = self._stream(stream)
        args = described(kernel, args)
        with Staging(_on_host(args), handle) as staging:
            params = pack(kernel, args, _Arguments(staging, self.index))
            self._launch(kernel, plan, params, handle)
        return LaunchReport("cuda", kernel.demangled, plan)

    def prepare(self, kernel: Kernel, plan: LaunchPlan, buffer: int) -> PreparedLaunch:
        """``kernel`` by ``plan``, to be launched often; its only parameter is the struct at the address ``buffer``."""
        self.check(kernel, plan)
        if len(kernel.params) != 1:
            raise ValueError(f"kernel must have one parameter to be prepared, {kernel!r} has {len(kernel.params)}")
        self._enter()
        return PreparedLaunch(self._function(kernel, plan), kernel.base_name, plan, buffer)

    def address(self, tensor: Any, name: str = "") -> int:
        return _on_gpu(view_of(tensor), name or "tensor").address

    def encode(self, tensor_map: TensorMap, name: str = "") -> bytes:
        self._enter()
        view = _on_gpu(view_of(tensor_map.tensor), name or tensor_map.name or "tensor of a map")
        return encode_for_driver(tensor_map, view.address)

    def synchronize(self) -> None:
        self._enter()
        ask("cuCtxSynchronize", doing="waiting for the GPU")

    def _attribute(self, attribute: Any) -> int:
        return int(ask("cuDeviceGetAttribute", attribute, self._device, doing="asking the GPU's properties"))

    def _enter(self) -> None:
        ask("cuCtxSetCurrent", self._context, doing=f"switching to GPU {self.index}")

    def _stream(self, stream: Any) -> int:
        if stream is None:
            torch = sys.modules.get("torch")
            if torch is None or not torch.cuda.is_available():
                return 0
            stream = torch.cuda.current_stream(self.index)
        return int(getattr(stream, "cuda_stream", stream))

    def _launch(self, kernel: Kernel, plan: LaunchPlan, params: bytes, stream: int) -> None:
        cuda = driver()
        config = launch_config(plan)
        config.hStream = cuda.CUstream(stream)
        buffer = ctypes.create_string_buffer(params, max(len(params), 1))
        base = ctypes.addressof(buffer)
        pointers = (ctypes.c_void_p * max(len(kernel.params), 1))(*(base + param.offset for param in kernel.params))
        ask(
            "cuLaunchKernelEx",
            config,
            self._function(kernel, plan),
            ctypes.addressof(pointers),
            0,
            doing=f"launching {kernel.base_name}",
        )

    def _function(self, kernel: Kernel, plan: LaunchPlan) -> Any:
        """The loaded kernel, allowed the shared memory and the cluster that ``plan`` wants."""
        module = kernel.module
        if module.ptx not in self._loaded:
            self._loaded[module.ptx] = _Loaded(_load(module))
        loaded = self._loaded[module.ptx]
        if kernel.name not in loaded.functions:
            loaded.functions[kernel.name] = ask(
                "cuModuleGetFunction", loaded.module, kernel.name.encode(), doing=f"finding {kernel.base_name}"
            )
        function = loaded.functions[kernel.name]
        names, doing = driver().CUfunction_attribute, f"preparing {kernel.base_name}"
        # The limit without it is for static and dynamic shared memory together. It is never lowered, for the sake of
        # plans that were prepared before.
        if plan.smem_bytes > loaded.allowed_bytes.get(kernel.name, 0):
            name = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ask("cuFuncSetAttribute", function, name, plan.smem_bytes, doing=doing)
            loaded.allowed_bytes[kernel.name] = plan.smem_bytes
        if plan.ctas_per_cluster > PORTABLE_CLUSTER:
            name = names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            ask("cuFuncSetAttribute", function, name, 1, doing=doing)
        return function


@dataclass
class _Loaded:
    """A module on the GPU, the kernels found in it so far, and the dynamic shared memory that each may have."""

    module: Any
    functions: dict[str, Any] = field(default_factory=dict)
    allowed_bytes: dict[str, int] = field(default_factory=dict)


def _load(module: Module) -> Any:
    if module.assembled:
        return ask("cuModuleLoadData", module.cubin(), doing=f"loading {module.name}")
    return load_ptx(module.ptx, module.name)


class _Arguments:
    """Answers `pack`: GPU tensors where they are, host arrays where they were copied to."""

    def __init__(self, staging: Staging, index: int) -> None:
        self._staging = staging
        self._index = index

    def locate(self, view: TensorView, name: str) -> int:
        if not view.on_gpu:
            return self._staging.address(view)
        where = getattr(getattr(view.owner, "device", None), "index", self._index)
        if where != self._index:
            raise ValueError(f"{name} must be on GPU {self._index}, it is on GPU {where}")
        return view.address

    def encode(self, tensor_map: TensorMap, name: str) -> bytes:
        return encode_for_driver(tensor_map, self.locate(view_of(tensor_map.tensor, name), name))


def _on_host(args: Sequence[Any]) -> list[TensorView]:
    """The host memory among the arguments, that of tensor maps included."""
    views = (view_of(arg.tensor) if isinstance(arg, TensorMap) else arg for arg in args)
    return [view for view in views if isinstance(view, TensorView) and not view.on_gpu]


def _on_gpu(view: TensorView, name: str) -> TensorView:
    if not view.on_gpu:
        raise ValueError(f"{name} must be on the GPU to have an address there, it is in host memory: use .cuda()")
    return view


def encode_for_driver(tensor_map: TensorMap, address: int) -> bytes:
    """The driver's 128 opaque bytes of a map whose tensor lies at ``address`` on the GPU."""
    cuda = driver()
    if isinstance(tensor_map, Im2colMap):
        encoder = "cuTensorMapEncodeIm2col"
        box: list[Any] = [list(tensor_map.lower_corner), list(tensor_map.upper_corner), *tensor_map.box]
    else:
        encoder = "cuTensorMapEncodeTiled"
        box = [[cuda.cuuint32_t(size) for size in tensor_map.box]]
    encoded = ask(
        encoder,
        cuda.CUtensorMapDataType(tensor_map.element.driver_code),
        tensor_map.rank,
        address,
        [cuda.cuuint64_t(size) for size in tensor_map.dims],
        [cuda.cuuint64_t(stride) for stride in tensor_map.strides or (16,)],  # the driver wants an array in any case
        *box,
        [cuda.cuuint32_t(step) for step in tensor_map.element_strides],
        cuda.CUtensorMapInterleave(INTERLEAVES[tensor_map.interleave]),
        cuda.CUtensorMapSwizzle(SWIZZLES[tensor_map.swizzle]),
        cuda.CUtensorMapL2promotion(L2_PROMOTIONS[tensor_map.l2_promotion]),
        cuda.CUtensorMapFloatOOBfill(OOB_FILLS[tensor_map.oob_fill]),
        doing=f"encoding {tensor_map!r}",
    )
    return ctypes.string_at(encoded.getPtr(), 128)
