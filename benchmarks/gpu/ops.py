"""Are the operators right on this GPU, and what does a call cost the host?

python benchmarks/gpu/ops.py                     the cases of _decode_cases.py, a sample of the public matrix, the rest
python benchmarks/gpu/ops.py --sample 4896       all of the public library's matrix (two minutes)
python benchmarks/gpu/ops.py --only host         the host cost alone

Needs a Hopper GPU. Every result is compared with a float64 oracle that runs on the GPU in torch: an output element
passes when it is within 1e-3 or within 2.01/128 of its size, an lse within 1e-6 or 8.01/65536, empty rows and NaN must
match exactly, and 1 minus the cosine stays below 5e-6. Slots that no list names hold NaN. The host cost is the median
time of a call that finds the queue of the GPU empty enough: 100 calls, then a wait, 40 times. Its split is of calls
that leave a part out; what is left of the native call is addresses, the parameter block and the results' tuple.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _decode_cases import further, sample
from _decode_data import Call, random_call
from _report import write
from torch import Tensor

from mlacademy import _native, cache, gpu, ops
from mlacademy.compat import flash_mla
from mlacademy.gpu.cuda_device import CudaDevice
from mlacademy.ops import cuda, torch_internals

Row = dict[str, Any]
OPTIONS = ("topk_length", "extra_kv_cache", "extra_indices", "extra_topk_length", "attn_sink")


def decode(call: Call, **more: Any) -> tuple[Tensor, Tensor]:
    return ops.sparse_decode(
        call.q, call.kv_cache, call.indices, layout=call.layout, softmax_scale=call.scale, **call.options, **more
    )


def decode_public(call: Call, schedule: Any) -> tuple[Tensor, Tensor]:
    options = dict(call.options)
    return flash_mla.flash_mla_with_kvcache(
        call.q,
        call.kv_cache.view(torch.float8_e4m3fn),
        None,
        None,
        512,
        schedule,
        softmax_scale=call.scale,
        is_fp8_kvcache=True,
        indices=call.indices,
        extra_k_cache=options.pop("extra_kv_cache", None),
        extra_indices_in_kvcache=options.pop("extra_indices", None),
        **options,
    )


def schedule_of(call: Call, **more: Any) -> ops.Metadata:
    b, s_q, h_q, _ = call.q.shape
    extra = call.options.get("extra_indices")
    return ops.schedule(
        b,
        call.indices.shape[-1],
        s_q=s_q,
        h_q=h_q,
        topk_length=call.options.get("topk_length"),
        extra_topk=None if extra is None else extra.shape[-1],
        extra_topk_length=call.options.get("extra_topk_length"),
        device="cuda",
        **more,
    )


def close(got: Tensor, exact: Tensor, absolute: float, relative: float) -> bool:
    """Whether finite elements are near enough, and all others the same."""
    error, finite = (got - exact).abs(), exact.isfinite()
    return bool(torch.where(finite, (error < absolute) | (error < relative * exact.abs()), got == exact).all())


def compare(result: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> Row:
    """Whether a result passes, and the error of its norm."""
    out, lse = result
    passed = close(out, exact[0], 1e-3, 2.01 / 128) and close(lse, exact[1], 1e-6, 8.01 / 65536)
    got, wanted = out.double().flatten(), exact[0].flatten()
    squares = got @ got + wanted @ wanted
    cosine = float(2 * (got @ wanted) / squares) if squares > 0 else 1.0
    size = float(wanted.norm())
    error = float((got - wanted).norm()) / size if size else float(got.norm())
    return {"passed": passed and abs(1 - cosine) < 5e-6, "rel_err": error}


def case_rows() -> Iterator[Row]:
    """Our own cases: right, the same bits again, the same with other cuts."""
    for seed, (name, case) in enumerate(further().items()):
        call = random_call(**case, seed=seed)
        exact, metadata = call.oracle(), schedule_of(call)
        first, again = decode(call, metadata=metadata), decode(call, metadata=metadata)
        row = compare(first, exact)
        row["same_bits"] = all(torch.equal(*pair) for pair in zip(first, again, strict=True))
        row["passed"] &= row["same_bits"]
        for sms in (1, 7, 500):  # whole requests, a few cuts, as many as there are
            row["passed"] &= compare(decode(call, metadata=schedule_of(call, sms=sms)), exact)["passed"]
        yield {"case": name, **row}


def public_rows(count: int) -> Iterator[Row]:
    """A sample of the public matrix through `compat.flash_mla`: right, and the same bits by the schedule used again."""
    passed, worst = 0, 0.0
    for seed, case in enumerate(sample(count, seed=1)):
        call = random_call(**case, seed=1000 + seed)
        exact = call.oracle()
        schedule, _ = flash_mla.get_mla_metadata()
        first, again = (decode_public(call, schedule) for _ in range(2))
        row = compare(first, exact)
        row["same_bits"] = all(torch.equal(*pair) for pair in zip(first, again, strict=True))
        good = row["passed"] and row["same_bits"]
        if not good:
            yield {"case": f"public matrix: {case}".replace("'", ""), **row, "passed": False}
        passed += good
        worst = max(worst, row["rel_err"])
    yield {"case": "public matrix", "of": count, "right": passed, "passed": passed == count, "rel_err": worst}


def noticed(error: type[Exception], text: str) -> bool:
    try:
        ops.check()
    except error as said:
        return text in str(said)
    return False


def behaviour_rows() -> Iterator[Row]:
    """Graphs, changed lengths, checked mode, appends, torch's view."""
    for name, run in {
        "graph with changed lengths": graph_notices,
        "checked mode": checked_mode,
        "cache_append": append,
        "combine": combine,
        "opcheck": opcheck,
        "torch.compile": compiled,
        "another stream": other_stream,
    }.items():
        yield {"case": name, "passed": run()}


