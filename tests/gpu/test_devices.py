"""Devices: one contract on the emulator and on a GPU."""

from __future__ import annotations

import gc
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, Module, TensorMap, samples
from mlacademy.gpu.device import runs_on
from mlacademy.gpu.emulator_device import native_module
from mlacademy.gpu.ranges import Range, Registry, merged
from mlacademy.gpu.tensors import view_of

ADD = """extern "C" __global__ void add(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] += x[threadIdx.x];
}
"""
JOB = """struct Job { int first; float scale; const float* x; float* y; };
extern "C" __global__ void scale(Job job) { job.y[threadIdx.x] = job.scale * job.x[job.first + threadIdx.x]; }
"""


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", list(samples.SAMPLES))
@pytest.mark.parametrize(("seed", "scale"), [(0, 1), (7, 1), (3, 2)])
def test_sample_gives_the_independent_answer(device: Device, name: str, seed: int, scale: int) -> None:
    report, outcome = samples.run(name, device, inputs=seed, scale=scale)
    assert outcome.right, outcome
    assert report.device == device.kind


@pytest.mark.usefixtures("compiler")
def test_views_that_share_memory_stay_shared(device: Device) -> None:
    memory = np.arange(64, dtype=np.float32)
    kernel = gpu.compile(ADD)["add"]
    device.launch(kernel, LaunchPlan(1, 32), (memory[:32], memory[16:48], 16))
    expected = np.arange(64, dtype=np.float32)
    expected[16:32] += np.arange(16)
    assert np.array_equal(memory, expected)


@pytest.mark.usefixtures("compiler")
def test_torch_tensors_and_numpy_arrays_serve_alike(device: Device) -> None:
    x, y = torch.arange(32, dtype=torch.float32), np.ones(32, np.float32)
    device.launch(gpu.compile(ADD)["add"], LaunchPlan(1, 32), (x, y, 32))
    assert np.array_equal(y, np.arange(1, 33))


@pytest.mark.usefixtures("compiler")
def test_struct_carries_addresses_at_any_offset(device: Device) -> None:
    x, y = torch.arange(64, dtype=torch.float32), torch.zeros(32)
    if device.kind == "cuda":
        x, y = x.cuda(), y.cuda()
    job = struct.pack("<ifQQ", 16, 0.5, device.address(x, "x"), device.address(y, "y"))
    device.launch(gpu.compile(JOB)["scale"], LaunchPlan(1, 32), (job,))
    device.synchronize()
    assert torch.equal(y.cpu(), 0.5 * torch.arange(16, 48, dtype=torch.float32))


@pytest.mark.usefixtures("compiler")
def test_kernel_for_another_generation_is_refused(device: Device) -> None:
    kernel = gpu.compile(ADD, arch="sm_100a")["add"]
    with pytest.raises(ValueError, match=r"add was compiled for sm_100a, this device is sm_90a: compile it with arch"):
        device.launch(kernel, LaunchPlan(1, 32), (np.zeros(1, np.float32), np.zeros(1, np.float32), 1))


@pytest.fixture
def emulator(compiler: str) -> Device:
    obstacle = Device.obstacles()["emulator"]
    if obstacle:
        pytest.skip(obstacle)
    return Device("emulator")


@pytest.mark.parametrize("name", list(samples.SAMPLES))
@pytest.mark.parametrize("options", [{"order": "lazy"}, {"order": "seeded", "seed": 1}, {"order": "seeded", "seed": 2}])
def test_sample_is_right_in_whatever_order_copies_complete(
    emulator: Device, name: str, options: dict[str, int]
) -> None:
    _, outcome = samples.run(name, emulator, inputs=5, **options)
    assert outcome.right, outcome


@pytest.mark.parametrize("source", ["bulk_copy.cu", "cluster_sum.cu", Path(__file__).with_name("wrappers_warp.cu")])
def test_emulator_and_python_read_the_same_parameters(emulator: Device, source: str | Path) -> None:
    module = gpu.compile(source)
    for found in native_module().Program(module.ptx).kernels:
        kernel = module[found["name"]]
        assert [(one["offset"], one["size"], one["align"]) for one in found["params"]] == [
            (param.offset, param.size, param.align) for param in kernel.params
        ]
        assert found["param_bytes"] == kernel.param_bytes
        assert found["maxntid"][0] == (kernel.max_threads or 0)


def test_emulator_counts_and_prints(emulator: Device, capsys: pytest.CaptureFixture[str]) -> None:
    source = 'extern "C" __global__ void say(int x) { if (threadIdx.x == 1) printf("x is %d\\n", x); }'
    report = emulator.launch(gpu.compile(source)["say"], LaunchPlan(1, 32), (7,))
    assert report.output == capsys.readouterr().out == "x is 7\n"
    assert report.statistics["instructions"] > 0
    assert "say on the emulator\ngrid" in str(report)


