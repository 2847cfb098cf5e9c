"""The GPUs the course speaks of, as numbers with sources, and what fits on one of their SMs.

Sources: NVIDIA's data sheets for H100, H200, H20 and B200 (dense peaks, memory size and bandwidth); the table
"Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide (limits of one SM); for tensor
memory the PTX ISA, section "Tensor Memory". The H800 is the H100 with a slower link between cards and little FP64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LANES_PER_WARP = 32
THREADS_PER_WARPGROUP = 128
QUARTERS_PER_SM = 4
"""Parts of an SM, each with its own registers and warp scheduler."""
RESERVED_SMEM_BYTES = 1024
"""Shared memory that the system keeps for itself in every resident CTA."""


@dataclass(frozen=True)
class GPU:
    """One card. Rates are per second for the whole card, sizes are bytes, limits are per SM or per CTA as named."""

    name: str
    architecture: str
    sms: int
    bf16_flops: float
    fp8_flops: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    bf16_flops_per_clock_per_sm: int
    tmem_bytes_per_sm: int
    registers_per_sm: int = 65_536
    smem_bytes_per_sm: int = 228 * 1024
    smem_bytes_per_cta: int = 227 * 1024
    smem_bytes_per_clock_per_sm: int = 128
    threads_per_sm: int = 2_048
    ctas_per_sm: int = 32

    @property
    def clock_hz(self) -> float:
        """The clock at which the tensor cores would reach the data sheet's dense BF16 peak."""
        return self.bf16_flops / (self.sms * self.bf16_flops_per_clock_per_sm)

    @property
    def smem_bytes_per_s(self) -> float:
        """Shared-memory bandwidth of all SMs together: 128 bytes a clock and SM."""
        return self.sms * self.smem_bytes_per_clock_per_sm * self.clock_hz

    def ridge(self, *, fp8: bool = False) -> float:
        """FLOP per byte from HBM above which the tensor cores, and no longer the memory, set the time."""
        return (self.fp8_flops if fp8 else self.bf16_flops) / self.hbm_bytes_per_s

    def attainable_flops(self, flop_per_byte: float, *, fp8: bool = False) -> float:
        """The roofline: the lower of the compute peak and intensity times bandwidth, in FLOP/s."""
        return min(self.fp8_flops if fp8 else self.bf16_flops, flop_per_byte * self.hbm_bytes_per_s)

    def resident_ctas(self, *, threads: int, registers_per_thread: int, smem_bytes: int) -> int:
        """How many CTAs of this shape one SM holds at the same time.

        A warp's registers are handed out in units of 256 and lie in one quarter of the SM, so each quarter holds whole
        warps; each CTA also costs ``RESERVED_SMEM_BYTES``. Raises ``ValueError`` where not even one CTA fits.
        """
        if threads <= 0 or threads % LANES_PER_WARP or threads > 1024:
            raise ValueError(f"threads must be a multiple of 32 from 32 to 1024, got {threads}")
        if not 0 < registers_per_thread <= 255:
            raise ValueError(f"registers_per_thread must be 1 to 255, got {registers_per_thread}")
        if not 0 <= smem_bytes <= self.smem_bytes_per_cta:
            over = smem_bytes - self.smem_bytes_per_cta
            raise ValueError(
                f"smem_bytes must be 0 to {self.smem_bytes_per_cta:,} (227 KiB a CTA), got {smem_bytes:,}"
                + (f": {over:,} too many" if over > 0 else "")
            )
        warps = threads // LANES_PER_WARP
        registers_per_warp = -(-registers_per_thread * LANES_PER_WARP // 256) * 256
        room = QUARTERS_PER_SM * (self.registers_per_sm // QUARTERS_PER_SM // registers_per_warp)
        if warps > room:
            raise ValueError(
                f"{threads} threads of {registers_per_thread} registers need {warps * registers_per_warp:,} registers, "
                f"an SM has {self.registers_per_sm:,}: room for {room} such warps, not for {warps}"
            )
        return min(
            room // warps,
            self.smem_bytes_per_sm // (smem_bytes + RESERVED_SMEM_BYTES),
            self.threads_per_sm // threads,
            self.ctas_per_sm,
        )


_HOPPER: dict[str, Any] = {"architecture": "SM90", "bf16_flops_per_clock_per_sm": 4096, "tmem_bytes_per_sm": 0}
_BLACKWELL: dict[str, Any] = {
    "architecture": "SM100",
    "bf16_flops_per_clock_per_sm": 8192,
    "tmem_bytes_per_sm": 128 * 512 * 4,  # lanes × columns × 32-bit cells
}

H100 = GPU(
    "H100 SXM", sms=132, bf16_flops=989e12, fp8_flops=1979e12, hbm_bytes=80e9, hbm_bytes_per_s=3.35e12, **_HOPPER
)
H800 = GPU(
    "H800 SXM", sms=132, bf16_flops=989e12, fp8_flops=1979e12, hbm_bytes=80e9, hbm_bytes_per_s=3.35e12, **_HOPPER
)
H200 = GPU("H200", sms=132, bf16_flops=989e12, fp8_flops=1979e12, hbm_bytes=141e9, hbm_bytes_per_s=4.8e12, **_HOPPER)
_H20 = _HOPPER | {"bf16_flops_per_clock_per_sm": 1024}  # what its peak implies: 148e12 / 78 / 1024 = 1.85 GHz
H20 = GPU("H20", sms=78, bf16_flops=148e12, fp8_flops=296e12, hbm_bytes=96e9, hbm_bytes_per_s=4.0e12, **_H20)
B200 = GPU("B200", sms=148, bf16_flops=2250e12, fp8_flops=4500e12, hbm_bytes=180e9, hbm_bytes_per_s=8e12, **_BLACKWELL)

CATALOGUE = {gpu.name: gpu for gpu in (H100, H800, H200, H20, B200)}
