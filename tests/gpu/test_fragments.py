"""Register fragments against the index formulas of the PTX manual, written out type by type."""

from __future__ import annotations

import pytest

from mlacademy.gpu.fragments import PACKED, fragment


def published(operand: str, packed: int, thread: int, v: int) -> tuple[int, int]:
    """(row, column) as the PTX ISA's figures of wgmma fragments number them."""
    warp, lane = divmod(thread, 32)
    row = 16 * warp + lane // 4
    if operand == "D":
        return row + 8 * (v // 2 % 2), 8 * (v // 4) + 2 * (lane % 4) + v % 2
    if packed == 2:
        return row + 8 * (v // 2 % 2), 8 * (v // 4) + 2 * (lane % 4) + v % 2
    if packed == 4:
        return row + 8 * (v // 4 % 2), 16 * (v // 8) + 4 * (lane % 4) + v % 4
    return row + 8 * (v % 2), 4 * (v // 2) + lane % 4


KINDS = [("D", t, n) for t in PACKED["D"] for n in (8, 24, 64, 256)] + [("A", t, 64) for t in PACKED["A"]]


@pytest.mark.parametrize(("operand", "dtype", "n"), KINDS)
def test_every_element_is_where_the_manual_puts_it(operand: str, dtype: str, n: int) -> None:
    it = fragment(operand, dtype, n)
    for thread in range(128):
        for value in range(it.values):
            assert it.element(thread, value) == published(operand, it.packed, thread, value)


@pytest.mark.parametrize(("operand", "dtype", "n"), KINDS)
def test_owner_undoes_element_and_the_fragments_tile_the_matrix(operand: str, dtype: str, n: int) -> None:
    it = fragment(operand, dtype, n)
    seen = {it.element(t, v): (t, v) for t in range(128) for v in range(it.values)}
    assert seen.keys() == {(r, c) for r in range(64) for c in range(it.columns)}
    assert all(it.owner(*place) == who for place, who in seen.items())


def test_accumulator_of_16_columns_has_the_lanes_of_a_16_bit_operand() -> None:
    d, a = fragment("D", "f32", 16), fragment("A", "bf16")
    assert [d.element(77, v) for v in range(8)] == [a.element(77, v) for v in range(8)]


@pytest.mark.parametrize(
    ("operand", "dtype", "columns", "registers", "last"),
    [
        ("D", "f32", 64, 32, "d31"),
        ("D", "f16", 64, 16, "d15.hi"),
        ("A", "bf16", 16, 4, "a3.hi"),
        ("A", "e4m3", 32, 4, "a3.b3"),
        ("A", "tf32", 8, 4, "a3"),
    ],
)
def test_registers_are_counted_and_named(operand: str, dtype: str, columns: int, registers: int, last: str) -> None:
    it = fragment(operand, dtype)
    assert (it.columns, it.registers) == (columns, registers)
    assert it.register(it.values - 1) == last


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match='operand must be "D" or "A": it is \'B\''):
        fragment("B")
    with pytest.raises(ValueError, match="dtype must be one of f32, s32, f16 for operand D: it is 'bf16'"):
        fragment("D", "bf16")
    with pytest.raises(ValueError, match="n must be a multiple of 8 from 8 to 256: it is 100"):
        fragment("D", n=100)
    with pytest.raises(ValueError, match="thread must be 0 to 127: it is 128"):
        fragment().element(128, 0)
    with pytest.raises(ValueError, match="value must be 0 to 31: it is 32"):
        fragment().element(0, 32)
    with pytest.raises(ValueError, match="row must be 0 to 63: it is -1"):
        fragment().owner(-1, 0)
