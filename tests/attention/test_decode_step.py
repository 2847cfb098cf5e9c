"""The whole chain at DeepSeek-V3.2's widths, on contexts short enough for a test."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from mlacademy.attention import DecodeReport, decode_step
from mlacademy.config import deepseek_v32

SAME = "this step vs float64, same FP8 cache"
TOTAL = "this step vs float64, exact latents"
BF16 = "BF16 cache vs float64, exact latents"


@pytest.fixture(scope="module")
def seen() -> list[tuple[str, float]]:
    return []


@pytest.fixture(scope="module")
def report(seen: list[tuple[str, float]]) -> DecodeReport:
    return decode_step(contexts=(300, 2500), seed=3, progress=lambda stage, share: seen.append((stage, share)))


def test_sizes_are_the_model_s(report: DecodeReport) -> None:
    assert (report.heads, report.topk) == (128, 2048)
    assert report.out.shape == (2, 1, 128, 512)
    assert report.lse.shape == (2, 128, 1)
    assert report.indices.shape == (2, 1, 2048)


def test_short_context_keeps_every_token_and_is_padded_with_holes(report: DecodeReport) -> None:
    held = (report.indices != -1).sum(dim=-1).flatten()
    assert held.tolist() == [300, 2048]
    slots = report.indices[report.indices != -1]
    assert len(torch.unique(slots)) == len(slots)


def test_bytes_are_counted_from_tokens(report: DecodeReport) -> None:
    assert report.cache_bytes == 2800 * 656
    assert report.attention_bytes == 2348 * 656
    assert report.indexer_bytes == 2800 * (128 + 4)
    assert report.dense_bf16_bytes == 2800 * 1152


def test_errors_are_what_the_number_formats_allow(report: DecodeReport) -> None:
    # bf16 weights and a bf16 result: 2^-9 each, relative to values that do not cancel by more than a factor of 4.
    assert 0 < report.comparison(SAME).out.rms_rel < 4 * 2.0**-8
    # E4M3 rounds a value by at most 2^-4 of it; attention averages many, and a logit error moves weights by little.
    assert report.comparison(SAME).out.rms_rel < report.comparison(TOTAL).out.rms_rel < 2.0**-4
    assert 0 < report.comparison(BF16).out.rms_rel < 2.0**-8
    # lse has no bf16 in it: 2048 float32 additions and 576-term dot products at most, see test_blocked.
    assert report.comparison(SAME).lse_max_abs < 1e-3


def test_a_context_within_topk_loses_no_mass(report: DecodeReport) -> None:
    short = decode_step(contexts=(64,), seed=1)
    assert short.kept_mass[0] == pytest.approx(1.0, abs=64 * 2.0**-24)
    assert 0 < report.kept_mass[0] <= report.kept_mass[1] < 1


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(report: DecodeReport) -> None:
    again, other = decode_step(contexts=(300, 2500), seed=3), decode_step(contexts=(300, 2500), seed=4)
    assert torch.equal(again.out, report.out)
    assert torch.equal(again.lse, report.lse)
    assert torch.equal(again.indices, report.indices)
    assert not torch.equal(other.out, report.out)


def test_progress_never_goes_back_and_every_stage_ends(report: DecodeReport, seen: list[tuple[str, float]]) -> None:
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert set(stages) <= {stage.name for stage in report.stages}
    for name in stages:
        shares = [share for stage, share in seen if stage == name]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_report_prints_as_tables(report: DecodeReport) -> None:
    text = str(report)
    assert text.startswith("One decode step: 2 requests (300 + 2,500 tokens), 128 heads, top 2,048, FP8 cache\n")
    for part in (*(stage.name for stage in report.stages), SAME, TOTAL, BF16, "1 − cosine", "full softmax"):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 110
    assert report.seconds == pytest.approx(sum(stage.seconds for stage in report.stages))


def test_unknown_comparison_is_named() -> None:
    report = decode_step(contexts=(1,))
    with pytest.raises(KeyError, match="no comparison 'BF16': there are"):
        report.comparison("BF16")


@pytest.mark.parametrize("contexts", [(), (0,), (1, -1), (True,), (1.5,)])
def test_refuses_contexts_that_are_no_token_counts(contexts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="contexts must hold one whole number ≥ 1 a request"):
        decode_step(contexts=contexts)


def test_refuses_a_model_that_does_not_fit_the_cache() -> None:
    narrow = dataclasses.replace(deepseek_v32(), kv_lora_rank=256)
    with pytest.raises(ValueError, match=re.escape("config must have d_qk 576, d_v 512 and an indexer: got 320, 256")):
        decode_step(contexts=(1,), config=narrow)
    plain = dataclasses.replace(deepseek_v32(), index_topk=None, index_n_heads=None, index_head_dim=None)
    with pytest.raises(ValueError, match="index_topk None"):
        decode_step(contexts=(1,), config=plain)