def small_call(**changed: Any) -> Call:
    main = {"tokens": 300, "topk": 192, "page": 61, "with_lengths": True}
    case = {"layout": cache.V32, "b": 9, "s_q": 1, "h_q": 128, "main": main, "seed": 5}
    return random_call(**(case | changed))


def graph_notices() -> bool:
    """A replay with the lengths of the schedule is right, one with others is NaN and noticed, and back again."""
    call = small_call()
    lengths, exact, metadata = call.options["topk_length"], call.oracle(), schedule_of(call)
    decode(call, metadata=metadata)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = decode(call, metadata=metadata)
        fresh = decode(call)
    right, request = [], int(lengths.argmax())
    for change in (0, -1, 0, -64):
        former = lengths.clone()
        lengths[request] += change
        graph.replay()
        torch.cuda.synchronize()
        if change:
            right.append(bool(result[0].isnan().all() and result[1].isnan().all()))
            right.append(noticed(ops.StaleMetadata, f"topk_length[{request}] is {int(lengths[request])}"))
            right.append(compare(fresh, call.oracle())["passed"])
        else:
            right += [compare(result, exact)["passed"], compare(fresh, exact)["passed"]]
        lengths.copy_(former)
    ops.check()
    return all(right)


def checked_mode() -> bool:
    """A slot beyond the cache is a hole, and noticed where that is asked for; so is a length beyond its list."""
    call = small_call(main={"tokens": 300, "topk": 192, "page": 61})
    before = decode(call)
    with ops.checked():
        same = decode(call)
    ops.check()
    call.indices[4, 0, 77] = call.kv_cache.shape[0] * 61
    with ops.checked():
        holed = decode(call)
    right = [noticed(ops.SlotOutOfRange, "indices[4, 0, 77] is"), compare(holed, call.oracle())["passed"]]
    with ops.checked():
        decode(call, topk_length=torch.full((9,), 193, dtype=torch.int32, device="cuda"))
    right.append(noticed(ValueError, "topk_length must be 0 to 192"))
    return all(right) and torch.equal(before[0], same[0])


