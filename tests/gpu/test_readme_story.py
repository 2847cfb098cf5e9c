"""The hang that the README quotes is what the emulator says of that mistake."""

from __future__ import annotations

import re

import numpy as np
import pytest
from clone import ROOT

from mlacademy import gpu


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_quoted_deadlock_is_the_emulators(page: str) -> None:
    source = (ROOT / "kernels" / "cuda" / "bulk_copy.cu").read_text(encoding="utf-8")
    right = "mbarrier_arrive_expect_tx(&shared.full[stage], size)"
    assert source.count(right) == 1
    kernel = gpu.compile(source.replace("[stage], size)", "[stage], size + 16)", 1), name="bulk_copy.cu")["bulk_copy"]
    values = np.arange(40_000, dtype=np.uint8)
    with pytest.raises(gpu.Deadlock) as hang:
        gpu.Device("emulator").launch(
            kernel, gpu.LaunchPlan(grid=1, block=64), [values, np.zeros_like(values), values.size]
        )
    said = " ".join(str(hang.value).split())
    (quoted,) = re.findall(r"```text\n(Deadlock: .*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    at = 0
    for piece in re.split(r"…", " ".join(quoted.split())):
        at = said.index(piece.strip(" :"), at) + len(piece.strip(" :"))
