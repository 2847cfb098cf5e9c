"""A kernel around one wgmma form, and where its operands lie: element by element, from the tables of the PTX manual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ELEMENT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
SMEM = 1 << 16


@dataclass(frozen=True)
class Form:
    """wgmma.mma_async.m64n{n}k….{d}.{a}.{b}; A in registers where `rs`."""

    d: str
    a: str
    b: str
    n: int
    rs: bool = False
    satfinite: bool = False
    negate: tuple[bool, bool] = (False, False)
    transpose: tuple[bool, bool] = (False, False)

    @property
    def k(self) -> int:
        return 256 // ELEMENT_BITS[self.a]

    @property
    def registers(self) -> int:
        return self.n // (4 if self.d == "f16" else 2)

    @property
    def opcode(self) -> str:
        tail = ".and.popc" if self.a == "b1" else ".satfinite" if self.satfinite else ""
        return f"wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}.{self.d}.{self.a}.{self.b}{tail}"

    def line(self, a: str, b: str, scale: str, d: str = "%c") -> str:
        """One multiply; a is a register with a descriptor, or the stem of four registers."""
        source = "{" + ", ".join(f"{a}{r}" for r in range(4)) + "}" if self.rs else a
        words = ["{" + ", ".join(f"{d}{r}" for r in range(self.registers)) + "}", source, b, scale]
        if self.d != "s32":
            words += ["-1" if sign else "1" for sign in self.negate]
        if self.a in ("f16", "bf16"):
            words += [str(int(t)) for t in (self.transpose[1:] if self.rs else self.transpose)]
        return f"{self.opcode} {', '.join(words)};"


FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"


def wait(pending: int = 0) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


def kernel(form: Form, body: str, threads: int = 128, smem: int | None = None) -> str:
    """Loads shared memory, C and A's fragments; runs `body`; stores D. %a and %b hold the descriptors, %p scale-d.

    Shared memory is `SMEM` bytes of dynamic memory, or `smem` bytes of static memory.
    """
    loads = "\n".join(f"ld.global.b32 %c{r}, [%dc+{512 * r}];" for r in range(form.registers))
    stores = "\n".join(f"st.global.b32 [%dd+{512 * r}], %c{r};" for r in range(form.registers))
    fragments = "\n".join(f"ld.global.b32 %x{r}, [%df+{512 * r}];" for r in range(4))
    place = ".extern .shared .align 1024 .b8 smem[];" if smem is None else f".shared .align 1024 .b8 smem[{smem}];"
    return f"""{place}
