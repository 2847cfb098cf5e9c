"""What a call on a GPU does on the host, with torch's functions and the driver replaced: in Python and natively."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
import torch
from decode_inputs import Inputs, decode_inputs
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from mlacademy import _native, cache, ops
from mlacademy.gpu import DeviceError, LaunchPlan, prepared
from mlacademy.ops import cuda, params, plan, torch_internals

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 4)
STREAM, SCRATCH = 0x7F00, 1 << 40
OPTIONS = ("topk_length", "extra_kv_cache", "extra_indices", "extra_topk_length", "attn_sink")
ARGUMENTS = ("q", "kv_cache", "indices", *OPTIONS, "buffer", "layout", "scale", "lists")


class Host:
    """A machine with one GPU, number -1 (where CPU tensors are), that notes what it is asked."""

    sms = 132

    def __init__(self) -> None:
        self.status = 0
        self.current = -1
        self.launched: list[tuple[int, tuple[int, ...], bytes, int]] = []
        self.released: list[int] = []
        self.callback = LAUNCH(self._launch)

    def _launch(self, config: int, function: int, pointers: int, extra: Any) -> int:
        where = ctypes.c_void_p.from_address(pointers).value
        assert where
        assert not extra
        told = ctypes.string_at(config, prepared.CONFIG_BYTES)
        block = ctypes.string_at(where, params.DECODE_BYTES)
        self.launched.append((function, struct.unpack_from("<7I", told), block, struct.unpack_from("<Q", told, 32)[0]))
        return self.status

    def prepare(self, kernel: Any, plan: LaunchPlan, buffer: int) -> prepared.PreparedLaunch:
        return prepared.PreparedLaunch(plan.threads_per_cta, kernel.base_name, plan, buffer)


class _Library:
    def __init__(self, host: Host) -> None:
        self.cuLaunchKernelEx = host.callback


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    pytest.importorskip("cuda.bindings.driver")
    made = Host()
    monkeypatch.setattr(prepared, "_library", lambda: _Library(made))
    monkeypatch.setattr(cuda, "device_of", lambda index: made)
    monkeypatch.setattr(torch_internals, "current_device", lambda: made.current)
    monkeypatch.setattr(torch_internals, "current_stream", lambda index: STREAM)
    monkeypatch.setattr(torch_internals, "allocate", lambda size, stream: SCRATCH)
    monkeypatch.setattr(torch_internals, "release", made.released.append)
    monkeypatch.setattr(torch_internals, "empty", torch._C._dynamo.guards._empty_strided_cpu)
    monkeypatch.setattr(torch.cuda, "device", lambda index: torch.no_grad())
    monkeypatch.setattr(cuda, "_prepared", {})
    monkeypatch.setattr(cuda, "_latest", None)
    monkeypatch.setattr(cuda, "repeat", cuda._nothing)
    return made


def decode(inputs: Any, metadata: ops.Metadata, scale: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    return cuda.sparse_decode(
        *(inputs.q, inputs.kv_cache, inputs.indices, *(None,) * 5),
        *(metadata.buffer, inputs.layout.name, scale, metadata.made_for),
    )


def word(block: bytes, place: int) -> int:
    return int(struct.unpack_from("<Q", block, 8 * place)[0])


each_path = pytest.mark.parametrize("native", ["0", "1"], ids=["python", "native"])


@each_path
def test_each_call_launches_with_its_own_addresses(host: Host, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    metadata = ops.schedule(2, 128, h_q=128)
    for turn, scale in enumerate((0.1, 0.1, 0.2)):
        inputs = decode_inputs(cache.V32, b=2, h_q=128, seed=turn)
        out, lse = decode(inputs, metadata, scale)
        assert (out.shape, out.dtype) == ((2, 1, 128, 512), torch.bfloat16)
        assert (lse.shape, lse.stride(), lse.dtype) == ((2, 128, 1), (128, 1, 128), torch.float32)
        (main, grid, block, stream), (_, _, again, _) = host.launched[2 * turn :]
        assert main == plan.DECODE_THREADS
        assert grid == (2, 1, 66, plan.DECODE_THREADS, 1, 1, plan.DECODE_SHARED_BYTES["V3.2"])
        assert stream == STREAM
        assert block == again
        named = {
            params.Q: inputs.q.data_ptr(),
            params.KV: inputs.kv_cache.data_ptr(),
            params.INDICES: inputs.indices.data_ptr(),
            params.RECORDS: metadata.buffer.data_ptr(),
            params.NUM_SPLITS: metadata.num_splits.data_ptr(),
            params.OUT: out.data_ptr(),
            params.LSE: lse.data_ptr(),
            params.OUT_PARTIAL: SCRATCH,
            params.LSE_PARTIAL: SCRATCH + 4 * plan.PARTIAL_TILE_BYTES * int(metadata.num_splits[-1]),
            params.LENGTHS: 0,
            params.PLANNED_LENGTHS: 0,
        }
        assert {place: word(block, place) for place in named} == named
        assert struct.unpack_from("<f3i", block, 216) == pytest.approx((scale * 1.442695, 2, 1, 128))
        assert host.released == [SCRATCH] * (turn + 1)
    assert len(cuda._prepared) == 1


@each_path
def test_another_shape_is_not_taken_for_the_one_before(
    host: Host, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    for heads in (128, 128, 64, 128):
        inputs = decode_inputs(cache.V32, b=2, h_q=heads)
        out, _ = decode(inputs, ops.schedule(2, 128, h_q=heads))
        assert out.shape[2] == heads
        assert struct.unpack_from("<3i", host.launched[-1][2], 220)[2] == heads
    wide = decode_inputs(cache.V32, b=2, h_q=128)
    wide.q = torch.zeros(2, 1, 128, 640, dtype=torch.bfloat16)[..., :576]
    decode(wide, ops.schedule(2, 128, h_q=128))
    assert word(host.launched[-1][2], 3) == 640
    wide.q = wide.q.half()
    with pytest.raises(TypeError, match="q must be bfloat16"):
        decode(wide, ops.schedule(2, 128, h_q=128))
    assert len(cuda._prepared) == 3


@each_path
def test_a_tensor_that_begins_at_an_odd_place_is_refused(
    host: Host, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    inputs, metadata = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64)
    decode(inputs, metadata)
    stored = torch.zeros(inputs.q.numel() + 1, dtype=torch.bfloat16)[1:]
    inputs.q = stored.view(inputs.q.shape)
    with pytest.raises(ValueError, match="q must begin at a multiple of 16 bytes, got one 2 bytes past it"):
        decode(inputs, metadata)
    assert len(host.launched) == 2


@each_path
def test_a_launch_that_the_driver_refuses_is_said_and_leaves_no_memory(
    host: Host, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda.bindings import driver

    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    monkeypatch.setattr(prepared, "driver", lambda: driver)
    inputs, metadata = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64)
    decode(inputs, metadata)
    host.status = 1
    with pytest.raises(DeviceError, match=r"launching sparse_decode_v32 failed: a value is out of range"):
        decode(inputs, metadata)
    assert host.released == [SCRATCH] * 2


@each_path
def test_a_call_for_another_gpu_than_the_current_one(host: Host, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    inputs, metadata = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64)
    decode(inputs, metadata)
    host.current, entered = 0, []

    class Entered:
        def __init__(self, index: int) -> None:
            entered.append(index)

        def __enter__(self) -> None:
            host.current = -1

        def __exit__(self, *error: object) -> None:
            host.current = 0

    monkeypatch.setattr(torch.cuda, "device", Entered)
    decode(inputs, metadata)
    assert entered == [-1]
    assert len(host.launched) == 4


def all_options(seed: int = 0) -> tuple[Inputs, ops.Metadata]:
    """A call with every option, and its metadata."""
    inputs, more = (decode_inputs(cache.MODEL1, b=2, page=page, seed=seed + page) for page in (64, 48))
    lengths = torch.tensor([100 + seed, 17], dtype=torch.int32), torch.tensor([3, 120 - seed], dtype=torch.int32)
    inputs.options = {
        "topk_length": lengths[0],
        "extra_kv_cache": more.kv_cache,
        "extra_indices": more.indices,
        "extra_topk_length": lengths[1],
        "attn_sink": torch.zeros(64),
    }
    made = ops.schedule(2, 128, h_q=64, topk_length=lengths[0], extra_topk=128, extra_topk_length=lengths[1])
    return inputs, made


@each_path
def test_every_option_reaches_the_kernels(host: Host, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    for turn in range(3):
        inputs, metadata = all_options(turn)
        cuda.sparse_decode(
            *(inputs.q, inputs.kv_cache, inputs.indices, *inputs.options.values(), metadata.buffer),
            *("MODEL1", 0.1, metadata.made_for),
        )
        slots = 2 + metadata.parts
        named = {place: inputs.options[name].data_ptr() for place, name in zip(params.OPTIONAL, OPTIONS, strict=True)}
        named |= {
            params.PLANNED_LENGTHS: metadata.lengths.data_ptr(),
            params.VERDICT: SCRATCH + slots * (2 * plan.PARTIAL_TILE_BYTES + 64 * 4),
            params.NUM_SPLITS: metadata.num_splits.data_ptr(),
        }
        for _, _, block, _ in host.launched[2 * turn :]:
            assert {place: word(block, place) for place in named} == named
    assert len(host.launched) == 6
    assert len(cuda._prepared) == 1


@each_path
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_more_or_less_is_another_call(
    host: Host, native: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    inputs, metadata = all_options()
    place = params.OPTIONAL[OPTIONS.index(name)]
    for given in (True, False, True):
        options = dict(inputs.options) if given else inputs.options | {name: None}
        if "extra" in name and not given:
            options |= {one: None for one in OPTIONS if "extra" in one}
        found = cuda.sparse_decode(
            *(inputs.q, inputs.kv_cache, inputs.indices, *options.values(), metadata.buffer, "MODEL1", 0.1)
        )
        assert found[0].shape == (2, 1, 64, 512)
        assert bool(word(host.launched[-1][2], place)) == given


class Alike(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_the_native_call_is_what_runs_where_it_can(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLACADEMY_NATIVE", raising=False)
    inputs, metadata = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64)
    call = (inputs.q, inputs.kv_cache, inputs.indices, *(None,) * 5, metadata.buffer, "V3.2", 0.1, metadata.made_for)
    assert cuda.repeat(*call) is None
    decode(inputs, metadata)
    if _native.core() is None:
        pytest.skip("there is no native module here")

    def runs(**changed: Any) -> bool:
        before = len(host.launched)
        done = cuda.repeat(*(changed.get(name, one) for name, one in zip(ARGUMENTS, call, strict=True)))
        assert len(host.launched) == before + (0 if done is None else 2)
        return done is not None

    assert runs()
    assert runs(scale=0.2, q=inputs.q.clone(), lists=(*metadata.made_for,), layout="".join(["V3", ".2"]))
    other = {
        "q": [inputs.q[:1], inputs.q.half(), inputs.q.clone().requires_grad_(), inputs.q.numpy, None],
        "topk_length": [torch.ones(2, dtype=torch.int32)],
        "attn_sink": [torch.zeros(64)],
        "buffer": [metadata.buffer[1:], None],
        "layout": ["MODEL1", cache.V32, None],
        "scale": [None, 1, 0.0, -1.0, float("nan"), float("inf")],
        "lists": [None, (2, 64, 0, False, False)],
    }
    assert not any(runs(**{name: value}) for name, values in other.items() for value in values)
    with ops.checked():
        assert not runs()
    for mode in (Alike, FakeTensorMode):
        with mode():
            assert not runs()
    seen = []
    torch.vmap(lambda x: (seen.append(runs()), x)[1])(torch.zeros(3))
    torch.func.grad(lambda x: (seen.append(runs()), x)[1])(torch.zeros(()))
    make_fx(lambda x: (seen.append(runs()), x)[1])(torch.zeros(3))
    assert seen == [False] * 3
    host.current = 0
    assert not runs()
    host.current = -1
    assert runs()
    with pytest.raises(TypeError, match="a decode call takes 12 arguments, got 3"):
        cuda.repeat(*call[:3])


def test_the_operator_tries_the_native_call_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLACADEMY_NATIVE", raising=False)
    if _native.core() is None:
        pytest.skip("there is no native module here")
    inputs, metadata = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64)
    decode(inputs, metadata)
    given = {"softmax_scale": 0.1, "metadata": metadata}
    ops.sparse_decode(inputs.q, inputs.kv_cache, inputs.indices, **given)
    assert len(host.launched) == 4
    out, _ = ops.sparse_decode(inputs.q[:1], inputs.kv_cache, inputs.indices[:1], softmax_scale=0.1)
    assert out.shape[0] == 1  # by the oracle: these are CPU tensors
    assert len(host.launched) == 4


@each_path
def test_no_memory_is_taken_where_nothing_is_cut(host: Host, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    inputs, metadata = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64, sms=1)
    decode(inputs, metadata)
    decode(inputs, metadata)
    assert [function for function, *_ in host.launched] == [plan.DECODE_THREADS] * 2
    assert not host.released


@each_path
def test_a_repeated_call_is_known_in_every_mode(host: Host, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", native)
    inputs, metadata, looked = decode_inputs(cache.V32, b=2), ops.schedule(2, 128, h_q=64), []
    find = cuda._find
    monkeypatch.setattr(cuda, "_find", lambda *given: looked.append(1) or find(*given))
    modes = [torch.no_grad, torch.inference_mode, torch.no_grad, torch.inference_mode]
    for mode in modes:
        with mode():
            for _ in range(3):
                decode(inputs, metadata)
    with torch.inference_mode():
        inputs.q = inputs.q.clone()
        for _ in range(3):
            decode(inputs, metadata)
    assert len(looked) == len(modes) + 1
    assert len(cuda._prepared) == 3


def test_without_torch_s_guard_forms_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    q, lists = torch.zeros(2, 3), torch.zeros(4, dtype=torch.int32)
    others = [(q.clone(), lists.clone()), (q.T, lists), (q, lists[1:]), (q.half(), lists), (q[:, :2], lists)]
    by_guard = [torch_internals.same_forms(q, lists)(*pair) for pair in others]
    monkeypatch.setattr(torch_internals, "_guards", None)
    assert [torch_internals.same_forms(q, lists)(*pair) for pair in others] == by_guard == [True, *[False] * 4]
