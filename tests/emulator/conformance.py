"""Every row of the form table, over adversarial and random operands, against a model in Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from formtable import BITS, FORMS, Form, operand_type, sample
from ptxrun import ARRAY, run_elementwise

COUNT = 96
Model = Callable[[Form, tuple[str, ...], tuple[int, ...]], tuple[int | None, ...]]  # None: no value is promised

PATTERNS = {
    16: [
        *(0, 1, 0x8000, 0x8001, 0x03FF, 0x0400, 0x3C00, 0x3C01, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7FFF, 0x3F80),
        *(0x3F81, 0x007F, 0x0080, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0x4248, 0x7FF7, 0xFFF7),
    ],
    32: [
        *(0, 1, 0x80000000, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F800001, 0xBF800000, 0x7F7FFFFF),
        *(0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0x33800000, 0x34000000, 0x4B000000, 0x4F000000, 0xCF000000),
        *(0x3F000000, 0x3EFFFFFF, 0x40490FDB, 0x7E800000, 0x00000003, 0x43E80000, 0x43DFFFFF, 0x477FF000, 0x3B000000),
    ],
    64: [
        *(0, 1, 1 << 63, 1 << 63 | 1, (1 << 52) - 1, 1 << 52, 0x3FF << 52, 0xBFF << 52, 0x3FF << 52 | 1),
        *(
            (0x7FF << 52) - 1,
            0x7FF << 52,
            0xFFF << 52,
            0x7FF8 << 48,
            0x3CA << 52,
            0x43E << 52,
            0xC3E << 52,
            0x41E << 52,
        ),
        0x3FE << 52,
    ],
}


def integers(bits: int, chooser: random.Random) -> int:
    """Edges, powers of two and their neighbours, small numbers, and anything."""
    top = 1 << bits
    kind = chooser.random()
    if kind < 0.3:
        return chooser.choice([0, 1, top - 1, top // 2, top // 2 - 1, top // 2 + 1, 2, 31, 32, 33])
    if kind < 0.5:
        return ((1 << chooser.randrange(bits)) + chooser.choice([-1, 0, 1])) % top
    if kind < 0.7:
        return chooser.randrange(100) % top
    return chooser.randrange(top)


def floats(bits: int, chooser: random.Random) -> int:
    """Special codes, their neighbours, numbers of one magnitude (so that they cancel and tie), and any bits."""
    kind = chooser.random()
    if kind < 0.4:
        return (chooser.choice(PATTERNS[bits]) + chooser.choice([0, 0, 0, 1, -1])) % (1 << bits)
    if kind < 0.8:
        exponent = {16: 0x3800, 32: 0x3F000000, 64: 0x3FE << 52}[bits]
        spread = {16: 0x0FFF, 32: 0x00FFFFFF, 64: (1 << 53) - 1}[bits]
        rough = chooser.randrange(spread + 1) & chooser.choice([spread, spread << bits // 4 & spread])
        return exponent + rough | chooser.getrandbits(1) << bits - 1
    return chooser.getrandbits(bits)


def operand_values(kind: str, chooser: random.Random) -> list[int]:
    bits = BITS[kind]
    if kind == "pred":
        return [chooser.getrandbits(1) for _ in range(COUNT)]
    if kind.endswith("x2") and "f16" in kind:
        return [floats(16, chooser) << 16 | floats(16, chooser) for _ in range(COUNT)]
    maker = floats if "f" in kind and kind != "tf32" else integers
    return [maker(bits, chooser) for _ in range(COUNT)]


def rows(*handlers: str) -> list[Form]:
    """The rows that these handlers serve, for parametrising a test."""
    return [form for form in FORMS if form.handler in handlers]


def row_id(form: Form) -> str:
    return f"{form.where}-{form.opcode}"


@dataclass(frozen=True)
class Spelling:
    """One spelling of a row over `COUNT` operand tuples: ``inputs`` in PTX order, constants included."""

    mods: tuple[str, ...]
    line: str
    inputs: list[list[int]]
    arrays: list[np.ndarray[Any, Any]]
    outputs: list[int]


def spellings(form: Form, limit: int) -> Iterator[Spelling]:
    """Spellings of a row with operands: adversarial and random, always the same."""
    chooser = random.Random(form.where)
    for mods in sample(form, limit):
        names, inputs, outputs, types = [], [], [], []
        for operand in form.operands:
            if operand.optional:
                continue
            if operand.type == "imm":
                constant = chooser.randrange(256)
                names.append(str(constant))
                inputs.append([constant] * COUNT)
                continue
            kind = operand_type(operand, mods)
            if operand.dest:
                names.append(f"%d{len(outputs)}" + (f"|%d{len(outputs) + 1}" if operand.second else ""))
                width = max(BITS[kind], 16) if BITS[kind] > 1 else 1  # an 8-bit result fills its register
                outputs += [width, 1] if operand.second else [width]
            else:
                names.append(f"%a{len(types)}")
                types.append((len(inputs), BITS[kind]))
                inputs.append(operand_values(kind, chooser))
        line = ".".join([form.opcode, *mods]) + " " + ", ".join(names) + ";"
        arrays = [
            np.array(inputs[at], bool) if bits == 1 else np.array(inputs[at], ARRAY[max(bits, 8)]) for at, bits in types
        ]
        yield Spelling(mods, line, inputs, arrays, outputs)


def check(form: Form, model: Model, limit: int = 24) -> None:
    """Runs spellings of the row and compares every output of every element with the model's."""
    for one in spellings(form, limit):
        results = run_elementwise(one.line, one.arrays, one.outputs)
        for element, sources in enumerate(zip(*one.inputs, strict=True)):
            expected = model(form, one.mods, sources)
            got = tuple(int(result[element]) for result in results)
            for want, have in zip(expected, got, strict=True):
                assert want is None or want == have, (
                    f"{one.line} of {[hex(s) for s in sources]} gives {[hex(g) for g in got]}, "
                    f"the model {[None if w is None else hex(w) for w in expected]}"
                )
