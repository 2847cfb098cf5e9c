"""Swizzles against the published bit rules, bank conflicts against hand-worked cases and a plain bank machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy.gpu import tensor_map
from mlacademy.gpu.shared_memory import SWIZZLES, bank_conflicts, swizzle

# Which address bit is flipped by which, as the tables of the modes say.
FLIPS = {
    "none": [],
    "32B": [(4, 7)],
    "64B": [(4, 7), (5, 8)],
    "128B": [(4, 7), (5, 8), (6, 9)],
    "128B_ATOM_32B": [(5, 7), (6, 8)],
    "128B_ATOM_64B": [(6, 7)],
}


def flipped(address: int, mode: str) -> int:
    """Bit by bit, on a string of binary digits."""
    bits = list(reversed(f"{address:032b}"))
    out = list(bits)
    for low, high in FLIPS[mode]:
        out[low] = str(int(bits[low] != bits[high]))
    return int("".join(reversed(out)), 2)


@pytest.mark.parametrize("mode", SWIZZLES)
def test_every_address_of_two_repeats_moves_as_the_bits_say(mode: str) -> None:
    assert [swizzle(a, mode) for a in range(4096)] == [flipped(a, mode) for a in range(4096)]
    np.testing.assert_array_equal(swizzle(np.arange(4096), mode), [flipped(a, mode) for a in range(4096)])


@pytest.mark.parametrize("mode", SWIZZLES)
def test_swizzle_permutes_each_repeat_and_undoes_itself(mode: str) -> None:
    repeat = SWIZZLES[mode].repeat_bytes
    moved = [swizzle(a, mode) for a in range(repeat)]
    assert sorted(moved) == list(range(repeat))
    assert [swizzle(a, mode) for a in moved] == list(range(repeat))
    assert [swizzle(a + repeat, mode) - repeat for a in range(repeat)] == moved


def test_modes_are_those_of_a_tensor_map_but_for_the_one_that_swaps_halves_of_chunks() -> None:
    assert tensor_map.SWIZZLES.keys() - SWIZZLES.keys() == {"128B_ATOM_32B_FLIP_8B"}
    assert SWIZZLES.keys() <= tensor_map.SWIZZLES.keys()


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mode must be one of none, 32B, 64B, 128B, .*: it is '128'"):
        swizzle(0, "128")


def passes(addresses: list[int | None], size: int) -> int:
    """A plain bank machine: each pass every bank serves one word, to all lanes of the group that want it."""
    group_lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
    total = 0
    for start in range(0, len(addresses), group_lanes):
        waiting = {b // 4 for a in addresses[start : start + group_lanes] if a is not None for b in range(a, a + size)}
        while waiting:
            total += 1
            busy: set[int] = set()
            for word in sorted(waiting):
                if word % 32 not in busy:
                    busy.add(word % 32)
                    waiting.discard(word)
    return total


@given(st.sampled_from([1, 2, 4, 8, 16]), st.lists(st.none() | st.integers(0, 400), max_size=32))
def test_passes_are_those_of_a_plain_bank_machine(size: int, places: list[int | None]) -> None:
    addresses = [None if p is None else p * size for p in places]
    cost = bank_conflicts(addresses, size)
    assert cost.passes == passes(addresses, size)
    assert cost.conflicts >= 0
    assert sum(cost.words) <= 32 * cost.passes


@pytest.mark.parametrize(
    ("addresses", "size", "passes", "groups"),
    [
        (range(0, 128, 4), 4, 1, 1),  # neighbours
        ([64] * 32, 4, 1, 1),  # a broadcast
        (range(0, 256, 8), 4, 2, 1),  # every second word: two-way
        (range(0, 4224, 132), 4, 1, 1),  # rows padded by one word
        (range(0, 4096, 128), 4, 32, 1),  # a column of a matrix with 32 words a row
        (range(0, 512, 16), 16, 4, 4),  # 512 bytes in order
        (range(0, 256, 8), 8, 2, 2),
        (range(64), 1, None, None),
        ([], 4, 0, 0),
    ],
)
def test_textbook_accesses(addresses: range, size: int, passes: int | None, groups: int | None) -> None:
    if passes is None:
        with pytest.raises(ValueError, match="32 lanes at most: there are 64"):
            bank_conflicts(addresses, size)
        return
    cost = bank_conflicts(addresses, size)
    assert (cost.passes, cost.groups) == (passes, groups)


def test_ways_are_passes_of_a_group() -> None:
    assert bank_conflicts(range(0, 4096, 128)).ways == 32
    assert bank_conflicts(range(0, 512, 16), 16).ways == 1


def test_bad_accesses_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="access_bytes must be 1, 2, 4, 8 or 16: it is 12"):
        bank_conflicts([0], 12)
    with pytest.raises(ValueError, match="multiples of 16 from 0 on: lane 1 has 8"):
        bank_conflicts([0, 8], 16)
    with pytest.raises(ValueError, match="lane 0 has -4"):
        bank_conflicts([-4])
    with pytest.raises(TypeError):
        bank_conflicts([1.5])  # type: ignore[list-item]
