"""The story that a deadlock's report tells, on the smallest complete pipeline with one mistake in it."""

from __future__ import annotations

import numpy as np
import pytest

from mlacademy import gpu
from mlacademy.gpu import Device, LaunchPlan, includes

pytestmark = pytest.mark.usefixtures("compiler")
SOURCE = (includes.header_layer() / "bulk_copy.cu").read_text()
EXPECT = "mbarrier_arrive_expect_tx(&shared.full[stage], size);"
FLIP = "if (++stage == kStages) stage = 0, parity ^= 1;"


def line(text: str, source: str = SOURCE) -> int:
    return next(number for number, one in enumerate(source.splitlines(), 1) if text in one)


def report(wrong: str, right: str) -> gpu.Deadlock:
    """How the copy of 64 KiB by one CTA hangs with `wrong` where `right` stood first."""
    assert right in SOURCE
    kernel = gpu.compile(SOURCE.replace(right, wrong, 1))["bulk_copy"]
    source, target = np.zeros(65536, np.uint8), np.zeros(65536, np.uint8)
    with pytest.raises(gpu.Deadlock) as caught:
        Device("emulator").launch(kernel, LaunchPlan(1, 64), (source, target, 65536))
    assert caught.value.rule == "deadlock"
    return caught.value


def test_too_many_bytes_are_traced_to_who_announced_them() -> None:
    error = report(EXPECT.replace("size", "size + 16"), EXPECT)
    assert "All arrivals are in, but 16 bytes were announced (expect_tx) that no copy will bring" in str(error)
    assert f"Warp 0 (producer) announced 4112 bytes in this phase, last at line {line(EXPECT)}." in str(error)
    assert f"Copies brought 4096 bytes, last that of line {line('cp_async_bulk_shared_global(shared')}." in str(error)
    assert (error.role, error.warp) == ("consumer", 1)


def test_too_few_bytes_are_traced_to_the_copy() -> None:
    error = report(EXPECT.replace("size", "size / 2"), EXPECT)
    assert "copies brought 2048 bytes more than were announced" in str(error)
    assert "Warp 0 (producer) announced 2048 bytes" in str(error)


def test_a_parity_that_is_not_flipped_is_suspected_and_the_circle_told() -> None:
    error = report(FLIP.replace(", parity ^= 1", ""), FLIP)
    wait = line("mbarrier_wait_parity(&shared.empty[stage], parity);")
    assert f"Warp 0 (producer) waits for the same parity as at its last wait (line {wait}): was it not flipped?" in str(
        error
    )
    arrive = line("mbarrier_arrive(&shared.empty[stage]);")
    assert f"Warp 1 (consumer) arrived at empty[0] last in phase 0, at line {arrive}; it waits for full[0]" in str(
        error
    )
    assert str(error).endswith("They wait for each other.")


def test_a_count_that_is_too_large_names_who_came() -> None:
    error = report("mbarrier_init(&shared.empty[stage], 2);", "mbarrier_init(&shared.empty[stage], 1);")
    arrive = line("mbarrier_arrive(&shared.empty[stage]);")
    assert f"Of 2 arrivals at empty[0], 1 came: warp 1 (consumer) at line {arrive}; is the count" in str(error)


def test_an_arrival_that_never_comes() -> None:
    error = report("", "mbarrier_arrive(&shared.empty[stage]);")
    assert "No thread has ever arrived at empty[0]." in str(error)


def test_a_warp_that_has_left_is_named() -> None:
    loop = "for (uint64_t chunk = blockIdx.x; chunk < num_chunks; chunk += gridDim.x) {"
    error = report(loop.replace("chunk < num_chunks", "chunk < 3"), loop)  # the producer's loop comes first
    assert "No thread has ever arrived at full[3]." in str(error)
    error = report(loop.replace("chunk < num_chunks", "chunk < 5"), loop)
    assert f"Warp 0 (producer) arrived at full[1] last in phase 0, at line {line(EXPECT)}; it has exited." in str(error)


def test_threads_of_the_block_that_are_not_at_the_barrier() -> None:
    source = """#include "names.cuh"
    #include "named_barrier.cuh"
    extern "C" __global__ void k() {
        if (threadIdx.x >= 64) { name_role("late"); mla::bar_sync(2, 64); }
        __syncthreads();
    }"""
    with pytest.raises(gpu.Deadlock) as caught:
        Device("emulator").launch(gpu.compile(source)["k"], LaunchPlan(1, 96), ())
    assert "Some threads of the block never reach the barrier" in str(caught.value)
    assert "Warp 2 (late) waits at barrier 2 at line 4." in str(caught.value)


def test_a_runaway_names_its_loop() -> None:
    source = """extern "C" __global__ void spin(volatile int* flag) {
        while (*flag == 0) {
        }
    }"""
    with pytest.raises(gpu.Runaway, match=r"Warp 0 last went round the loop from line 2, PTX line \d+ to line 2,"):
        Device("emulator", step_budget=10_000).launch(
            gpu.compile(source)["spin"], LaunchPlan(1, 32), (np.zeros(1, np.int32),)
        )
