"""PTX of one kernel for one scalar opcode: thread i computes result i.

Operand a is `base + i` where its pointer is null (so that all 2^32 values need no array), else element i of an array.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
BLOCK = 256


@dataclass(frozen=True)
class Op:
    """An opcode with the widths of its result and operands in bits."""

    number: int
    opcode: str
    result: int
    operands: tuple[int, ...]

    @property
    def name(self) -> str:
        return "op_" + self.opcode.replace(".", "_").replace("::", "_")

    def kernel(self) -> str:
        """(a, b, c, out pointers, base, n): a, b, c as far as the opcode has them are read."""
        lines = []
        for letter, bits in zip("abc", self.operands, strict=False):
            lines += [
                f"ld.param.u64 %q, [p{letter}];",
                f"mad.lo.u64 %q, %i, {bits // 8}, %q;",
                f"{'@%pa ' if letter == 'a' else ''}ld.global.b{bits} %{letter}, [%q];",
            ]
        take = {16: "cvt.u16.u64 %a, %x;", 32: "cvt.u32.u64 %a, %x;", 64: "mov.b64 %a, %x;"}[self.operands[0]]
        registers = " ".join(f".reg .b{b} %{n};" for n, b in zip("abc", self.operands, strict=False))
        operands = ", ".join(f"%{n}" for n, _ in zip("abc", self.operands, strict=False))
        body = "\n  ".join(lines)
        return f"""
.visible .entry {self.name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pout,
                            .param .u64 pbase, .param .u64 pn)
{{
  .reg .b64 %i, %x, %q, %n; .reg .b32 %t, %u, %v; .reg .pred %p, %pa; .reg .b{self.result} %d; {registers}
  mov.u32 %t, %tid.x;
  mov.u32 %u, %ctaid.x;
  mov.u32 %v, %ntid.x;
  mad.wide.u32 %i, %u, %v, 0;
  cvt.u64.u32 %x, %t;
  add.u64 %i, %i, %x;
  ld.param.u64 %n, [pn];
  setp.ge.u64 %p, %i, %n;
  @%p ret;
  ld.param.u64 %x, [pbase];
  add.u64 %x, %x, %i;
  {take}
  ld.param.u64 %q, [pa];
  setp.ne.u64 %pa, %q, 0;
  {body}
  {self.opcode} %d, {operands};
  ld.param.u64 %q, [pout];
  mad.lo.u64 %q, %i, {self.result // 8}, %q;
  st.global.b{self.result} [%q], %d;
  ret;
}}
"""
