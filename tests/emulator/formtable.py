"""The form table as the tests see it: rows, spellings, and a well-typed line of PTX for each."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "kernels" / "emulator" / "forms"
_spec = importlib.util.spec_from_file_location("form_generator", FOLDER / "generate.py")
assert _spec is not None
assert _spec.loader is not None
generate = importlib.util.module_from_spec(_spec)
sys.modules["form_generator"] = generate  # dataclasses look their module up
_spec.loader.exec_module(generate)
Form = generate.Form
FORMS = generate.read_forms(FOLDER)

BITS = {"pred": 1, "tf32": 32, "u4": 4, "s4": 4, "u2": 2, "s2": 2, "e4m3x2": 16, "e5m2x2": 16}
BITS |= {f"{kind}{bits}": bits for kind in "bus" for bits in (8, 16, 32, 64)} | {"b128": 128}
BITS |= {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32}
NAMES = {1: "%p", 8: "%h", 16: "%h", 32: "%r", 64: "%d", 128: "%q"}
CONSTANTS = {"cp": "16", "applypriority": "128", "discard": "128", "fence": "128", "setmaxnreg": "64"}
CONSTANTS |= {"alloca": "16", "wgmma": "1"}
VECTOR = {"v2": 2, "v4": 4, "v8": 8, "x1": 1, "x2": 2, "x4": 4}
REGISTERS = ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .b128 %q<9>;\n"


def types_of(mods: tuple[str, ...]) -> list[str]:
    """The types among an instruction's modifiers, in order."""
    return [mod for mod in mods if mod in BITS]


def operand_type(operand: generate.Operand, mods: tuple[str, ...]) -> str:
    """The type that T, U or W stands for under these modifiers."""
    types = types_of(mods)
    if operand.type == "T":
        return types[0]
    if operand.type == "U":
        return types[1]
    if operand.type == "W":
        return f"{types[0][0]}{2 * BITS[types[0]]}"
    return str(operand.type)


def constant(form: Form, mods: tuple[str, ...]) -> str:
    """A legal integer constant for this spelling."""
    if "fill_mode" in mods or "interleave_layout" in mods:
        return "1"
    if "cp_fenceproxy" in mods:
        return "128"
    return CONSTANTS.get(form.opcode, "3")


def accumulator_registers(mods: tuple[str, ...]) -> int:
    """Of one thread, for a wgmma of this spelling."""
    n = next(int(found[1]) for mod in mods if (found := re.fullmatch(r"m64n(\d+)k\d+", mod)))
    return n // (4 if types_of(mods)[0] == "f16" else 2)


def line_of(form: Form, mods: tuple[str, ...], *, optional: bool = True) -> str:
    """A statement of this spelling with registers of the right widths; its result means nothing."""
    counters = dict.fromkeys(NAMES.values(), 0)

    def register(bits: int) -> str:
        name = NAMES[max(bits, 8) if bits > 1 else 1]
        counters[name] += 1
        return f"{name}{(counters[name] - 1) % 8 + 1}"

    texts = []
    shared = any(mod.startswith("shared") for mod in mods) or form.opcode.startswith("mbarrier")
    remote_arrive = form.opcode == "mbarrier" and "shared::cluster" in mods  # gives no state back
    addresses = 0
    for operand in form.operands:
        wanted = {"b64": "L2::cache_hint" in mods, "b16": "multicast::cluster" in mods}.get(operand.type, optional)
        if operand.optional and not wanted:
            continue
        if operand.type == "[,]":  # a tensor map and a coordinate an axis
            rank = next(int(mod[0]) for mod in mods if mod in {"1d", "2d", "3d", "4d", "5d"})
            rank = 5 if {"tile::gather4", "tile::scatter4"} & set(mods) else rank
            texts.append(f"[%d0, {{{', '.join(register(32) for _ in range(rank))}}}]")
        elif operand.type == "[]":
            addresses += 1
            tensor = form.handler.startswith("tensor_")
            second_of_copy = addresses == 2 and "global" in mods and not form.opcode.startswith("red") and not tensor
            first_is_global = addresses == 1 and ("bulk_group" in mods or form.handler == "map_copy") and not tensor
            from_global = second_of_copy and "bulk_group" not in mods and form.handler != "map_copy"
            to_shared = shared and not from_global and not first_is_global
            texts.append("[%r0]" if to_shared else "[%d0]")
        elif operand.type == "imm":
            texts.append(constant(form, mods))
        else:
            bits = BITS[operand_type(operand, mods)]
            count = int(operand.count) if operand.count.isdigit() else 1
            if operand.count == "V":
                count = next((VECTOR[mod] for mod in mods if mod in VECTOR), 1)
            elif operand.count == "D":
                count = accumulator_registers(mods)
            elif operand.count == "S":
                count = next(int(mod[0]) for mod in mods if mod in {"3d", "4d", "5d"}) - 2
            names = [register(bits) for _ in range(count)]
            if remote_arrive and operand.dest:
                names = ["_"]
            text = (
                "{" + ", ".join(names) + "}"
                if operand.count and (count > 1 or operand.count == "S" or form.opcode.endswith("matrix"))
                else names[0]
            )
            texts.append(text + (f"|{register(1)}" if operand.second else ""))
    opcode = ".".join([form.opcode, *(mod for mod in mods if mod)])
    return f"{opcode} {', '.join(texts)};"


def sample(form: Form, limit: int, seed: int = 0) -> Iterator[tuple[str, ...]]:
    """Some spellings of a row: each option of each modifier occurs in at least one where `limit` allows."""
    chooser = random.Random(seed)
    widest = max([len(slot.options) + slot.optional for slot in form.slots], default=1)
    for number in range(min(limit, widest * 2)):
        mods = []
        for slot in form.slots:
            options = (("",) if slot.optional else ()) + slot.options
            mods.append(options[number % len(options)] if number < widest else chooser.choice(options))
        spelling = tuple(mod for mod in mods if mod)
        if not pointless_saturation(form, spelling):
            yield spelling


def pointless_saturation(form: Form, mods: tuple[str, ...]) -> bool:
    """cvt.sat between integers is legal only where a value may not fit."""
    if form.handler != "cvt_int" or "sat" not in mods:
        return False
    to, source = types_of(mods)
    room = BITS[to] - (to[0] == "s")
    return room >= BITS[source] - (source[0] == "s") and not (source[0] == "s" and to[0] == "u")
