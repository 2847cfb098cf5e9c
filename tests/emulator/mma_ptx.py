"""mma.sync: its forms, a kernel around one of them, and its fragments element by element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64,
        "f32": 32, "s32": 32}  # fmt: skip


@dataclass(frozen=True)
class MmaForm:
    """mma.sync.aligned.m{m}n8k{k}.row.col.{d}.{a}.{b}.{d}; `extra` is .satfinite, a rounding, or .xor / .and."""

    m: int
    k: int
    d: str
    a: str
    b: str
    extra: str = ""

    @property
    def opcode(self) -> str:
        popc = self.a == "b1"
        middle, tail = ("", f"{self.extra}.popc") if popc else (self.extra, "")
        return f"mma.sync.aligned.m{self.m}n8k{self.k}.row.col{middle}.{self.d}.{self.a}.{self.b}.{self.d}{tail}"

    @property
    def name(self) -> str:
        return f"m{self.m}k{self.k}_{self.d}_{self.a}_{self.b}{self.extra.replace('.', '_')}"

    @property
    def word(self) -> int:
        """Bits of a register."""
        return 64 if self.d == "f64" else 32

    def registers(self, which: str) -> int:
        elements, bits = {
            "a": (self.m * self.k, BITS[self.a]), "b": (8 * self.k, BITS[self.b]), "d": (self.m * 8, BITS[self.d]),
        }[which]  # fmt: skip
        return elements * bits // (32 * self.word)

    def kernel(self) -> str:
        """One warp a tile; fragments are [tile][register][lane]."""
        size = self.word // 8
        lines = []
        for which in "abcd":
            count = self.registers("d" if which == "c" else which)
            lines += [
                f".reg .b64 %p{which}; .reg .b{self.word} %{which}<{count}>;",
                f"ld.param.u64 %p{which}, [p{which}]; mad.wide.u32 %p{which}, %cta, {count * 32 * size}, %p{which};",
                f"mad.wide.u32 %p{which}, %lane, {size}, %p{which};",
            ]
            if which != "d":
                lines += [f"ld.global.b{self.word} %{which}{r}, [%p{which}+{32 * size * r}];" for r in range(count)]
        vectors = [
            "{" + ", ".join(f"%{which}{r}" for r in range(self.registers("d" if which == "c" else which))) + "}"
            for which in "dabc"
        ]
        stores = [f"st.global.b{self.word} [%pd+{32 * size * r}], %d{r};" for r in range(self.registers("d"))]
        return "\n".join(
            [
                f".visible .entry {self.name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{",
                ".reg .b32 %cta, %lane; mov.u32 %cta, %ctaid.x; mov.u32 %lane, %tid.x;",
                *lines,
                f"{self.opcode} {', '.join(vectors)};",
                *stores,
                "ret; }",
            ]
        )

    def elements(self, which: str) -> tuple[np.ndarray, ...]:
        """(register, lane, part, row, column) of every element; B's row is its column n, its column k."""
        bits = BITS[{"a": self.a, "b": self.b, "d": self.d}[which]]
        per = self.word // bits
        out = []
        for r in range(self.registers(which)):
            for lane in range(32):
                for part in range(per):
                    v = r * per + part
                    if which == "d":
                        row, column = lane // 4 + 8 * (v // 2), 2 * (lane % 4) + v % 2
                    elif which == "a" and self.m == 16:
                        row, column = lane // 4 + 8 * (r % 2), per * (lane % 4) + part + 4 * per * (r // 2)
                    else:
                        row, column = lane // 4, per * (lane % 4) + part + 4 * per * r
                    out.append((r, lane, part, row, column))
        return tuple(np.array(out).T)

    def unpack(self, which: str, registers: np.ndarray) -> np.ndarray:
        """Fragments [tiles, registers, 32] -> codes [tiles, rows, columns]."""
        bits = BITS[{"a": self.a, "b": self.b, "d": self.d}[which]]
        reg, lane, part, row, column = self.elements(which)
        word = registers.dtype.type
        values = registers[:, reg, lane] >> (part * bits).astype(word) & word(2**bits - 1)
        out = np.zeros((len(registers), row.max() + 1, column.max() + 1), registers.dtype)
        out[:, row, column] = values
        return out


FP8, INT8, INT4 = ("e4m3", "e5m2"), ("s8", "u8"), ("s4", "u4")
FORMS = [
    *(MmaForm(16, k, d, "f16", "f16") for k in (8, 16) for d in ("f32", "f16")),
    *(MmaForm(16, k, "f32", "bf16", "bf16") for k in (8, 16)),
    *(MmaForm(16, k, "f32", "tf32", "tf32") for k in (4, 8)),
    *(MmaForm(16, k, d, a, b) for k in (16, 32) for d in ("f32", "f16") for a in FP8 for b in FP8),
    *(MmaForm(m, k, "s32", a, b, s) for m, k in ((8, 16), (16, 16), (16, 32)) for a in INT8 for b in INT8
      for s in ("", ".satfinite")),
    *(MmaForm(m, k, "s32", a, b, s) for m, k in ((8, 32), (16, 32), (16, 64)) for a in INT4 for b in INT4
      for s in ("", ".satfinite")),
    *(MmaForm(m, k, "s32", "b1", "b1", op) for m, k in ((8, 128), (16, 128), (16, 256)) for op in (".xor", ".and")),
    *(MmaForm(m, k, "f64", "f64", "f64", r) for m, k in ((8, 4), (16, 4), (16, 8), (16, 16))
      for r in ("", ".rn", ".rz", ".rm", ".rp")),
]  # fmt: skip


def near(rng: np.random.Generator, kind: str, shape: tuple[int, ...], spread: int, middle: int = 0) -> np.ndarray:
    """Codes with exponents within `spread` of `middle`; a few zeros, and any code now and then."""
    exponent, mantissa = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "e4m3": (4, 3),
                          "e5m2": (5, 2), "f64": (11, 52)}[kind]  # fmt: skip
    field = np.clip(rng.integers(middle - spread, middle + spread + 1, shape) + 2 ** (exponent - 1) - 1, 0,
                    2**exponent - 2).astype(np.uint64)  # fmt: skip
    code = field << np.uint64(mantissa) | rng.integers(0, 2**mantissa, shape, dtype=np.uint64)
    code |= rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(exponent + mantissa)
    code[rng.random(shape) < 0.03] = 0
    wild = rng.random(shape) < 0.002
    code = np.where(wild, rng.integers(0, 2 ** (1 + exponent + mantissa), shape, dtype=np.uint64), code)
    return code << np.uint64(13) if kind == "tf32" else code


def tiles(form: MmaForm, count: int, seed: int) -> dict[str, np.ndarray]:
    """Fragments a, b, c [count, registers, 32] of numbers that round, cancel and, rarely, overflow."""
    rng = np.random.default_rng([seed, *form.name.encode()])
    out = {}
    for name, which, kind in (("a", "a", form.a), ("b", "b", form.b), ("c", "d", form.d)):
        shape = (count, form.registers(which), 32)
        word = np.uint64 if form.word == 64 else np.uint32
        if kind[0] in "sub" and kind != "bf16":
            out[name] = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
            continue
        bits = BITS[kind]
        per = form.word // bits
        spread = rng.choice([0, 2, 6, 12])
        codes = near(rng, kind, (*shape, per), spread, rng.integers(-8, 9) if name == "c" else 0)
        shifts = np.arange(per, dtype=np.uint64) * np.uint64(bits)
        out[name] = np.bitwise_or.reduce(codes << shifts, axis=-1).astype(word)
    return out