def append() -> bool:
    right = True
    for layout in (cache.V32, cache.MODEL1):
        host = cache.new_cache(layout, 40, 33)
        generator = torch.Generator().manual_seed(8)
        slots = torch.randperm(40 * 33, generator=generator)[:500]
        nope = torch.randn(500, layout.d_nope, generator=generator).bfloat16()
        rope = torch.randn(500, layout.d_rope, generator=generator).bfloat16()
        stored = host.as_strided((40, host.stride(0)), (host.stride(0), 1)).cuda()
        device = stored.as_strided(host.shape, host.stride())
        ops.cache_append(host, slots, nope, rope, layout=layout)
        ops.cache_append(device, slots.cuda(), nope.cuda(), rope.cuda(), layout=layout)
        right &= torch.equal(host, device.cpu())
        ops.check()
        slots[7] = 40 * 33
        ops.cache_append(device, slots.cuda(), nope.cuda(), rope.cuda(), layout=layout)
        right &= noticed(ops.SlotOutOfRange, "1 did not")
    return right


def combine() -> bool:
    generator = torch.Generator().manual_seed(9)
    out = torch.randn(41, 2, 128, 512, generator=generator)
    lse = torch.randn(41, 2, 128, generator=generator) * 3
    splits = torch.tensor([0, 1, 34, 41], dtype=torch.int32)
    sink = torch.randn(128, generator=generator)
    exact = tuple(part.cuda().double() for part in ops.combine(out, lse, splits, attn_sink=sink))
    got = ops.combine(out.cuda(), lse.cuda(), splits.cuda(), attn_sink=sink.cuda())
    return bool(compare(got, exact)["passed"])


def opcheck() -> bool:
    call = small_call()
    options = call.options
    arguments = (
        *(call.q, call.kv_cache, call.indices, options["topk_length"], None, None, None, None),
        *(schedule_of(call).buffer, "V3.2", call.scale),
    )
    torch.library.opcheck(torch.ops.mlacademy.sparse_decode, arguments)
    numbers = (options["topk_length"], None, 9, 192, 0, 66)
    torch.library.opcheck(torch.ops.mlacademy.schedule, numbers, {"device": call.q.device})
    return True


