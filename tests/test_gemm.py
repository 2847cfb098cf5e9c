"""The fine-grained FP8 GEMM oracle against exact fractions, and its layouts byte by byte."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy import fp8, gemm

SIZES = [(1, 1, 128), (3, 130, 256), (5, 257, 300), (2, 7, 1), (4, 128, 640)]


def operands(m: int, n: int, k: int, recipe: gemm.Recipe, seed: int = 0) -> tuple[gemm.Operand, gemm.Operand]:
    """Random operands whose blocks differ in size by factors of ten thousand, as activations do."""
    rng = np.random.default_rng(seed)

    def draw(rows: int, group: int) -> gemm.Operand:
        x = (
            rng.normal(size=(rows, k))
            * 10.0 ** rng.uniform(-2, 2, size=(rows, k // 128 + 1)).repeat(128, axis=1)[:, :k]
        )
        return gemm.quantize_blocks(x, rows=group)

    return draw(m, recipe.rows_a), draw(n, recipe.rows_b)


def exact(a: gemm.Operand, b: gemm.Operand, recipe: gemm.Recipe, row: int, column: int) -> Fraction:
    """One element of D in rational arithmetic, term by term."""
    total = Fraction(0)
    for k in range(a.codes.shape[1]):
        block = k // 128
        scale = Fraction(float(a.scales[row // recipe.rows_a, block])) * Fraction(
            float(b.scales[column // recipe.rows_b, block])
        )
        one, other = fp8.decode_e4m3(int(a.codes[row, k])), fp8.decode_e4m3(int(b.codes[column, k]))
        total += Fraction(one) * Fraction(other) * scale
    return total


@pytest.mark.parametrize("recipe", [gemm.FORWARD, gemm.WGRAD])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_float64_agrees_with_exact_fractions(m: int, n: int, k: int, recipe: gemm.Recipe) -> None:
    a, b = operands(m, n, k, recipe)
    out = gemm.gemm_nt(a, b, recipe=recipe)
    assert out.shape == (m, n)
    for row, column in {(0, 0), (m - 1, n - 1), (m // 2, n // 2)}:
        want = exact(a, b, recipe, row, column)
        # one rounding for the two scales, one for the product, one an addition: below 4 per block, of 2^-53 each
        size = abs(want) + Fraction(float(np.abs(out).max()))
        assert abs(Fraction(float(out[row, column])) - want) <= size * 4 * (k // 128 + 1) * Fraction(1, 2**53)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_float32_stays_within_the_bound_of_its_roundings(m: int, n: int, k: int) -> None:
    a, b = operands(m, n, k, gemm.FORWARD, seed=1)
    wide, narrow = gemm.gemm_nt(a, b), gemm.gemm_nt(a, b, precision="float32")
    assert narrow.dtype == np.float32
    magnitude = np.abs(gemm.dequantize_blocks(a)) @ np.abs(gemm.dequantize_blocks(b, rows=128)).T
    # at most 128 additions in a block, three roundings to promote it, one addition a block; 2^-24 each
    assert (np.abs(narrow - wide) <= (128 + 4 + k // 128 + 1) * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize("recipe", [gemm.FORWARD, gemm.WGRAD])
def test_gemm_equals_the_product_of_the_dequantised_matrices(recipe: gemm.Recipe) -> None:
    a, b = operands(9, 200, 512, recipe, seed=2)
    dense = gemm.dequantize_blocks(a, rows=recipe.rows_a) @ gemm.dequantize_blocks(b, rows=recipe.rows_b).T
    magnitude = np.abs(gemm.dequantize_blocks(a)) @ np.abs(gemm.dequantize_blocks(b, rows=recipe.rows_b)).T
    assert (np.abs(gemm.gemm_nt(a, b, recipe=recipe) - dense) <= 512 * 2.0**-52 * magnitude).all()


def test_one_scale_after_the_loop_is_wrong() -> None:
    a, b = operands(8, 16, 256, gemm.FORWARD, seed=3)
    values = fp8.decode_e4m3(a.codes).astype(float) @ fp8.decode_e4m3(b.codes).astype(float).T
    late = values * a.scales.mean(axis=1)[:, None] * b.scales.mean()
    assert gemm.calc_diff(late, gemm.gemm_nt(a, b)) > 1e-3


def test_no_k_gives_zero_and_no_rows_give_an_empty_matrix() -> None:
    a, b = operands(3, 5, 0, gemm.FORWARD)
    assert (gemm.gemm_nt(a, b) == np.zeros((3, 5))).all()
    c = np.arange(15.0).reshape(3, 5)
    assert (gemm.gemm_nt(a, b, c=c) == c).all()
    a, b = operands(0, 5, 256, gemm.FORWARD)
    assert gemm.gemm_nt(a, b).shape == (0, 5)


def test_an_accumulator_is_added_and_left_alone() -> None:
    a, b = operands(3, 5, 128, gemm.WGRAD, seed=4)
    c = np.ones((3, 5), np.float32)
    assert gemm.gemm_nt(a, b, recipe=gemm.WGRAD, c=c) == pytest.approx(
        gemm.gemm_nt(a, b, recipe=gemm.WGRAD) + 1, rel=1e-14
    )
    assert (c == 1).all()


@given(st.integers(1, 9), st.integers(1, 300), st.sampled_from([1, 2, 128]), st.booleans(), st.integers(0, 2**32 - 1))
def test_quantising_errs_by_half_a_step_of_its_block(m: int, k: int, rows: int, power: bool, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(m, k))
    operand = gemm.quantize_blocks(x, rows=rows, power_of_two=power)
    back = gemm.dequantize_blocks(operand, rows=rows)
    scale = np.repeat(np.repeat(operand.scales, rows, axis=0), 128, axis=1)[:m, :k]
    # half a mantissa step (2^-4) of a normal value, half a subnormal step (2^-10) below; 1e-6 for dividing by the scale
    assert (np.abs(back - x) <= np.maximum(np.abs(x) * 2.0**-4, scale * 2.0**-10) * (1 + 1e-6)).all()
    if power:
        assert (np.frexp(operand.scales)[0] == 0.5).all()


def test_zero_block_takes_the_smallest_scale() -> None:
    operand = gemm.quantize_blocks(np.zeros((2, 130)))
    assert (operand.codes == 0).all()
    assert (operand.scales == np.float32(1e-4 / 448)).all()


def test_calc_diff_of_one_percent_is_five_in_a_hundred_thousand() -> None:
    x = np.random.default_rng(0).normal(size=(40, 50))
    assert gemm.calc_diff(x, x) == 0
    assert gemm.calc_diff(x, 1.01 * x) == pytest.approx(4.95e-5, rel=0.01)
    assert gemm.calc_diff(x, -x) == 2
    assert gemm.calc_diff(0 * x, 0 * x) == 0


@pytest.mark.parametrize(("mn", "stride"), [(0, 0), (1, 4), (4, 4), (5, 8), (130, 132)])
def test_scale_stride_is_a_multiple_of_sixteen_bytes(mn: int, stride: int) -> None:
    assert gemm.scale_stride(mn) == stride


@given(st.integers(0, 40), st.integers(1, 6))
def test_mn_major_puts_the_scales_of_one_block_side_by_side(mn: int, blocks: int) -> None:
    scales = np.arange(mn * blocks, dtype=np.float32).reshape(mn, blocks) + 1
    memory = gemm.to_mn_major(scales)
    for row in range(mn):
        for block in range(blocks):
            assert memory[row + block * gemm.scale_stride(mn)] == scales[row, block]
    if mn:
        assert (gemm.from_mn_major(memory, mn) == scales).all()


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_packed_exponents_come_back_low_byte_first(mn: int, blocks: int, seed: int) -> None:
    exponents = np.random.default_rng(seed).integers(-126, 128, size=(mn, blocks))
    scales = np.ldexp(np.float32(1), exponents).astype(np.float32)
    words = gemm.pack_ue8m0(scales)
    assert words.shape == (mn, -(-blocks // 4))
    for row in range(mn):
        for block in range(blocks):
            byte = (int(words[row, block // 4]) >> (8 * (block % 4))) & 0xFF
            assert byte == exponents[row, block] + 127
    assert (gemm.unpack_ue8m0(words, blocks) == scales).all()


@pytest.mark.parametrize("bad", [0.75, -2.0, 3.0])
def test_packing_refuses_what_is_not_a_power_of_two(bad: float) -> None:
    with pytest.raises(ValueError, match="positive powers of two"):
        gemm.pack_ue8m0(np.array([[bad]], np.float32))


def test_errors_name_the_operand_and_the_rule() -> None:
    a, b = operands(3, 5, 256, gemm.FORWARD)
    with pytest.raises(ValueError, match=r"a and b must agree on K: a has 256, b has 5\. B is stored \[N, K\]"):
        gemm.gemm_nt(a, gemm.Operand(np.ascontiguousarray(b.codes.T), b.scales))
    with pytest.raises(ValueError, match=r"b\.scales must have shape \[5, 2\], one for 1×128 codes: it has \[1, 2\]"):
        gemm.gemm_nt(a, b, recipe=gemm.WGRAD)
    with pytest.raises(ValueError, match="Are the scales MN-major"):
        gemm.gemm_nt(gemm.Operand(a.codes, gemm.to_mn_major(a.scales)), b)
    with pytest.raises(ValueError, match=r"a\.codes must be a uint8 matrix: it is float32"):
        gemm.gemm_nt(gemm.Operand(a.codes.astype(np.float32), a.scales), b)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="precision must be"):
        gemm.gemm_nt(a, b, precision="bfloat16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="c must have shape"):
        gemm.gemm_nt(a, b, c=np.zeros((5, 3)))
    with pytest.raises(ValueError, match="x must be finite"):
        gemm.quantize_blocks(np.array([[np.nan]]))
    with pytest.raises(ValueError, match="x must be a matrix"):
        gemm.quantize_blocks(np.zeros(3))
    with pytest.raises(ValueError, match="one shape"):
        gemm.calc_diff(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="memory must be flat"):
        gemm.from_mn_major(np.zeros(5, np.float32), 3)
    with pytest.raises(ValueError, match=r"words must be \[MN, 2\]"):
        gemm.unpack_ue8m0(np.zeros((1, 1), np.int32), 5)
