"""The compiled module: it is there, it is switched off on request, and it guards its own memory."""

from __future__ import annotations

import ast
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mlacademy import _core, _native, cache


def page_map(layout: cache.CacheLayout = cache.V32, page: int = 8) -> _core.PageMap:
    return cache._page_map(_core, layout, page)


def test_the_switch_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLACADEMY_NATIVE", "0")
    assert _native.core() is None
    monkeypatch.delenv("MLACADEMY_NATIVE")
    assert _native.core() is _core


def test_the_stub_lists_exactly_what_the_module_has() -> None:
    stub = ast.parse((Path(cache.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
    named = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert named == {name for name in vars(_core) if not name.startswith("_")}


def test_arrays_of_any_shape_keep_it() -> None:
    codes = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert _core.decode_e4m3(codes).shape == (2, 3, 4)
    assert _core.decode_e8m0(codes[:, 1]).shape == (2, 4)
    np.testing.assert_array_equal(_core.encode_e4m3(_core.decode_e4m3(codes[:, 1].T), True), codes[:, 1].T)


@pytest.mark.parametrize("length", [0, 1, 3, 7, 15, 16, 17, 31, 33, 63, 65, 100])
def test_every_length_is_handled_to_its_last_element(length: int) -> None:
    codes = np.arange(length, dtype=np.uint8)
    np.testing.assert_array_equal(_core.encode_e4m3(_core.decode_e4m3(codes), True), codes)


def test_bad_slots_and_sizes_never_reach_memory() -> None:
    pages, rows = np.zeros((2, 8 * 656), np.uint8), np.zeros((1, 576), np.float32)
    for slot in (16, -2, 2**62):
        with pytest.raises(ValueError, match="a slot lies outside the pages"):
            _core.gather(pages, page_map(), np.array([slot]), rows)
        with pytest.raises(ValueError, match="a slot lies outside the pages"):
            _core.append_float32(
                pages, page_map(), np.array([slot]), np.zeros((1, 512), np.float32), np.zeros((1, 64), np.float32)
            )
    with pytest.raises(ValueError, match="a slot lies outside the pages"):  # a hole can be read, not written
        _core.append_bf16(
            pages, page_map(), np.array([-1]), np.zeros((1, 512), np.uint16), np.zeros((1, 64), np.uint16)
        )
    with pytest.raises(ValueError, match="rows must hold one row for each slot"):
        _core.gather(pages, page_map(), np.array([0, 1]), rows)
    with pytest.raises(ValueError, match="nope and rope must hold one row for each slot"):
        _core.append_float32(pages, page_map(), np.array([0]), np.zeros(511, np.float32), np.zeros(64, np.float32))
    with pytest.raises(ValueError, match="pages must be as long as the map says"):
        _core.gather(pages[:, :-1], page_map(), np.array([0]), rows)
    with pytest.raises(TypeError):  # a converted copy would swallow what is written
        _core.gather(pages, page_map(), np.array([0]), rows.astype(np.float64))
    assert not pages.any()


def test_other_threads_run_while_a_loop_runs() -> None:
    values, moments, stop = np.ones(20_000_000, np.float32), list[float](), threading.Event()

    def tick() -> None:
        while not stop.wait(0.0005):
            moments.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    most = 0
    for _ in range(50):  # a busy machine may not run the other thread in every one of these calls
        began = time.monotonic()
        _core.encode_e4m3(values, True)
        ended = time.monotonic()
        most = max(most, sum(began < moment < ended for moment in moments))
        if most >= 3:
            break
    stop.set()
    thread.join()
    # With the GIL held, one tick could slip in before the call and one after it.
    assert most >= 3
