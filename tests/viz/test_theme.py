"""Every accent reads on white and on black, and no two are the same to a colour-blind reader."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mlacademy.viz.theme import INK, PALETTE, STYLE, accent

# Linear-RGB matrices of Machado, Oliveira and Fernandes (2009) for full severity.
VISION = {
    "trichromat": np.eye(3),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, two: str) -> float:
    """WCAG 2.2 contrast ratio."""
    low, high = sorted(float(linear(c) @ TO_XYZ[1]) for c in (one, two))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_contrast_formula_gives_21_for_black_on_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
@pytest.mark.parametrize("colour", PALETTE)
def test_every_accent_has_three_to_one_on_white_and_on_black(colour: str, ground: str) -> None:
    assert contrast(colour, ground) >= 3


@pytest.mark.parametrize("vision", VISION)
def test_any_two_accents_differ_for_every_kind_of_vision(vision: str) -> None:
    # A CIE76 difference of 2.3 is just noticeable side by side; 18 is plain across a picture.
    for one, two in itertools.combinations(PALETTE, 2):
        apart = np.linalg.norm(lab(VISION[vision] @ linear(one)) - lab(VISION[vision] @ linear(two)))
        assert apart > 18, f"{one} and {two} are {apart:.1f} apart for a {vision}"


def test_accents_repeat_and_ink_is_the_page_own() -> None:
    assert accent(0) == PALETTE[0] == accent(len(PALETTE))
    assert INK == "currentColor"


def test_style_sheet_touches_only_pictures() -> None:
    for rule in STYLE.split("}"):
        assert not rule.strip() or ".mla-figure" in rule.split("{")[0]