def test_emulator_names_the_array_that_is_read_beyond_its_end_or_must_not_be_written(emulator: Device) -> None:
    kernel = gpu.compile(ADD)["add"]
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    with pytest.raises(gpu.KernelTrap, match=r"\bx\b"):
        emulator.launch(kernel, LaunchPlan(1, 64), (x, np.zeros(64, np.float32), 33))
    y.flags.writeable = False
    with pytest.raises(gpu.KernelTrap, match=r"\by\b"):
        emulator.launch(kernel, LaunchPlan(1, 32), (x, y, 32))


def test_wrong_things_to_launch_are_named(device: Device) -> None:
    module = Module.from_ptx(".version 9.0\n.target sm_90a\n.address_size 64\n.entry k()\n{ ret; }\n")
    with pytest.raises(TypeError, match=r'kernel must be one of a module, such as module\["name"\]; got Module'):
        device.launch(module, LaunchPlan(1, 32), ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="plan must be a LaunchPlan, got tuple"):
        device.launch(module["k"], (1, 32), ())  # type: ignore[arg-type]


def test_unknown_architecture_is_refused_by_the_emulator(emulator: Device) -> None:
    with pytest.raises(ValueError, match=r"arch must be sm_ and one of 75, .*; got 'hopper'"):
        Device(emulator.kind, arch="hopper")


def test_name_that_is_no_error_of_the_emulator_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"module 'mlacademy\.gpu' has no attribute 'Deadlok'"):
        gpu.Deadlok  # noqa: B018


def test_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match='device must be "emulator" or "cuda", got \'tpu\''):
        Device("tpu")


def test_every_device_works_or_says_why_not() -> None:
    for kind, obstacle in Device.obstacles().items():
        if obstacle is None:
            assert kind in Device.available()
        else:
            assert len(obstacle) > 20
            with pytest.raises(RuntimeError, match=obstacle[:20]):
                Device(kind)


@pytest.mark.parametrize(
    ("target", "arch", "fits"),
    [
        ("sm_90a", "sm_90a", True),
        ("sm_80", "sm_90a", True),
        ("sm_90", "sm_100a", True),
        ("sm_90a", "sm_100a", False),
        ("sm_100a", "sm_90a", False),
        ("sm_100f", "sm_103a", True),
        ("sm_100f", "sm_120a", False),
        ("sm_100", "sm_90a", False),
    ],
)
def test_code_runs_on_its_own_and_on_later_generations(target: str, arch: str, fits: bool) -> None:
    assert runs_on(target, arch) is fits


def test_overlapping_ranges_become_one() -> None:
    read_only, empty = Range(100, 200, "x", False), Range(5, 5, "", True)
    ranges = [read_only, Range(300, 310, "z", True), Range(150, 250, "y", True), empty]
    assert merged(ranges) == [Range(100, 250, "x / y", True), Range(300, 310, "z", True)]
    neighbours = [Range(0, 10, "a", True), Range(10, 20, "b", True)]
    assert merged(neighbours) == neighbours


def test_given_address_is_known_while_its_tensor_lives() -> None:
    registry, tensor, array = Registry(), torch.zeros(4), np.zeros(2)
    registry.add(view_of(tensor), "t")
    registry.add(view_of(array), "a")
    registry.add(view_of(tensor), "t")
    assert [one.name for one in registry.alive()] == ["t", "a"]
    del tensor
    gc.collect()
    assert [one.name for one in registry.alive()] == ["a"]


def test_span_of_a_view_reaches_from_its_first_to_its_last_byte() -> None:
    base = np.zeros((4, 8), np.float32)
    start = base.ctypes.data
    assert view_of(base).span == (start, start + 128)
    assert view_of(base[1:3, ::2]).span == (start + 32, start + 64 + 28)
    assert view_of(base[::-1]).span == (start, start + 128)
    assert view_of(base[:, :0]).nbytes == 0
    assert not view_of(np.broadcast_to(np.float32(1), 3)).writable


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.float32(1), "x must be a NumPy array or a torch tensor, got float32"),
        ("abc", "got str"),
        (torch.zeros(2, 2).to_sparse(), "x must be a dense torch tensor, got layout torch.sparse_coo"),
        (torch.zeros(2, device="meta"), "x must be in the memory of the CPU or of a CUDA GPU, got device meta"),
    ],
)
def test_what_has_no_memory_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        view_of(value, "x")


def test_sample_maps_print_their_shape() -> None:
    tensor_map = TensorMap.of(np.zeros((100, 64), np.float16), box=(64, 64), swizzle="128B", name="a")
    assert repr(tensor_map) == "<TensorMap of a: float16 100 × 64, box 64 × 64, swizzle 128B>"


@pytest.mark.parametrize("name", list(samples.SAMPLES))
def test_untouched_output_is_not_taken_for_a_result(name: str) -> None:
    assert not samples.SAMPLES[name](0, 1).compare().right