.visible .entry k(.param .u64 image, .param .u64 frag, .param .u64 c, .param .u64 out, .param .u64 a, .param .u64 b,
                  .param .u32 keep) .maxntid {threads}, 1, 1 {{
.reg .b32 %c<{max(form.registers, 4)}>; .reg .b32 %x<4>; .reg .b32 %e<200>; .reg .b32 %t<8>; .reg .f32 %f<8>;
.reg .b64 %a, %b, %di, %df, %dc, %dd, %w<8>; .reg .pred %p, %q<4>;
ld.param.u64 %di, [image]; ld.param.u64 %df, [frag]; ld.param.u64 %dc, [c]; ld.param.u64 %dd, [out];
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u32 %t0, [keep]; setp.ne.u32 %p, %t0, 0;
mov.u32 %t0, smem; shr.u32 %t0, %t0, 4; cvt.u64.u32 %w0, %t0; add.u64 %a, %a, %w0; add.u64 %b, %b, %w0;
mov.u32 %t0, %tid.x; mov.u32 %t1, smem; mad.lo.u32 %t1, %t0, 16, %t1; mad.wide.u32 %di, %t0, 16, %di; mov.u32 %t2, %t0;
COPY: setp.ge.u32 %q0, %t2, {(smem or SMEM) // 16}; @%q0 bra COPIED;
ld.global.v4.b32 {{%e0, %e1, %e2, %e3}}, [%di]; st.shared.v4.b32 [%t1], {{%e0, %e1, %e2, %e3}};
add.u32 %t2, %t2, {threads}; add.u32 %t1, %t1, {16 * threads}; add.u64 %di, %di, {16 * threads}; bra COPY;
COPIED: fence.proxy.async; bar.sync 0;
mad.wide.u32 %df, %t0, 4, %df; mad.wide.u32 %dc, %t0, 4, %dc; mad.wide.u32 %dd, %t0, 4, %dd;
{fragments}
{loads}
{body}
{stores}
ret; }}"""


def plain_body(form: Form) -> str:
    return "\n".join([FENCE, form.line("%x" if form.rs else "%a", "%b", "%p"), COMMIT, wait()])


@dataclass(frozen=True)
class Place:
    """A matrix descriptor's fields in bytes; `swizzle` is the span of a swizzled row, 0 for none."""

    start: int
    leading: int
    stride: int
    swizzle: int = 0
    base: int = 0

    @property
    def bits(self) -> int:
        mode = {0: 0, 128: 1, 64: 2, 32: 3}[self.swizzle]
        fields = self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32
        return fields | self.base << 49 | mode << 62

    def address(self, line: int, byte: int, k: int, width: int, transposed: bool) -> int:
        """Of `byte` of element (line, k), elements of `width` bytes. K-major: byte counts from the line's start."""
        if not transposed:
            at = k * width + byte
            if self.swizzle:
                offset = line % 8 * self.swizzle + line // 8 * self.stride + at
            else:
                offset = line % 8 * 16 + line // 8 * self.stride + at // 16 * self.leading + at % 16
        elif self.swizzle:
            q = self.swizzle // width
            offset = line % q * width + line // q * self.leading + k % 8 * self.swizzle + k // 8 * self.stride + byte
        else:
            p = 16 // width
            offset = line % p * width + line // p * self.stride + k % 8 * 16 + k // 8 * self.leading + byte
        linear = (self.start + offset) % (1 << 18)
        if not self.swizzle:
            return linear
        row = (linear // 128 - self.base) % (self.swizzle // 16)
        return linear ^ row * 16


def matrix(image: np.ndarray, place: Place, lines: int, kind: str, transposed: bool) -> np.ndarray:
    """The codes [lines, k] that a descriptor names in the bytes of shared memory; of b1 the bits."""
    if kind == "b1":
        rows = matrix(image, place, lines, "u8", transposed)
        return np.unpackbits(rows.astype(np.uint8), axis=1, bitorder="little").astype(np.uint32)
    width = ELEMENT_BITS[kind] // 8
    out = np.zeros((lines, 32 // width), np.uint32)
    for line in range(lines):
        for k in range(32 // width):
            for byte in range(width):
                code = int(image[place.address(line, byte, k, width, transposed)])
                out[line, k] |= np.uint32(code << 8 * byte)
    return out


def fragment_matrix(registers: np.ndarray, kind: str) -> np.ndarray:
    """The 64 rows of A that registers [4, 128] hold, lane by lane."""
    per = 32 // ELEMENT_BITS[kind]  # values in a register
    out = np.zeros((64, 8 * per), np.uint32)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for v in range(4 * per):
            r, part = divmod(v, per)
            row = 16 * warp + lane // 4 + 8 * (r % 2)
            k = per * (lane % 4) + part + 4 * per * (r // 2)
            out[row, k] = int(registers[r, thread]) >> part * ELEMENT_BITS[kind] & (1 << ELEMENT_BITS[kind]) - 1
    return out


def accumulators(form: Form) -> list[tuple[int, int, int, int, int]]:
    """(register, thread, half, row, column) of every element of D."""
    out = []
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for v in range(form.n // 2):
            row, column = 16 * warp + lane // 4 + 8 * (v // 2 % 2), 8 * (v // 4) + 2 * (lane % 4) + v % 2
            out.append((v // 2 if form.d == "f16" else v, thread, v % 2 if form.d == "f16" else 0, row, column))
    return out


def unpack(form: Form, registers: np.ndarray) -> np.ndarray:
    """D's registers [registers, 128] -> [64, n]."""
    reg, thread, half, row, column = np.array(accumulators(form)).T
    out = np.zeros((64, form.n), np.uint32)
    values = registers[reg, thread]
    out[row, column] = (values >> (16 * half).astype(np.uint32)) & 0xFFFF if form.d == "f16" else values
    return out


def run(
    form: Form, image: np.ndarray, a: Place | None, b: Place, c: np.ndarray, fragments: np.ndarray | None = None,
    *, accumulate: bool = True, body: str = "", **options: object,
) -> np.ndarray:  # fmt: skip
    """D's registers after the kernel; c is [registers, 128] of bits."""
    from ptxrun import launch  # needs the emulator; the rest serves where there is none

    out = np.zeros_like(c)
    frag = np.zeros((4, 128), np.uint32) if fragments is None else fragments
    options.setdefault("block", (128, 1, 1))
    text = kernel(form, body or plain_body(form), options["block"][0])  # type: ignore[index]
    launch(text, image, frag, c, out, 0 if a is None else a.bits, b.bits, int(accumulate), smem_bytes=SMEM, **options)
    return out
