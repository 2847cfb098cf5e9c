"""Compiled kernels on disk, found again by the fingerprint of everything that went into them.

An entry is one file, written under another name and renamed, so that a reader sees all of it or nothing, and two
processes that compile the same kernel at once do each other no harm. It carries a digest of its contents: a damaged
entry counts as absent and is written anew. The folder is kept below a size by dropping the entries unused longest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mlacademy.gpu.errors import Diagnostic
from mlacademy.gpu.resources import Resources

_MAGIC = b"mlacademy kernel 2\n"
_SUFFIX = ".kernel"
_UNFINISHED = ".new-"
_ABANDONED_SECONDS = 3600.0
DEFAULT_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class Entry:
    """What is kept of one compilation."""

    ptx: str
    cubin: bytes
    diagnostics: tuple[Diagnostic, ...] = ()
    resources: Mapping[str, Resources] = field(default_factory=dict)


def default_folder() -> Path:
    """``MLACADEMY_CACHE`` if it is set, else the user's cache folder for programs."""
    chosen = os.environ.get("MLACADEMY_CACHE")
    if chosen:
        return Path(chosen) / "kernels"
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mlacademy" / "kernels"


class DiskCache:
    """Entries by key in ``folder``, together at most ``limit_bytes`` (the newest entry always stays).

    A folder that cannot be written only costs the compilations it would have saved.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = default_folder() if folder is None else folder
        self.limit_bytes = limit_bytes

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> Entry | None:
        """The entry of ``key``, or None where there is none or it is damaged."""
        path = self._path(key)
        try:
            entry = _unpack(path.read_bytes())
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now: the last to be dropped
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Keep ``entry`` under ``key``; drop what was unused longest while the folder is too large."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=_UNFINISHED)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_pack(entry))
                os.replace(name, self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
            self._shrink(keep=self._path(key))

    def _shrink(self, keep: Path) -> None:
        files = []
        for file in os.scandir(self.folder):
            with contextlib.suppress(OSError):  # another process may just have dropped it
                if file.name.startswith(_UNFINISHED) and time.time() - file.stat().st_mtime > _ABANDONED_SECONDS:
                    os.unlink(file.path)  # its writer was killed
                elif file.name.endswith(_SUFFIX):
                    files.append((file.stat().st_mtime, file.stat().st_size, file.path))
        excess = sum(size for _, size, _ in files) - self.limit_bytes
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            if path != str(keep):
                with contextlib.suppress(OSError):
                    os.unlink(path)
                excess -= size


def _pack(entry: Entry) -> bytes:
    ptx = entry.ptx.encode()
    about = json.dumps(
        {
            "ptx": len(ptx),
            "cubin": len(entry.cubin),
            "diagnostics": [asdict(one) for one in entry.diagnostics],
            "resources": {name: asdict(one) for name, one in entry.resources.items()},
        }
    ).encode()
    body = len(about).to_bytes(8, "little") + about + ptx + entry.cubin
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> Entry:
    """The entry in ``data``; ``ValueError`` where its digest does not fit."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise ValueError("damaged")
    size = int.from_bytes(body[:8], "little")
    about = json.loads(body[8 : 8 + size])
    ptx_end = 8 + size + about["ptx"]
    return Entry(
        ptx=body[8 + size : ptx_end].decode(),
        cubin=body[ptx_end : ptx_end + about["cubin"]],
        diagnostics=tuple(Diagnostic(**one) for one in about["diagnostics"]),
        resources={name: Resources(**one) for name, one in about["resources"].items()},
    )