def compiled() -> bool:
    call = small_call()
    metadata = schedule_of(call)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(q: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = ops.sparse_decode(
            q, call.kv_cache, call.indices, softmax_scale=call.scale, metadata=metadata, **call.options
        )
        return out * 1, lse

    return bool(compare(step(call.q), call.oracle())["passed"])


def other_stream() -> bool:
    call = small_call()
    exact, metadata = call.oracle(), schedule_of(call)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = decode(call, metadata=metadata)
    torch.cuda.current_stream().wait_stream(stream)
    return bool(compare(result, exact)["passed"])


def host_us(run: Callable[[], Any]) -> float:
    """Median µs that a call keeps the host."""
    for _ in range(200):
        run()
    times = []
    for _ in range(40):
        torch.cuda.synchronize()
        for _ in range(100):
            start = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - start)
    return sorted(times)[len(times) // 2] / 1000


def empty_launch() -> Callable[[], None]:
    """The launch of a kernel that does nothing, with a parameter block of the decode kernels' size."""
    text = """
struct Block { char bytes[256]; };
extern "C" __global__ void nothing(const __grid_constant__ Block block) {}
"""
    buffer = ctypes.create_string_buffer(256)
    device = CudaDevice(index=0)
    launch = device.prepare(gpu.compile(text)["nothing"], gpu.LaunchPlan(1, 32), ctypes.addressof(buffer))
    stream = torch.cuda.current_stream().cuda_stream
    return lambda: (buffer, launch(stream))[1]


def host_rows() -> Iterator[Row]:
    """Calls with cached metadata, by three ways in."""
    yield {"case": "host empty launch", "us": host_us(empty_launch())}
    plain = {"tokens": 4096, "topk": 2048, "page": 64}
    lengths, short = {**plain, "with_lengths": True}, {**plain, "topk": 128}
    for name, case in {
        "h128_s1_b1": {"main": plain},
        "h128_s2_b1": {"s_q": 2, "main": plain},
        "h64_s1_b1": {"h_q": 64, "main": plain},
        "h16_s1_b1": {"h_q": 16, "main": plain},
        "h128_s1_b2_k128": {"b": 2, "main": short},
        "h128_s1_b1 with lengths and a sink": {"main": lengths, "sink": True},
        "h128_s1_b1 with all options": {"layout": cache.MODEL1, "main": lengths, "extra": lengths, "sink": True},
        "h128_s1_b128, nothing is cut": {"b": 128, "main": {**plain, "topk": 64}},
    }.items():
        call = random_call(**({"layout": cache.V32, "b": 1, "s_q": 1, "h_q": 128} | case))
        metadata, (schedule, _) = schedule_of(call), flash_mla.get_mla_metadata()
        tensors = [call.options.get(option) for option in OPTIONS]
        given = call.q, call.kv_cache, call.indices, *tensors, metadata.buffer, call.layout.name, call.scale
        ours = functools.partial(
            *(ops.sparse_decode, call.q, call.kv_cache, call.indices),
            **{"layout": call.layout.name, "softmax_scale": call.scale, "metadata": metadata, **call.options},
        )
        yield {
            "case": f"host {name}",
            "ops_us": host_us(ours),
            "flash_mla_us": host_us(lambda call=call, schedule=schedule: decode_public(call, schedule)),
            "dispatcher_us": host_us(functools.partial(torch.ops.mlacademy.sparse_decode.default, *given)),
            "fresh_metadata_us": host_us(lambda call=call: decode(call)),
        }
        ours()
        if not call.options and cuda.repeat(*given, metadata.made_for) is not None:
            yield {"case": f"host split {name}", **split((*given, metadata.made_for))}


def split(given: tuple[Any, ...]) -> Row:
    """Of one native call, µs: all of it, what the driver takes, memory, torch's guard, and what is left."""
    found, repeat = cuda._latest, cuda.repeat
    assert found is not None
    whole = host_us(lambda: repeat(*given))
    kept = found.launches, found.scratch_bytes
    found.launches = []
    no_launch = found._native()
    found.scratch_bytes = 0
    no_scratch = found._native()
    found.launches, found.scratch_bytes = kept
    assert no_launch is not None
    assert no_scratch is not None
    without, bare = host_us(lambda: no_launch(*given)), host_us(lambda: no_scratch(*given))
    shape, strides, dtype = found.out_shape, found.out_strides, torch.bfloat16
    empty, nothing = torch_internals.empty, host_us(lambda: None)
    outputs = 2 * (host_us(lambda: empty(shape, strides, dtype)) - nothing)
    guard = host_us(lambda: found.fits(*given[:3], given[8])) - nothing
    return {
        "native_us": whole,
        "driver_us": whole - without,
        "launches": len(found.launches),
        "scratch_us": without - bare,
        "outputs_us": outputs,
        "guard_us": guard,
        "left_us": bare - outputs - guard,
        "timer_us": nothing,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=300, help="cases of the public matrix (default: %(default)s)")
    options.add_argument("--only", choices=("cases", "public", "behaviour", "host"), action="append")
    options.add_argument("--json", type=Path, help="where to write the result")
    chosen = options.parse_args()
    parts = {
        "host": host_rows,
        "behaviour": behaviour_rows,
        "cases": case_rows,
        "public": lambda: public_rows(chosen.sample),
    }
    rows: list[Row] = []
    for name, part in parts.items():
        if chosen.only and name not in chosen.only:
            continue
        start = time.perf_counter()
        for row in part():
            rows.append(row)
            print(
                {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}, flush=True
            )
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    wrong = [row["case"] for row in rows if not row.get("passed", True)]
    print(f"{len(wrong)} wrong of {len(rows)}", *wrong, sep="\n")
    about = {"torch": torch.__version__, "python": platform.python_version(), "native": _native.core() is not None}
    write("ops", chosen.json, about, rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
