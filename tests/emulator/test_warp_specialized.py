"""A whole kernel as Hopper wants it: TMA ring, setmaxnreg, named barriers, two products in flight; right and silent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.fp8 import round_bf16
from mlacademy.gpu import Device, Kernel, LaunchPlan, TensorMap, nvrtc

SOURCE = Path(__file__).with_name("attention.cu")
PLAN = LaunchPlan(1, 384, smem_bytes=6 * 8192 + 128)


@pytest.fixture(scope="module")
def emulator() -> Device:
    obstacle = Device.obstacles()["emulator"] or (None if nvrtc.identity() else nvrtc.missing_sentence())
    if obstacle:
        pytest.skip(obstacle)
    return Device("emulator")


def compiled(*changes: tuple[str, str]) -> Kernel:
    text = SOURCE.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return gpu.compile(text)["attention"]


def tensors(n: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [round_bf16(rng.standard_normal((rows, 64)).astype(np.float32) * 2) for rows in (128, n, n)]


def launch(device: Device, kernel: Kernel, arrays: list[np.ndarray], **options: object) -> np.ndarray:
    codes = [(a.view(np.uint32) >> 16).astype(np.uint16) for a in arrays]
    maps = [
        TensorMap.of(a, box=(64, 64), dtype="bfloat16", swizzle="128B", name=name)
        for a, name in zip(codes, "qkv", strict=True)
    ]
    out = np.full((128, 64), np.nan, np.float32)
    device.launch(kernel, PLAN, (*maps, out, len(arrays[1])), **options)
    return out


def agree(out: np.ndarray, arrays: list[np.ndarray]) -> None:
    q, k, v = (a.astype(np.float64) for a in arrays)
    scores = q @ k.T / 8
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    # A weight is rounded to bf16 (2^-8 of itself at most); the rest is float32, whose sums are cut a few dozen times.
    bound = (2.0**-8 + 2.0**-15) * (p @ np.abs(v)) + 1e-6
    assert (np.abs(out - p @ v) <= bound).all()


@pytest.mark.parametrize("n", [64, 1, 65, 200, 320])
@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_attention_is_right(emulator: Device, n: int, order: str) -> None:
    arrays = tensors(n, n)
    agree(launch(emulator, compiled(), arrays, order=order), arrays)


def test_every_seed_gives_the_same_bits(emulator: Device) -> None:
    arrays = tensors(200, 7)
    kernel = compiled()
    want = launch(emulator, kernel, arrays)
    for seed in range(30):
        assert np.array_equal(launch(emulator, kernel, arrays, order="seeded", seed=seed), want)


MISTAKES = [
    ("wgmma_wait_group<1>(scores);", "", "wgmma-wait"),
    ("wgmma_wait_group<0>(o);\n            release(s.v_empty", "release(s.v_empty", "wgmma-wait"),
    ("wgmma_fence(scores);", "hold(scores);", "wgmma-fence"),
    ("setmaxnreg_dec<24>();", "setmaxnreg_dec<40>();", "deadlock"),
    ("mbarrier_init(&s.k_empty[stage], 8)", "mbarrier_init(&s.k_empty[stage], 9)", "deadlock"),
    ("if (mine == 1) bar_arrive(kTurn, 256);", "", "deadlock"),
    ("mbarrier_wait_parity(&s.v_full[j % kStages], j / kStages & 1);", "", "race"),
]


@pytest.mark.parametrize(("old", "new", "rule"), MISTAKES, ids=[f"{rule}-{n}" for n, (*_, rule) in enumerate(MISTAKES)])
def test_a_mistake_is_reported(emulator: Device, old: str, new: str, rule: str) -> None:
    arrays = tensors(320, 9)
    with pytest.raises((gpu.KernelTrap, gpu.Deadlock)) as caught:
        launch(emulator, compiled((old, new)), arrays, order="seeded", seed=3)
    assert caught.value.rule == rule
    assert caught.value.role in ("consumer", "producer")
