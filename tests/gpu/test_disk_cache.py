"""The cache on disk: whole entries or none, whatever happens to the files."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlacademy.gpu.disk_cache import DiskCache, Entry, _pack, _unpack, default_folder
from mlacademy.gpu.errors import Diagnostic
from mlacademy.gpu.resources import Resources

WARNING = Diagnostic("k.cu", 2, 7, "warning", "µ is unused", "  int µ;")


def entry(size: int, letter: str = "a") -> Entry:
    return Entry(letter * size, letter.encode() * size, (WARNING,), {"k": Resources(40, 1024, 16, 8, 4)})


def test_entry_comes_back_as_it_was_put(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "new" / "folder")
    assert cache.get("key") is None
    cache.put("key", entry(100))
    assert cache.get("key") == entry(100)
    cache.put("key", entry(50, "b"))
    assert cache.get("key") == entry(50, "b")


@given(st.integers(0, len(_pack(entry(40))) - 1), st.integers(1, 255))
def test_any_changed_byte_makes_an_entry_absent(position: int, change: int) -> None:
    data = bytearray(_pack(entry(40)))
    data[position] ^= change
    with pytest.raises(ValueError, match="damaged"):
        _unpack(bytes(data))


@given(st.integers(0, len(_pack(entry(40))) - 1))
def test_any_shortened_entry_is_absent(length: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        _unpack(_pack(entry(40))[:length])


def test_damaged_entry_is_written_anew(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("key", entry(100))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert cache.get("key") is None
    cache.put("key", entry(100))
    assert cache.get("key") == entry(100)


def test_folder_stays_below_its_limit_by_dropping_what_was_unused_longest(tmp_path: Path) -> None:
    size = len(_pack(entry(10_000)))
    cache = DiskCache(tmp_path, limit_bytes=3 * size)
    for age, key in ((40, "oldest"), (30, "old but used"), (20, "third")):
        cache.put(key, entry(10_000))
        past = time.time() - age
        os.utime(tmp_path / f"{key}.kernel", (past, past))
    assert cache.get("old but used") is not None
    cache.put("newest", entry(10_000))
    assert {path.stem for path in tmp_path.iterdir()} == {"old but used", "third", "newest"}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * size


def test_entry_larger_than_the_limit_is_kept_alone(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit_bytes=100)
    cache.put("first", entry(1000))
    cache.put("second", entry(1000))
    assert [path.stem for path in tmp_path.iterdir()] == ["second"]


def test_file_of_a_killed_writer_is_removed_after_an_hour(tmp_path: Path) -> None:
    for name, age in ((".new-dead", 7200), (".new-alive", 60)):
        (tmp_path / name).write_bytes(b"half")
        past = time.time() - age
        os.utime(tmp_path / name, (past, past))
    DiskCache(tmp_path).put("key", entry(10))
    assert {path.name for path in tmp_path.iterdir()} == {".new-alive", "key.kernel"}


def test_folder_that_cannot_be_made_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / "cache")
    cache.put("key", entry(10))
    assert cache.get("key") is None


def _hammer(folder: str, worker: int) -> int:
    """Write and read two shared keys; return how many entries were read whole. A torn one would raise."""
    cache, seen = DiskCache(Path(folder), limit_bytes=60_000), 0
    for turn in range(60):
        key, letter = f"key{turn % 2}", "abcd"[worker]
        cache.put(key, entry(10_000, letter))
        found = cache.get(key)
        if found is not None:  # another process may have dropped it to make room
            assert found.ptx == found.ptx[0] * 10_000
            assert found.cubin == found.ptx.encode()
            seen += 1
    return seen


def test_processes_that_write_the_same_entries_never_read_a_torn_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        seen = pool.starmap(_hammer, [(str(tmp_path), worker) for worker in range(3)])
    assert all(count > 0 for count in seen)
    assert not list(tmp_path.glob(".new-*"))


def test_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLACADEMY_CACHE", str(tmp_path))
    assert default_folder() == tmp_path / "kernels"
    monkeypatch.delenv("MLACADEMY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_folder() == tmp_path / "xdg" / "mlacademy" / "kernels"
