"""The asking side of the worker: start it, send a job, read plain data back, restart it when it is gone."""

from __future__ import annotations

import atexit
import json
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlacademy.grading import confine, wire

LOAD_SECONDS = 30.0
TOTAL_SECONDS = 20.0
_START_SECONDS = 60.0
_COMMAND = "from mlacademy.grading.worker import main; main()"
_LENGTH = struct.Struct("<cI")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the worker is asked to do; see ``mlacademy.grading.worker`` for the fields."""

    answer: bytes | None = None
    cells: list[list[str]] | None = None
    own: int = -1
    entry: str = ""
    calls: list[bytes] | None = None
    writes: list[int] = field(default_factory=list)
    forbids: list[str] = field(default_factory=list)
    preload: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    memory: int = confine.MEMORY
    load_seconds: float = LOAD_SECONDS
    call_seconds: float = 5.0
    total_seconds: float = TOTAL_SECONDS


@dataclass(frozen=True)
class Reply:
    """What came back. ``messages`` are the runner's (untrusted, but well-formed) messages with their buffers; ``end``
    is how the stream ended (``closed``, ``load timeout``, ``call timeout``, ``total timeout``, ``flood``,
    ``malformed`` or ``lost``); ``exit`` and ``signal`` are the runner's; ``printed`` is what the answer printed."""

    messages: list[tuple[dict[str, Any], list[bytes]]]
    end: str
    exit: int | None
    signal: int | None
    printed: str
    cut: bool = False


class Worker:
    """One warm worker process. Thread-safe; jobs run one after another. ``prefix`` is put before the command (a
    sandbox such as bubblewrap)."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = list(prefix)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, preload: Sequence[str] = ()) -> None:
        """Have the process running, with the modules ``preload`` imported."""
        with self._lock:
            self._send(Job(preload=list(preload)), _START_SECONDS)

    def run(self, job: Job) -> Reply:
        """Run one job to its end. Raises ``RuntimeError`` when no worker can be started on this machine."""
        with self._lock:
            limit = job.load_seconds + job.total_seconds + 10.0
            reply = self._send(job, limit)
            return reply if reply is not None else self._send(job, limit) or Reply([], "lost", None, None, "")

    def close(self) -> None:
        """Stop the process; the next job starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _ensure(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        environment["OBJC_DISABLE_INITIALIZE_FORK_SAFETY"] = "YES"  # macOS: the host forks before it starts threads
        self._process = subprocess.Popen(
            [*self._prefix, sys.executable, "-P", "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # until it has started: then the worker closes it
            env=environment,
            start_new_session=True,  # an interrupt in the notebook is not for the worker
            bufsize=0,
        )
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            kind, _ = self._receive(self._process, time.monotonic() + _START_SECONDS)
            if kind != b"R":
                self.close()
                said = errors.read().decode("utf-8", "replace").strip().splitlines()
                command = " ".join([*self._prefix[:1], sys.executable])
                raise RuntimeError(
                    f"the worker process did not start: {command}: {said[-1] if said else 'it said nothing'}"
                )
        return self._process

    def _send(self, job: Job, limit: float) -> Reply | None:
        """None when the process turned out to be gone before it answered anything."""
        process = self._ensure()
        received = bytearray()
        data = pickle.dumps(job.__dict__)
        try:
            assert process.stdin is not None
            view = memoryview(struct.pack("<Q", len(data)) + data)
            while view:
                view = view[process.stdin.write(view) :]
            until = time.monotonic() + limit
            while True:
                kind, payload = self._receive(process, until)
                if kind == b"D":
                    received += payload
                elif kind == b"E":
                    return _reply(received, json.loads(payload))
                else:
                    self.close()
                    return Reply(_messages(received)[0], "lost", None, None, "") if received or kind == b"T" else None
        except BrokenPipeError:
            self.close()
            return None
        except BaseException:  # an interrupt in the notebook: what the worker still sends belongs to no later job
            self.close()
            raise

    @staticmethod
    def _receive(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
        """One framed reply; ``(b"T", b"")`` when it is too late and ``(b"", b"")`` when the process is gone."""
        assert process.stdout is not None
        source, data, need = process.stdout.fileno(), bytearray(), _LENGTH.size
        poll = select.poll()
        poll.register(source, select.POLLIN)
        while len(data) < need:
            if not poll.poll(1000 * max(0.0, until - time.monotonic())):
                return b"T", b""
            part = os.read(source, need - len(data))
            if not part:
                return b"", b""
            data += part
            if len(data) == _LENGTH.size:
                need = _LENGTH.size + _LENGTH.unpack(data)[1]
        return bytes(data[:1]), bytes(data[_LENGTH.size :])


def _reply(received: bytearray, report: dict[str, Any]) -> Reply:
    messages, clean = _messages(received)
    end = report.get("end", "closed")
    if end == "closed" and not clean:
        end = "malformed"
    printed = report.get("printed", "")
    return Reply(messages, end, report.get("exit"), report.get("signal"), printed, bool(report.get("cut")))


def _messages(received: bytearray) -> tuple[list[tuple[dict[str, Any], list[bytes]]], bool]:
    try:
        return wire.unpack(received)
    except wire.WireError:
        return [], False


_shared: Worker | None = None
_guard = threading.Lock()


def shared() -> Worker:
    """The worker of this process: one for all checks, stopped when the process ends."""
    global _shared
    with _guard:
        if _shared is None:
            _shared = Worker()
            atexit.register(_shared.close)
        return _shared


def warm_up(modules: Callable[[], Sequence[str]]) -> None:
    """Start the shared worker in the background, then have it import ``modules()``, so that no check waits for them."""

    def start() -> None:
        try:
            shared().start()
            shared().start(modules())
        except (OSError, RuntimeError):
            return  # the first check meets the same problem and reports it

    threading.Thread(target=start, name="mlacademy-worker-start", daemon=True).start()
