"""Operand tiles for one wgmma shape: ordinary ones, and those that a wrong rule would get wrong.

Every family gives codes a [tiles, steps, 64, k], b [tiles, steps, n, k] and c [tiles, 64, n] (or None: no addend).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from wgmma_ptx import Shape

Codes = np.ndarray
Rng = np.random.Generator


@dataclass(frozen=True)
class Layout:
    """Bits of a float format: exponent, mantissa, and unused bits below (tf32)."""

    exponent: int
    mantissa: int
    unused: int = 0
    has_infinity: bool = True

    @property
    def middle(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def top(self) -> int:
        """The largest exponent field of finite numbers."""
        return 2**self.exponent - (2 if self.has_infinity else 1)

    def codes(self, rng: Rng, fields: np.ndarray) -> Codes:
        """Codes with these exponent fields, random signs and mantissas; all finite."""
        fields = np.clip(fields, 0, self.top).astype(np.uint32)
        mantissa = rng.integers(0, 2**self.mantissa, fields.shape, dtype=np.uint32)
        if not self.has_infinity:  # e4m3: the last mantissa under the top exponent is NaN
            mantissa = np.where((fields == self.top) & (mantissa == 2**self.mantissa - 1), 0, mantissa)
        sign = rng.integers(0, 2, fields.shape, dtype=np.uint32) << (self.exponent + self.mantissa)
        junk = rng.integers(0, 2**self.unused, fields.shape, dtype=np.uint32)
        return ((sign | fields << self.mantissa | mantissa) << self.unused) | junk

    def any_codes(self, rng: Rng, shape: tuple[int, ...]) -> Codes:
        return rng.integers(0, 2 ** (1 + self.exponent + self.mantissa + self.unused), shape, dtype=np.uint32)

    def sign_bit(self) -> np.uint32:
        return np.uint32(1 << (self.exponent + self.mantissa + self.unused))

    def specials(self) -> list[int]:
        """Zero, infinity and NaN, as far as the format has them."""
        top = (2**self.exponent - 1) << self.mantissa
        return [x << self.unused for x in ([0, top, top + 1] if self.has_infinity else [0, top + 2**self.mantissa - 1])]

    def around(self, rng: Rng, shape: tuple[int, ...], middle: float, spread: int) -> Codes:
        return self.codes(rng, np.rint(middle + rng.integers(-spread, spread + 1, shape)))


LAYOUTS = {
    "f32": Layout(8, 23),
    "f16": Layout(5, 10),
    "bf16": Layout(8, 7),
    "tf32": Layout(8, 10, 13),
    "e4m3": Layout(4, 3, has_infinity=False),
    "e5m2": Layout(5, 2),
}


@dataclass(frozen=True)
class Tiles:
    family: str
    a: Codes
    b: Codes
    c: Codes | None


class Maker:
    """Makes tiles for one shape. `product(a, b, c)` is the model, which the `answer` family needs."""

    def __init__(self, shape: Shape, rng: Rng, product: Callable[[Codes, Codes, Codes | None], Codes]) -> None:
        self.shape, self.rng, self.product = shape, rng, product
        if shape.d != "s32":
            self.A, self.B, self.D = LAYOUTS[shape.a], LAYOUTS[shape.b], LAYOUTS[shape.d]

    def _shapes(self, tiles: int, steps: int = 1) -> tuple[tuple[int, ...], ...]:
        k, n = self.shape.k, self.shape.n
        return (tiles, steps, 64, k), (tiles, steps, n, k), (tiles, 64, n)

    def families(self, tiles: int) -> Iterator[Tiles]:
        """Every family of the shape's kind, `tiles` tiles each."""
        names = INTEGER_FAMILIES if self.shape.d == "s32" else FLOAT_FAMILIES
        for name in names:
            yield Tiles(name, *getattr(self, "_" + name)(tiles))

    def _bits(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """All codes alike: NaN and infinity in almost every sum of e5m2 and f16, subnormals, all sizes."""
        a, b, c = self._shapes(tiles)
        return self.A.any_codes(self.rng, a), self.B.any_codes(self.rng, b), self.D.any_codes(self.rng, c)

    def _near(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Operands within a few binades."""
        a, b, c = self._shapes(tiles)
        return (
            self.A.around(self.rng, a, self.A.middle, 2),
            self.B.around(self.rng, b, self.B.middle, 2),
            self.D.around(self.rng, c, self.D.middle + 2, 6),
        )

    def _chain(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Four instructions, each adding to the last one's result."""
        a, b, c = self._shapes(tiles, steps=4)
        return (
            self.A.around(self.rng, a, self.A.middle, 3),
            self.B.around(self.rng, b, self.B.middle, 3),
            self.D.around(self.rng, c, self.D.middle, 9),
        )

    def _no_addend(self, tiles: int) -> tuple[Codes, Codes, None]:
        """The first instruction reads no C."""
        a, b, _ = self._shapes(tiles, steps=2)
        return self.A.around(self.rng, a, self.A.middle, 4), self.B.around(self.rng, b, self.B.middle, 4), None

    def _wide(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """All finite sizes beside each other, subnormals too; in every other tile none so large that sums overflow."""
        shapes = self._shapes(tiles)
        sides = []
        for layout, shape in zip((self.A, self.B, self.D), shapes, strict=True):
            fields = self.rng.integers(0, layout.top + 1, shape)
            fields[::2] = np.minimum(fields[::2], (layout.middle + layout.top) // 2 - 4)
            sides.append(layout.codes(self.rng, fields))
        return sides[0], sides[1], sides[2]

    def _ladder(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Exponents that fall with k, so that terms lie on both sides of the last kept bit."""
        a, b, c = self._shapes(tiles)
        k = np.arange(self.shape.k)
        step = 40 / self.shape.k
        fall = np.rint(self.rng.permuted(np.broadcast_to(k * step / 2, a), axis=-1))
        first, second = (min(layout.top - 1, layout.middle + 10) for layout in (self.A, self.B))
        return (
            self.A.codes(self.rng, first - fall),
            self.B.codes(self.rng, np.broadcast_to(second - np.rint(k * step / 2), b)),
            self.D.around(self.rng, c, self.D.middle, 14),
        )

    def _cancel(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Products in pairs of opposite sign: what is left is the small pair at the end, and C."""
        a, b, c = self._shapes(tiles)
        left, right = self.A.around(self.rng, a, self.A.middle, 4), self.B.around(self.rng, b, self.B.middle, 4)
        left[..., 1::2], right[..., 1::2] = left[..., 0::2], right[..., 0::2] ^ self.B.sign_bit()
        left[..., -2:] = self.A.around(self.rng, left[..., -2:].shape, self.A.middle - 8, 6)
        addend = self.D.around(self.rng, c, self.D.middle - 12, 12)
        return left, right, np.where(self.rng.random(c) < 0.3, 0, addend).astype(np.uint32)

    def _answer(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """C is minus the rest of the sum, a few units in the last place off."""
        a, b, c = self._shapes(tiles)
        left, right = self.A.around(self.rng, a, self.A.middle, 3), self.B.around(self.rng, b, self.B.middle, 3)
        rest = self.product(left, right, None) ^ self.D.sign_bit()
        return left, right, rest + self.rng.integers(-3, 4, c).astype(np.uint32)

    def _sparse(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Mostly zeros of both signs and subnormals; C a zero of either sign, or subnormal."""
        a, b, c = self._shapes(tiles)
        left = self.A.codes(self.rng, self.rng.integers(0, 3, a))
        right = self.B.codes(self.rng, self.rng.integers(0, self.B.middle + 3, b))
        for codes, layout in ((left, self.A), (right, self.B)):
            codes[self.rng.random(codes.shape) < 0.7] &= layout.sign_bit()
        addend = self.D.codes(self.rng, np.zeros(c))
        addend[self.rng.random(c) < 0.6] &= self.D.sign_bit()
        left[: tiles // 3] &= self.A.sign_bit()
        return left, right, addend

    def _faint(self, tiles: int) -> tuple[Codes, Codes, Codes | None]:
        """Products far below the smallest subnormal f32 beside some just above it; C a zero of either sign."""
        a, b, c = self._shapes(tiles)
        left = self.A.codes(self.rng, self.rng.integers(0, 4, a))
        right = self.B.codes(self.rng, np.clip(self.B.middle - 4 - 3 * self.rng.integers(0, 12, b), 0, None))
        left[self.rng.random(a) < 0.5] &= self.A.sign_bit()
        return left, right, self.D.any_codes(self.rng, c) & self.D.sign_bit()

    def _faint_alone(self, tiles: int) -> tuple[Codes, Codes, None]:
        """The same without an addend."""
        left, right, _ = self._faint(tiles)
        return left, right, None

    def _huge(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Around the largest values of both sides: overflow, and sums that come back from it."""
        a, b, c = self._shapes(tiles)
        spread = self.rng.integers(0, 3, a)
        total = min(self.A.top + self.B.top, self.A.middle + self.B.middle + self.D.top - self.D.middle)
        mine = min(self.A.top, total - self.B.middle)
        other = min(self.B.top, total - mine)
        return (
            self.A.codes(self.rng, mine - spread),
            self.B.codes(self.rng, other - self.rng.integers(0, 3, b)),
            self.D.codes(self.rng, self.D.top - self.rng.integers(0, 3, c)),
        )

    def _tiny(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Products around the smallest values of D, and of the operands."""
        a, b, c = self._shapes(tiles)
        total = max(0, self.A.middle + self.B.middle - self.D.middle + 1)
        mine = self.rng.integers(0, min(total, self.A.top) + 1, (tiles, 1, 64, 1)) if total else np.zeros(1)
        left = np.clip(mine + self.rng.integers(-2, 3, a), 0, self.A.top)
        other = total / 2 + self.rng.integers(-6, 7, b)
        return (
            self.A.codes(self.rng, left),
            self.B.codes(self.rng, other),
            self.D.codes(self.rng, self.rng.integers(0, 12, c)),
        )

    def _specials(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Ordinary values, and now and then NaN, infinity or zero."""
        a, b, c = self._near(tiles)
        for codes, layout in ((a, self.A), (b, self.B), (c, self.D)):
            special = self.rng.random(codes.shape) < 0.01
            chosen = self.rng.choice(np.array(layout.specials(), np.uint32), codes.shape) | codes & layout.sign_bit()
            codes[special] = chosen[special]
        return a, b, c

    def _bytes(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        a, b, c = self._shapes(tiles)
        whole = self.rng.integers(0, 2**32, c, dtype=np.uint32)
        return self.rng.integers(0, 256, a, np.uint32), self.rng.integers(0, 256, b, np.uint32), whole

    def _extremes(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        """Bytes 0x80, 0x7F, 0xFF, 0 and sums at the ends of s32."""
        a, b, c = self._shapes(tiles)
        ends = np.array([0x80, 0x7F, 0xFF, 0], np.uint32)
        edge = self.rng.choice(np.array([0x7FFF_FFFF, 0x8000_0000, 0], np.uint32), c)
        return self.rng.choice(ends, a), self.rng.choice(ends, b), edge + self.rng.integers(-9, 9, c).astype(np.uint32)

    def _byte_chain(self, tiles: int) -> tuple[Codes, Codes, Codes]:
        a, b, c = self._shapes(tiles, steps=4)
        edge = self.rng.choice(np.array([0x7FFF_0000, 0x8001_0000], np.uint32), c)
        return self.rng.integers(0, 256, a, np.uint32), self.rng.integers(0, 256, b, np.uint32), edge


FLOAT_FAMILIES = (
    *("bits", "near", "chain", "no_addend", "wide", "ladder", "cancel", "answer"),
    *("sparse", "faint", "faint_alone", "huge", "tiny", "specials"),
)
INTEGER_FAMILIES = ("bytes", "extremes", "byte_chain")
