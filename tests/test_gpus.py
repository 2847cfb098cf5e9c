"""The catalogue's numbers agree with each other, and occupancy is what a count by hand gives."""

from __future__ import annotations

import pytest

from mlacademy import gpus

SPARSE_DECODE = {"threads": 384, "registers_per_thread": 168, "smem_bytes": 231_424}


def test_the_h100_clock_follows_from_its_peak() -> None:
    assert gpus.H100.clock_hz == pytest.approx(1.83e9, rel=0.001)
    assert gpus.B200.clock_hz == pytest.approx(1.856e9, rel=0.001)


@pytest.mark.parametrize(("gpu", "ridge"), [(gpus.H100, 295), (gpus.H200, 206), (gpus.H20, 37), (gpus.B200, 281)])
def test_the_ridge_is_peak_over_bandwidth(gpu: gpus.GPU, ridge: int) -> None:
    assert round(gpu.ridge()) == ridge
    assert gpu.attainable_flops(gpu.ridge()) == pytest.approx(gpu.bf16_flops)
    assert gpu.attainable_flops(gpu.ridge() / 2) == pytest.approx(gpu.bf16_flops / 2)
    assert gpu.attainable_flops(gpu.ridge() * 2) == gpu.bf16_flops


def test_shared_memory_of_all_sms_moves_about_31_terabytes_a_second() -> None:
    assert gpus.H100.smem_bytes_per_s / 1e12 == pytest.approx(30.9, abs=0.05)


def test_tensor_memory_is_256_kib_on_blackwell_and_absent_on_hopper() -> None:
    assert gpus.B200.tmem_bytes_per_sm == 256 * 1024
    assert gpus.H200.tmem_bytes_per_sm == 0


def test_one_sparse_decode_cta_fills_an_sm() -> None:
    assert gpus.H200.resident_ctas(**SPARSE_DECODE) == 1


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ({"threads": 256, "registers_per_thread": 32, "smem_bytes": 0}, 8),  # threads: 2048 / 256
        ({"threads": 128, "registers_per_thread": 128, "smem_bytes": 0}, 4),  # registers: 65,536 / 16,384
        ({"threads": 128, "registers_per_thread": 32, "smem_bytes": 100 * 1024}, 2),  # 228 / 101
        ({"threads": 32, "registers_per_thread": 16, "smem_bytes": 0}, 32),  # at most 32 CTAs
        ({"threads": 160, "registers_per_thread": 80, "smem_bytes": 0}, 4),  # 6 warps of 2,560 a quarter: 24 / 5
        ({"threads": 384, "registers_per_thread": 169, "smem_bytes": 0}, None),  # 169 rounds up to 176: 67,584
    ],
)
def test_occupancy_is_set_by_the_scarcest_resource(shape: dict[str, int], count: int | None) -> None:
    if count is None:
        with pytest.raises(ValueError, match=r"need 67,584 registers, an SM has 65,536"):
            gpus.H200.resident_ctas(**shape)
    else:
        assert gpus.H200.resident_ctas(**shape) == count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"smem_bytes": 232_449}, r"must be 0 to 232,448 \(227 KiB a CTA\), got 232,449: 1 too many"),
        ({"smem_bytes": -1}, r"must be 0 to 232,448 \(227 KiB a CTA\), got -1$"),
        ({"threads": 100}, r"threads must be a multiple of 32 from 32 to 1024, got 100"),
        ({"threads": 800, "registers_per_thread": 80}, r"an SM has 65,536: room for 24 such warps, not for 25"),
        ({"registers_per_thread": 256}, r"registers_per_thread must be 1 to 255, got 256"),
    ],
)
def test_a_shape_that_cannot_be_launched_is_refused_by_name(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpus.H200.resident_ctas(**(SPARSE_DECODE | change))
