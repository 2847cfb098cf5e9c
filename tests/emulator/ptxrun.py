"""Driving the emulator from a test: launch with NumPy arrays, and one instruction over many operands."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from mlacademy import _emulator

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
Value = int | float | np.ndarray[Any, Any] | bytes


def pack_params(kernel: dict[str, Any], args: tuple[Value, ...]) -> tuple[bytes, list[tuple[int, int, str, bool]]]:
    """The parameter bytes and the buffers of a launch; an array is passed as its address under its parameter's name."""
    data = bytearray(kernel["param_bytes"])
    buffers = []
    for param, arg in zip(kernel["params"], args, strict=True):
        if isinstance(arg, np.ndarray):
            assert arg.flags.c_contiguous
            buffers.append((arg.ctypes.data, arg.nbytes, param["name"], arg.flags.writeable))
            raw = struct.pack("<Q", arg.ctypes.data)
        elif isinstance(arg, bytes):
            raw = arg
        elif isinstance(arg, float):
            raw = struct.pack("<f" if param["size"] == 4 else "<d", arg)
        else:
            raw = (arg & (1 << 8 * param["size"]) - 1).to_bytes(param["size"], "little")
        assert len(raw) == param["size"], (param, raw)
        data[param["offset"] : param["offset"] + len(raw)] = raw
    return bytes(data), buffers


def launch(
    program: _emulator.Program | str,
    *args: Value,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    smem_bytes: int = 0,
    kernel: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Runs a kernel (the only one, unless named) and gives the emulator's statistics."""
    if isinstance(program, str):
        program = _emulator.Program(program if program.startswith((".version", "//")) else HEADER + program)
    found = next(k for k in program.kernels if kernel in (None, k["name"]))
    params, buffers = pack_params(found, args)
    options.setdefault("step_budget", 20_000_000)
    options.setdefault("check", ("all",))
    return _emulator.launch(program, found["name"], grid, block, cluster, smem_bytes, params, buffers, options)


WIDTH = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64}
ARRAY = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def load(number: int, bits: int) -> list[str]:
    """Registers and code that read input `number` (bits wide) into %a<number>; a predicate is a byte."""
    stored = max(bits, 8)
    lines = [
        f".reg .b64 %p{number};",
        f"ld.param.u64 %p{number}, [in{number}];",
        f"mad.wide.u32 %p{number}, %idx, {stored // 8}, %p{number};",
    ]
    if bits == 1:
        lines += [
            f".reg .pred %a{number};\n.reg .b16 %h{number};",
            f"ld.global.u8 %h{number}, [%p{number}];\nsetp.ne.s16 %a{number}, %h{number}, 0;",
        ]
    else:
        register = max(bits, 16)
        lines += [f".reg .b{register} %a{number};", f"ld.global.u{bits} %a{number}, [%p{number}];"]
    return lines


def store(number: int, bits: int, stored: int | None = None) -> tuple[list[str], list[str]]:
    """Declarations before the instruction, and code after it that writes %d<number> to output `number`."""
    stored = stored or max(bits, 8)
    before = [f".reg .{'pred' if bits == 1 else f'b{max(bits, 16)}'} %d{number};", f".reg .b64 %q{number};"]
    before.append(
        "setp.ne.s32 %d0, %idx, %idx;".replace("%d0", f"%d{number}")
        if bits == 1
        else f"mov.b{max(bits, 16)} %d{number}, 0;"
    )
    after = [f"ld.param.u64 %q{number}, [out{number}];", f"mad.wide.u32 %q{number}, %idx, {stored // 8}, %q{number};"]
    if bits == 1:
        after += [
            f".reg .b16 %g{number};",
            f"selp.u16 %g{number}, 1, 0, %d{number};",
            f"st.global.u8 [%q{number}], %g{number};",
        ]
    else:
        after.append(f"st.global.b{stored} [%q{number}], %d{number};")
    return before, after


def elementwise(instruction: str, inputs: list[int], outputs: list[int]) -> str:
    """A kernel that runs `instruction` once an element; %a0 … are inputs of the given bits, %d0 … outputs (1: pred)."""
    params = [f".param .u64 in{i}" for i in range(len(inputs))] + [f".param .u64 out{i}" for i in range(len(outputs))]
    lines = [
        f".visible .entry k({', '.join([*params, '.param .u32 n'])}) {{",
        ".reg .b32 %idx, %n, %b, %t;\n.reg .pred %stop;",
        "mov.u32 %b, %ctaid.x;\nmov.u32 %t, %ntid.x;\nmov.u32 %idx, %tid.x;\nmad.lo.s32 %idx, %b, %t, %idx;",
        "ld.param.u32 %n, [n];\nsetp.ge.u32 %stop, %idx, %n;\n@%stop bra DONE;",
    ]
    for number, bits in enumerate(inputs):
        lines += load(number, bits)
    tails = []
    for number, bits in enumerate(outputs):
        before, after = store(number, bits)
        lines += before
        tails += after
    return HEADER + "\n".join([*lines, instruction, *tails, "DONE: ret;", "}"])


def run_elementwise(
    instruction: str, inputs: list[np.ndarray[Any, Any]], outputs: list[int]
) -> list[np.ndarray[Any, Any]]:
    """What `instruction` gives over the input arrays (bool = predicate), as unsigned integers."""
    count = len(inputs[0]) if inputs else 32
    widths = [1 if a.dtype == bool else a.dtype.itemsize * 8 for a in inputs]
    raw = [np.ascontiguousarray(a.view(np.uint8) if a.dtype == bool else a) for a in inputs]
    results = [np.full(count, 0xEE, ARRAY[max(bits, 8)]) for bits in outputs]
    program = elementwise(instruction, widths, outputs)
    launch(program, *raw, *results, count, grid=((count + 127) // 128, 1, 1), block=(128, 1, 1))
    return results
