"""Integer arithmetic, bits, logic and shifts: each row of integer.forms against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import check, row_id, rows
from formtable import BITS, Form, types_of
from ptxrun import run_elementwise

Mods = tuple[str, ...]
Args = tuple[int, ...]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def as_type(value: int, kind: str) -> int:
    return signed(value, BITS[kind]) if kind[0] == "s" else value


def cut_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def saturated(value: int, mods: Mods) -> int:
    return clamp(value, -(1 << 31), (1 << 31) - 1) if "sat" in mods else value


def halves(form: Form, mods: Mods, args: Args) -> int:
    """A packed pair from the model of one half."""
    narrow = tuple(mod.removesuffix("x2") for mod in mods)
    low = arithmetic(form, narrow, tuple(a & 0xFFFF for a in args))[0]
    high = arithmetic(form, narrow, tuple(a >> 16 for a in args))[0]
    assert low is not None
    assert high is not None
    return low | high << 16


def arithmetic(form: Form, mods: Mods, args: Args) -> tuple[int | None, ...]:
    kind = types_of(mods)[0]
    if kind.endswith("x2"):
        return (halves(form, mods, args),)
    bits = BITS[kind]
    values = [as_type(a, kind) for a in args]
    a, b, c = (*values, 0, 0)[:3]
    if "24" in form.opcode:
        a, b = (as_type(v & 0xFFFFFF if kind[0] == "u" else signed(v, 24), kind) for v in (a, b))
    product = a * b
    if "hi" in mods:
        product >>= 16 if "24" in form.opcode else bits
        product = signed(product, bits) if kind[0] == "s" else product
    elif "lo" in mods and kind[0] == "s":
        product = signed(product, bits)
    result = {
        "add": a + b, "sub": a - b, "mul": product, "mul24": product, "mad": product + c, "mad24": product + c,
        "sad": c + abs(a - b), "abs": abs(a), "neg": -a, "min": min(a, b), "max": max(a, b),
    }.get(form.opcode)  # fmt: skip
    if form.opcode in ("div", "rem"):
        if b == 0:
            return (None,)  # unspecified
        quotient = cut_quotient(a, b)
        result = quotient if form.opcode == "div" else a - b * quotient
    assert result is not None
    if "relu" in mods:
        result = max(result, 0)
    if "wide" in mods:
        wide_c = as_type(args[2], f"{kind[0]}{2 * bits}") if len(args) > 2 else 0
        return ((a * b + wide_c) % (1 << 2 * bits),)
    return (saturated(result, mods) % (1 << bits),)


@pytest.mark.parametrize(
    "form", rows("add", "sub", "mul", "mad", "mul24", "sad", "int_div", "int_unary", "int_minmax"), ids=row_id
)
def test_arithmetic_agrees_with_python(form: Form) -> None:
    check(form, arithmetic)


def bits_model(form: Form, mods: Mods, args: Args) -> tuple[int | None, ...]:
    kind = types_of(mods)[0]
    bits = BITS[kind]
    a, b, c = (*args, 0, 0, 0)[:3]
    mask = (1 << bits) - 1
    match form.opcode:
        case "popc":
            return (a.bit_count(),)
        case "clz":
            return (bits - a.bit_length(),)
        case "bfind":
            magnitude = ~a & mask if as_type(a, kind) < 0 else a
            top = magnitude.bit_length() - 1
            return (0xFFFFFFFF if top < 0 else bits - 1 - top if "shiftamt" in mods else top,)
        case "brev":
            return (int(f"{a:0{bits}b}"[::-1], 2),)
        case "not":
            return (~a & mask,)
        case "cnot":
            return (int(a == 0),)
        case "and":
            return (a & b,)
        case "or":
            return (a | b,)
        case "xor":
            return (a ^ b,)
        case "shl":
            return (a << b & mask if b < bits else 0,)
        case "shr":
            return (as_type(a, kind) >> min(b, bits) & mask,)
        case "shf":
            n = c & 31 if "wrap" in mods else min(c, 32)
            both = b << 32 | a
            return ((both << n >> 32 if "l" in mods else both >> n) & mask,)
        case "bfe":
            pos, length = (b, c) if bits == 64 else (b & 255, c & 255)  # silicon reads all bits of the 64-bit form's
            sign = kind[0] == "s" and length > 0 and a >> min(pos + length - 1, bits - 1) & 1
            field = [(a >> pos + i & 1 if pos + i < bits else sign) if i < length else sign for i in range(bits)]
            return (sum(bit << i for i, bit in enumerate(field)),)
        case "bfi":
            pos, length = args[2:] if bits == 64 else (args[2] & 255, args[3] & 255)
            for i in range(min(length, bits)):
                if pos + i < bits:
                    b = b & ~(1 << pos + i) | (a >> i & 1) << pos + i
            return (b,)
        case "bmsk":
            pos, length = (v & 31 if "wrap" in mods else min(v, 32) for v in (a, b))
            return (((1 << length) - 1) << pos & mask,)
        case "szext":
            n = b & 31 if "wrap" in mods else min(b, 32)
            return ((signed(a, n) if kind[0] == "s" else a & (1 << n) - 1) & mask if n else 0,)
        case "fns":
            n = signed(c, 32)
            if n == -(1 << 31):
                return (0,)
            if b > 31:
                return (None,)
            order = range(b, 32) if n >= 0 else range(b, -1, -1)
            found = [i for i in order if a >> i & 1]
            if n == 0:
                return (b if a >> b & 1 else 0xFFFFFFFF,)
            return (found[abs(n) - 1] if abs(n) <= len(found) else 0xFFFFFFFF,)
        case "lop3":
            table = args[3]
            word = 0
            for i in range(32):
                row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1
                word |= (table >> row & 1) << i
            if len(args) < 5:
                return (word,)
            return (word, int(word != 0 and args[4]) if "and" in mods else int(word != 0 or args[4]))
        case "prmt":
            return (permuted(a, b, c, mods),)
        case "dp4a" | "dp2a":
            return (dot(form.opcode, mods, a, b, c),)
    raise AssertionError(form.opcode)


def permuted(a: int, b: int, c: int, mods: Mods) -> int:
    source = [*a.to_bytes(4, "little"), *b.to_bytes(4, "little")]
    n = c & 3
    mode = mods[-1]
    chosen = {
        "f4e": [n, n + 1, n + 2, n + 3],
        "b4e": [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
        "rc8": [n] * 4,
        "ecl": [max(i, n) for i in range(4)],
        "ecr": [min(i, n) for i in range(4)],
        "rc16": [(n & 1) * 2 + i % 2 for i in range(4)],
    }.get(mode)
    out = []
    for i in range(4):
        if chosen:
            out.append(source[chosen[i]])
        else:
            nibble = c >> 4 * i & 15
            byte = source[nibble & 7]
            out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def dot(opcode: str, mods: Mods, a: int, b: int, c: int) -> int:
    a_type, b_type = types_of(mods)
    count, width = (4, 8) if opcode == "dp4a" else (2, 16)
    first = 2 if "hi" in mods else 0
    total = c
    for i in range(count):
        x = a >> width * i & (1 << width) - 1
        y = b >> 8 * (i + first) & 0xFF
        total += (signed(x, width) if a_type == "s32" else x) * (signed(y, 8) if b_type == "s32" else y)
    return total & 0xFFFFFFFF


@pytest.mark.parametrize(
    "form",
    rows(
        "bit_count", "bit_unary", "logic", "shift", "shf", "bfe", "bfi", "bmsk", "szext", "fns", "lop3", "prmt", "dot"
    ),
    ids=row_id,
)
def test_bits_agree_with_python(form: Form) -> None:
    check(form, bits_model)


def predicate_logic(form: Form, mods: Mods, args: Args) -> tuple[int, ...]:
    a, b = (*args, 0)[:2]
    return ({"and": a & b, "or": a | b, "xor": a ^ b, "not": 1 - a}[form.opcode],)


@pytest.mark.parametrize("form", rows("logic_pred"), ids=row_id)
def test_predicate_logic(form: Form) -> None:
    check(form, predicate_logic)


def test_every_carry_row_is_tested() -> None:
    assert {f.opcode for f in rows("carry", "carry_mad")} == {"add", "addc", "sub", "subc", "mad", "madc"}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("operation", ["add", "sub"])
def test_carry_chain_is_wide_arithmetic(bits: int, operation: str) -> None:
    rng = np.random.default_rng(bits)
    words = [rng.integers(0, 1 << 63, 64, dtype=np.uint64).astype(f"u{bits // 8}") for _ in range(6)]
    for w in words:
        w[:8] = [0, 1, (1 << bits) - 1, 0, (1 << bits) - 1, 1, 0, (1 << bits) - 1]
    code = f"""
    {operation}.cc.u{bits} %d0, %a0, %a3;
    {operation}c.cc.u{bits} %d1, %a1, %a4;
    {operation}c.s{bits} %d2, %a2, %a5;
    """
    results = run_elementwise(code, words, [bits] * 3)
    for i in range(64):
        a = sum(int(words[k][i]) << bits * k for k in range(3))
        b = sum(int(words[k + 3][i]) << bits * k for k in range(3))
        want = (a + b if operation == "add" else a - b) % (1 << 3 * bits)
        assert sum(int(results[k][i]) << bits * k for k in range(3)) == want


@pytest.mark.parametrize("bits", [32, 64])
def test_mad_carry_chain_is_a_wide_product(bits: int) -> None:
    rng = np.random.default_rng(bits)
    a, b, low, high = (rng.integers(0, 1 << 63, 64, dtype=np.uint64).astype(f"u{bits // 8}") for _ in range(4))
    a[:3] = b[:3] = (1 << bits) - 1
    code = f"mad.lo.cc.u{bits} %d0, %a0, %a1, %a2;\nmadc.hi.u{bits} %d1, %a0, %a1, %a3;"
    d0, d1 = run_elementwise(code, [a, b, low, high], [bits, bits])
    for i in range(64):
        want = (int(a[i]) * int(b[i]) + (int(high[i]) << bits | int(low[i]))) % (1 << 2 * bits)
        assert int(d1[i]) << bits | int(d0[i]) == want


def test_signed_high_product_keeps_its_sign_in_a_carry_chain() -> None:
    a = np.array([-3, 5, -(1 << 31)], np.int32).view(np.uint32)
    b = np.array([7, -9, -1], np.int32).view(np.uint32)
    zero = np.zeros(3, np.uint32)
    (high,) = run_elementwise("mad.hi.cc.s32 %d0, %a0, %a1, %a2;", [a, b, zero], [32])
    assert high.view(np.int32).tolist() == [-1, -1, 0]
