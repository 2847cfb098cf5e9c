"""Which thread of a warpgroup holds which element of a wgmma operand, in which register.

PTX ISA 9.0, "Register fragments for wgmma.mma_async": D is 64×N, A in registers is 64×K with K of 32 bytes. A warp
holds 16 rows; within it four neighbouring lanes share a row.
"""

from __future__ import annotations

from dataclasses import dataclass

WARPGROUP = 128
ROWS = 64


@dataclass(frozen=True)
class Fragment:
    """The register layout of one operand and element type.

    Attributes:
        operand: "D" (the accumulator) or "A" (the left operand where it comes from registers).
        dtype: element type. columns: columns of the whole matrix (N of D, K of A).
        packed: elements of one 32-bit register.
        run: neighbouring columns that a thread holds side by side.
    """

    operand: str
    dtype: str
    columns: int
    packed: int
    run: int

    @property
    def values(self) -> int:
        """Elements that each thread holds."""
        return ROWS * self.columns // WARPGROUP

    @property
    def registers(self) -> int:
        """32-bit registers that each thread gives to them."""
        return self.values // self.packed

    def element(self, thread: int, value: int) -> tuple[int, int]:
        """Return (row, column) of element `value` of a thread: 0 ≤ thread < 128, 0 ≤ value < `values`.

        >>> fragment("D", "f32", 64).element(37, 3)  # warp 1, lane 5
        (25, 3)
        """
        _in_range("thread", thread, WARPGROUP)
        _in_range("value", value, self.values)
        warp, lane = divmod(thread, 32)
        across, inside = divmod(value, self.run)  # runs alternate between row r and row r + 8, then move right
        right, lower = divmod(across, 2)
        row = 16 * warp + lane // 4 + 8 * lower
        return row, 4 * self.run * right + self.run * (lane % 4) + inside

    def owner(self, row: int, column: int) -> tuple[int, int]:
        """Return (thread, value) of the element at `row` and `column`: the inverse of `element`."""
        _in_range("row", row, ROWS)
        _in_range("column", column, self.columns)
        warp, low = divmod(row, 16)
        lower, quad = divmod(low, 8)
        right, rest = divmod(column, 4 * self.run)
        lane, inside = divmod(rest, self.run)
        return 32 * warp + 4 * quad + lane, self.run * (2 * right + lower) + inside

    def register(self, value: int) -> str:
        """Name the register of element `value`, with its part where one register packs several: "d3", "a1.hi"."""
        register, part = divmod(value, self.packed)
        suffix = {1: ("",), 2: (".lo", ".hi"), 4: (".b0", ".b1", ".b2", ".b3")}[self.packed][part]
        return f"{self.operand.lower()}{register}{suffix}"


PACKED = {
    "D": {"f32": 1, "s32": 1, "f16": 2},
    "A": {"bf16": 2, "f16": 2, "tf32": 1, "e4m3": 4, "e5m2": 4, "s8": 4, "u8": 4},
}
"""Operand → element type → elements in a register."""


def fragment(operand: str = "D", dtype: str | None = None, n: int = 64) -> Fragment:
    """Return the layout of an operand.

    Args:
        operand: "D" or "A". dtype: a key of `PACKED[operand]`; default "f32" for D, "bf16" for A.
        n: columns of D, a multiple of 8 from 8 to 256; A has K = 8 (tf32), 16 (16-bit types) or 32 (8-bit types).

    Raises:
        ValueError: an operand, a type or an N that wgmma has not.
    """
    if operand not in PACKED:
        raise ValueError(f'operand must be "D" or "A": it is {operand!r}. B always comes from shared memory.')
    kinds = PACKED[operand]
    chosen = next(iter(kinds)) if dtype is None else dtype
    if chosen not in kinds:
        raise ValueError(f"dtype must be one of {', '.join(kinds)} for operand {operand}: it is {chosen!r}")
    packed = kinds[chosen]
    if operand == "A":
        return Fragment("A", chosen, 8 * packed, packed, run=packed)
    if not 8 <= n <= 256 or n % 8:
        raise ValueError(f"n must be a multiple of 8 from 8 to 256: it is {n}")
    return Fragment("D", chosen, n, packed, run=2)


def _in_range(name: str, value: int, stop: int) -> None:
    if not 0 <= value < stop:
        raise ValueError(f"{name} must be 0 to {stop - 1}: it is {value}")
