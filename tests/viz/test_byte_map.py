"""The byte map says for each byte what it is, checked against the layouts written out by hand."""

from __future__ import annotations

import re
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from svg_reading import details

from mlacademy import cache
from mlacademy.viz.byte_map import describe, token_bytes, token_cells


def e4m3(code: int) -> Fraction:
    """An E4M3 code's value from its bits."""
    exponent, mantissa = code >> 3 & 15, code & 7
    size = Fraction(mantissa, 8) / 64 if exponent == 0 else (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)
    return -size if code & 0x80 else size


def by_hand(name: str, page: int, offset: int) -> list[tuple[str, int, int, int]]:
    """(field, index, address, width) of each stored value."""
    if name == "V32":
        start = 656 * offset
        return (
            [("nope", i, start + i, 1) for i in range(512)]
            + [("scale", i, start + 512 + 4 * i, 4) for i in range(4)]
            + [("rope", i, start + 528 + 2 * i, 2) for i in range(64)]
        )
    start, tail = 576 * offset, 576 * page + 8 * offset
    return (
        [("nope", i, start + i, 1) for i in range(448)]
        + [("rope", i, start + 448 + 2 * i, 2) for i in range(64)]
        + [("scale", i, tail + i, 1) for i in range(7)]
        + [("pad", 0, tail + 7, 1)]
    )


@given(st.sampled_from(["V32", "MODEL1"]), st.integers(1, 300), st.data())
def test_every_byte_of_a_token_is_mapped_once(name: str, page: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, page - 1))
    cells = token_cells(cache.layout(name), page, offset)
    assert [(c.field, c.index, c.address, c.width) for c in cells] == by_hand(name, page, offset)
    assert {c.tile for c in cells if c.field == "nope"} == set(range(4 if name == "V32" else 7))


def stored(name: str, page: int, offset: int, seed: int) -> torch.Tensor:
    layout = cache.layout(name)
    generator = torch.Generator().manual_seed(seed)
    pages = cache.new_cache(layout, 2, page)
    slots = torch.tensor([page + offset])
    cache.append(
        pages,
        slots,
        10 * torch.randn(1, layout.d_nope, generator=generator),
        torch.randn(1, layout.d_rope, generator=generator),
        layout,
    )
    return pages


@pytest.mark.parametrize(
    ("name", "page", "offset", "seed"), [("V32", 64, 3, 0), ("V32", 2, 1, 1), ("MODEL1", 61, 60, 2)]
)
def test_decoded_values_are_those_of_the_bits(name: str, page: int, offset: int, seed: int) -> None:
    pages = stored(name, page, offset, seed)
    cells = token_cells(cache.layout(name), page, offset, pages[1])
    raw = pages.as_strided((pages.stride(0),), (1,), pages.stride(0)).numpy()
    scales: dict[int, float] = {}
    for c in cells:
        chunk = raw[c.address : c.address + c.width].tobytes()
        assert c.raw == chunk
        if c.field == "scale":
            scales[c.index] = struct.unpack("<f", chunk)[0] if c.width == 4 else 2.0 ** (chunk[0] - 127)
            assert c.value == scales[c.index]
        elif c.field == "rope":
            assert c.value == struct.unpack("<f", b"\0\0" + chunk)[0]
    for c in cells:
        if c.field == "nope":
            assert c.value == float(e4m3(c.raw[0])) * scales[c.tile]
    gathered = cache.gather(pages, torch.tensor([page + offset]), cache.layout(name))[0]
    values = [c.value for f in ("nope", "rope") for c in cells if c.field == f]
    np.testing.assert_array_equal(np.array(values, dtype=np.float32), gathered.numpy())


def test_hovering_a_byte_tells_field_index_address_and_value() -> None:
    pages = stored("V32", 64, 3, 0)
    cell = token_cells(cache.V32, 64, 3, pages[1])[135]
    code = int(pages[1].reshape(-1)[3 * 656 + 135])
    sentence = describe(cell)
    assert sentence.startswith("byte 2,103 of the page (0x837): NoPE value 135, E4M3, tile 1, multiplied by scale 1")
    assert f"code 0x{code:02X}" in sentence
    picture = token_bytes("V32", 64, 3, data=pages[1])
    assert sentence in details(picture.svg)


def test_every_value_has_its_sentence_in_the_drawing() -> None:
    for name, count in (("V32", 580), ("MODEL1", 520)):
        sentences = details(token_bytes(name, 64, 5).svg)
        assert sum("of the page (0x" in s for s in sentences) == count


def test_twin_names_the_byte_ranges_of_a_split_layout() -> None:
    text = token_bytes("MODEL1", 64, 10).text
    assert "37,440 bytes to the next page" in text
    assert "Values of all tokens: 36,864 bytes. Scales: 512 bytes. Padding at the end: 64 bytes." in text
    assert "NoPE: bytes 5,760–6,207 of the page (448 bytes)" in text
    assert "scale: bytes 36,944–36,950 of the page (7 bytes)" in text
    assert "pad: bytes 36,951–36,951 of the page (1 byte)" in text


def test_nan_codes_are_shown_as_nan() -> None:
    page = np.zeros(656, dtype=np.uint8)
    page[0] = 0x7F
    page[512:528] = np.frombuffer(np.ones(4, "<f4").tobytes(), np.uint8)
    assert "code 0x7F = NaN, times scale = NaN" in details(token_bytes("V32", 1, 0, data=page).svg)[3]


def test_colour_deepens_with_the_size_of_the_code() -> None:
    page = np.zeros(656, dtype=np.uint8)
    page[:3] = (0x00, 0x38, 0x7E)
    svg = token_bytes("V32", 1, 0, data=page).svg
    depths = [float(d) for d in re.findall(r'fill-opacity="([\d.]+)" rx="1.5"', svg)[:3]]
    assert depths == sorted(depths)
    assert depths[0] == 0.15


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="layout must be one of"):
        token_bytes("V4")
    with pytest.raises(ValueError, match="offset must be 0 to 63 in a page of 64: it is 64"):
        token_bytes("V32", 64, 64)
    with pytest.raises(ValueError, match="data must hold the whole page, 41,984 bytes: it has 656"):
        token_bytes("V32", 64, 0, data=np.zeros(656, np.uint8))
    with pytest.raises(TypeError, match="data must be the page's bytes as uint8: its dtype is float32"):
        token_bytes("V32", 1, 0, data=np.zeros(656, np.float32))
