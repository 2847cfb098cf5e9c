"""PTX of one kernel for one wgmma shape: each CTA computes one tile through a chain of instructions.

Operands lie in shared memory without swizzle, in core matrices of 8 rows × 16 bytes: byte b of row r is at
`(r // 8) · 256 + (b // 16) · 128 + (r % 8) · 16 + b % 16`. A K slice has 32 bytes for every type, so a tile of A has
2,048 bytes and one of B 32·n. C and D are `[tile][register][thread]`, the fragments as the threads hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n"
_LBO, _SBO = 128, 256


@dataclass(frozen=True)
class Shape:
    """wgmma m64n{n}k{k}.{d}.{a}.{b}."""

    d: str
    a: str
    b: str
    n: int
    satfinite: bool = False
    negate: tuple[int, int] = (1, 1)  # imm-scale-a, imm-scale-b

    @property
    def k(self) -> int:
        return DEPTH[self.a]

    @property
    def registers(self) -> int:
        return self.n // 4 if self.d == "f16" else self.n // 2

    @property
    def name(self) -> str:
        signs = "".join("m" if sign < 0 else "p" for sign in self.negate)
        extra = ("_sat" if self.satfinite else "") + ("" if signs == "pp" else f"_{signs}")
        return f"mma_{self.d}_{self.a}_{self.b}_n{self.n}{extra}"

    @property
    def opcode(self) -> str:
        sat = ".satfinite" if self.satfinite else ""
        return f"wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}.{self.d}.{self.a}.{self.b}{sat}"

    def kernel(self) -> str:
        """The kernel's PTX: (a, b, c, d pointers, steps, use_c)."""
        kind = {"f32": "f32", "f16": "b32", "s32": "b32"}[self.d]
        names = [f"%d{v}" for v in range(self.registers)]
        pieces = [f"ld.global.b32 {name}, [%rc+{512 * v}];" for v, name in enumerate(names)]
        stores = [f"st.global.b32 [%rd+{512 * v}], {name};" for v, name in enumerate(names)]
        copies = []
        for first in range(0, 2 * self.n, 128):  # 16-byte pieces of B, one a thread
            offset = 16 * first
            copies += [
                f"setp.lt.u32 %p2, %tid_, {2 * self.n - first};",
                f"@%p2 ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%rb+{offset}];",
                f"@%p2 st.shared.v4.b32 [%sb_+{offset}], {{%x0, %x1, %x2, %x3}};",
            ]
        tail = ""
        if self.d != "s32":
            tail = f", {self.negate[0]}, {self.negate[1]}" + (", 0, 0" if self.a in ("f16", "bf16") else "")
        newline = "\n  "
        return f"""
.visible .entry {self.name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd,
                            .param .u32 psteps, .param .u32 puse)
.maxntid 128
{{
  .reg .{kind} %d<{self.registers}>;
  .reg .b32 %x<4>, %tid_, %cta, %steps, %use, %sa_, %sb_, %t;
  .reg .b64 %ra, %rb, %rc, %rd, %w, %da, %db;
  .reg .pred %p<4>;
  .shared .align 1024 .b8 sa[2048];
  .shared .align 1024 .b8 sb[{32 * self.n}];
  mov.u32 %tid_, %tid.x;
  mov.u32 %cta, %ctaid.x;
  ld.param.u64 %ra, [pa];
  ld.param.u64 %rb, [pb];
  ld.param.u64 %rc, [pc];
  ld.param.u64 %rd, [pd];
  ld.param.u32 %steps, [psteps];
  ld.param.u32 %use, [puse];
  mul.lo.u32 %t, %cta, %steps;
  mul.wide.u32 %w, %t, 2048;
  add.u64 %ra, %ra, %w;
  mul.wide.u32 %w, %t, {32 * self.n};
  add.u64 %rb, %rb, %w;
  mul.wide.u32 %w, %tid_, 16;
  add.u64 %ra, %ra, %w;
  add.u64 %rb, %rb, %w;
  mul.wide.u32 %w, %cta, {512 * self.registers};
  add.u64 %rc, %rc, %w;
  add.u64 %rd, %rd, %w;
  mul.wide.u32 %w, %tid_, 4;
  add.u64 %rc, %rc, %w;
  add.u64 %rd, %rd, %w;
  {newline.join(pieces)}
  mov.u32 %sa_, sa;
  cvt.u64.u32 %da, %sa_;
  shr.u64 %da, %da, 4;
  or.b64 %da, %da, {_LBO // 16 << 16 | _SBO // 16 << 32};
  mov.u32 %sb_, sb;
  cvt.u64.u32 %db, %sb_;
  shr.u64 %db, %db, 4;
  or.b64 %db, %db, {_LBO // 16 << 16 | _SBO // 16 << 32};
  shl.b32 %t, %tid_, 4;
  add.u32 %sa_, %sa_, %t;
  add.u32 %sb_, %sb_, %t;
  setp.ne.u32 %p1, %use, 0;
STEP:
  ld.global.v4.b32 {{%x0, %x1, %x2, %x3}}, [%ra];
  st.shared.v4.b32 [%sa_], {{%x0, %x1, %x2, %x3}};
  {newline.join(copies)}
  fence.proxy.async;
  bar.sync 0;
  wgmma.fence.sync.aligned;
  {self.opcode} {{{", ".join(names)}}}, %da, %db, %p1{tail};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  bar.sync 0;
  add.u64 %ra, %ra, 2048;
  add.u64 %rb, %rb, {32 * self.n};
  setp.eq.u32 %p1, %steps, %steps;
  sub.u32 %steps, %steps, 1;
  setp.ne.u32 %p3, %steps, 0;
  @%p3 bra STEP;
  {newline.join(stores)}
  ret;
}}
"""

    def core_matrices(self, codes: np.ndarray) -> np.ndarray:
        """codes [..., rows, k] of the element's width -> the bytes in shared-memory order, uint8 [..., rows · 32]."""
        raw = np.ascontiguousarray(codes).view(np.uint8)
        *lead, rows, width = raw.shape
        blocks = raw.reshape(*lead, rows // 8, 8, width // 16, 16)
        return np.ascontiguousarray(blocks.swapaxes(-3, -2)).reshape(*lead, rows * width)

    def fragments(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of accumulator element [register, thread], or [register, thread, half] for f16."""
        v = np.arange(self.n // 2)[:, None]
        t = np.arange(128)[None, :]
        warp, lane = t // 32, t % 32
        row = 16 * warp + lane // 4 + 8 * ((v // 2) % 2)
        col = 8 * (v // 4) + 2 * (lane % 4) + v % 2
        if self.d != "f16":
            return row, col
        return (np.stack([x[0::2], x[1::2]], axis=-1) for x in (row, col))  # type: ignore[return-value]

    def pack(self, tile: np.ndarray) -> np.ndarray:
        """uint32 [..., 64, n] (f32 bits, f16 codes or s32) -> uint32 [..., registers, 128]."""
        row, col = self.fragments()
        values = tile[..., row, col]
        return values if self.d != "f16" else values[..., 0] | values[..., 1] << np.uint32(16)

    def unpack(self, registers: np.ndarray) -> np.ndarray:
        """The inverse of `pack`."""
        row, col = self.fragments()
        out = np.empty((*registers.shape[:-2], 64, self.n), np.uint32)
        halves = registers if self.d != "f16" else np.stack([registers & 0xFFFF, registers >> 16], axis=-1)
        out[..., row, col] = halves
        return out


def every_shape() -> list[Shape]:
    """All N for bf16; every type combination at n = 256, where most outputs come from one instruction."""
    shapes = [Shape("f32", "bf16", "bf16", n) for n in range(8, 257, 8)]
    shapes += [Shape("f32", "f16", "f16", 256), Shape("f16", "f16", "f16", 256), Shape("f32", "tf32", "tf32", 256)]
    fp8, int8 = ("e4m3", "e5m2"), ("s8", "u8")
    shapes += [Shape(d, a, b, 256) for d in ("f32", "f16") for a in fp8 for b in fp8]
    shapes += [Shape("s32", a, b, 256, satfinite=sat) for a in int8 for b in int8 for sat in (False, True)]
    shapes += [Shape("f32", "bf16", "bf16", 128, negate=signs) for signs in ((-1, 1), (1, -1), (-1, -1))]
    return shapes
