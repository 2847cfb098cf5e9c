"""The process beside the notebook that runs answers.

A *host* process starts once, imports NumPy (and what a job names under ``preload``) and waits. For each job it forks
a *runner*, which confines itself, loads the answer, calls it on the inputs of every case and writes plain data
(``wire``) to a pipe. The host only relays bytes, keeps the time and reports how the runner ended; it never runs a
line of the answer, so the next job starts clean. The judge, the reference and the expected values live in the process
that asked, and nothing here knows them.

A job is a dict of plain values: ``answer`` (a pickle, or None); ``cells``, ``own`` and ``entry`` (source text instead
of a pickle: statements of each cell, which cell holds the answer, its name); ``calls`` (one pickled list of arguments
a case, or None when the answer is a value); ``writes`` (positions of output buffers); ``path`` (folders to import
from, after the worker's own); ``forbids``, ``preload``, ``memory``, ``load_seconds``, ``call_seconds`` and
``total_seconds``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import time
from typing import Any

import numpy as np

from mlacademy.grading import confine, guard, wire

PRINTED = 64 << 10
"""How many bytes of what an answer prints are kept."""

_LENGTH = struct.Struct("<cI")
_PAD = 4096  # bytes of canary on both sides of an output buffer
_CANARY = 0xA5


def main() -> None:
    """Serve jobs from standard input until it closes."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    _reply(replies, b"R", b"")
    while (job := _next_job(requests)) is not None:
        for name in job["preload"]:
            with contextlib.suppress(Exception):
                __import__(name)
        if job["calls"] is None and job["answer"] is None and job["cells"] is None:
            _reply(replies, b"E", b"{}")  # a warm-up: nothing but the imports
            continue
        _host(job, requests, replies)


def _next_job(requests: int) -> dict[str, Any] | None:
    head = _read_exactly(requests, 8)
    data = head and _read_exactly(requests, struct.unpack("<Q", head)[0])
    return (
        pickle.loads(data) if data else None
    )  # from the asking process, which is trusted; the answer inside stays shut


def _read_exactly(source: int, size: int) -> bytes | None:
    parts = []
    while size:
        part = os.read(source, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _reply(replies: int, kind: bytes, payload: bytes) -> None:
    data = memoryview(_LENGTH.pack(kind, len(payload)) + payload)
    while data:
        data = data[os.write(replies, data) :]


def _host(job: dict[str, Any], requests: int, replies: int) -> None:
    """Fork the runner, relay what it writes, stop it when its time is up, say how it ended."""
    printed = mmap.mmap(-1, PRINTED + 8)
    source, sink = os.pipe()
    gc.freeze()
    runner = os.fork()
    if runner == 0:
        try:
            for other in (source, requests, replies):
                os.close(other)
            _run(job, sink, printed)
        finally:
            os._exit(70)
    os.close(sink)
    end = _relay(source, replies, job)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(runner, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(runner, signal.SIGKILL)  # before its setsid took effect there was no group
    status = os.waitpid(runner, 0)[1]
    os.close(source)
    size = min(int.from_bytes(printed[:8], "little"), PRINTED)
    report = {
        "end": end,
        "exit": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "printed": printed[8 : 8 + size].decode("utf-8", "replace"),
        "cut": int.from_bytes(printed[:8], "little") > PRINTED,
    }
    printed.close()
    _reply(replies, b"E", json.dumps(report).encode())


def _relay(source: int, replies: int, job: dict[str, Any]) -> str:
    """``"closed"``, ``"load timeout"``, ``"call timeout"``, ``"total timeout"`` or ``"flood"``."""
    loaded = None
    received = 0
    while True:
        wait = left = job["load_seconds"]
        if loaded is not None:
            wait, left = job["call_seconds"], job["total_seconds"] - (time.monotonic() - loaded)
        if left <= 0:
            return "total timeout"
        if not select.select([source], [], [], min(wait, left))[0]:
            return "load timeout" if loaded is None else "total timeout" if left < wait else "call timeout"
        data = os.read(source, 1 << 18)
        if not data:
            return "closed"
        received += len(data)
        loaded = loaded or time.monotonic()
        if received > 2 * wire.MAX_BYTES:
            return "flood"
        _reply(replies, b"D", data)


class _Printed:
    """Standard output of the runner: a shared page that outlives a crash, and takes only so much."""

    encoding, errors, closed = "utf-8", "replace", False

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self._size = 0

    def write(self, text: str) -> int:
        data = str(text).encode("utf-8", "replace")
        room = max(0, PRINTED - self._size)
        self._page[8 + self._size : 8 + self._size + len(data[:room])] = data[:room]
        self._size += len(data)
        self._page[:8] = self._size.to_bytes(8, "little")
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def _run(job: dict[str, Any], sink: int, page: mmap.mmap) -> None:
    """In the runner: load the answer and call it on every case. Never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    sys.stdin = os.fdopen(0)
    sys.stdout = sys.stderr = _Printed(page)
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    np.random.seed(0)
    sys.path += [folder for folder in job["path"] if folder not in sys.path]
    calls = guard.prepare(job["forbids"])
    confine.confine(job["memory"])

    def send(message: wire.Node, buffers: list[bytes] | None = None) -> None:
        data = memoryview(wire.pack({**message, "library": calls.names}, buffers or []))
        while data:
            data = data[os.write(sink, data) :]

    try:
        answer = _load(job)
    except BaseException as error:
        send({"m": "load failed", **_explain(error)})
        os._exit(0)
    send({"m": "loaded"})
    if job["calls"] is None:
        _send_value(send, 0, answer, None)
    else:
        for number, arguments in enumerate(job["calls"]):
            try:
                _call(send, number, answer, arguments, job["writes"])
            except BaseException as error:
                send({"m": "raised", "case": number, **_explain(error)})
    send({"m": "done"})
    os._exit(0)


def _load(job: dict[str, Any]) -> Any:
    if job["answer"] is not None:
        guard.close()
        return pickle.loads(job["answer"])
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(job["cells"]):
        if number == job["own"]:
            guard.close()  # the cells before may use the library to show something
        for statement in source:
            try:
                exec(compile(statement, f"<cell {number}>", "exec"), namespace)
            except BaseException as error:  # a broken cell must not take the answers of the others with it
                print(f"{type(error).__name__} in a cell: {error}")
    guard.close()
    if job["entry"] not in namespace:
        raise NameError(job["entry"])
    guard.replace_in(namespace)
    return namespace[job["entry"]]


def _call(send: Any, number: int, answer: Any, pickled: bytes, writes: list[int]) -> None:
    arguments = pickle.loads(pickled)
    buffers = {position: _Buffer(arguments[position]) for position in writes}
    for position, buffer in buffers.items():
        arguments[position] = buffer.given
    before = [None if i in buffers else _fingerprint(a) for i, a in enumerate(arguments)]
    kept = list(arguments)
    result = answer(*arguments)
    after = [None if i in buffers else _fingerprint(a) for i, a in enumerate(kept)]
    changed = [i for i, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    overrun = [i for i, buffer in buffers.items() if not buffer.intact()]
    if buffers:
        filled = [buffers[i].given for i in writes]
        result = filled[0] if len(filled) == 1 else tuple(filled)
    _send_value(send, number, result, {"changed": changed, "overrun": overrun})


def _send_value(send: Any, number: int, value: Any, notes: dict[str, Any] | None) -> None:
    try:
        tree, buffers = wire.encode(value)
    except wire.WireError as error:
        send({"m": "too large", "case": number, "text": str(error)})
        return
    send({"m": "result", "case": number, "value": tree, **(notes or {})}, buffers)


def _fingerprint(value: Any) -> Any:
    try:
        return wire.encode(value)
    except wire.WireError:
        return None


class _Buffer:
    """An output buffer in the middle of a larger allocation whose edges are watched."""

    def __init__(self, template: Any) -> None:
        tensor = not isinstance(template, np.ndarray)
        array = template.numpy() if tensor else template
        self._bytes = np.full(array.nbytes + 2 * _PAD, _CANARY, np.uint8)
        middle = self._bytes[_PAD : _PAD + array.nbytes].view(array.dtype).reshape(array.shape)
        middle[...] = array
        self._size = array.nbytes
        self.given: Any = middle
        if tensor:
            self.given = sys.modules["torch"].from_numpy(middle)

    def intact(self) -> bool:
        edges = (self._bytes[:_PAD], self._bytes[_PAD + self._size :])
        return all(bool((edge == _CANARY).all()) for edge in edges)


def _explain(error: BaseException) -> dict[str, Any]:
    """What was raised and the lines it came through, in plain text."""
    frames, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        frames.append([str(code.co_filename)[:300], int(step.tb_lineno), str(code.co_name)[:80]])
        step = step.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        frames.append([str(error.filename)[:300], int(error.lineno or 0), ""])
    try:
        text = str(error)[:600]
    except BaseException:
        text = ""
    bases = [base.__name__ for base in type(error).__mro__]
    return {"type": type(error).__name__[:80], "bases": bases[:20], "text": text, "frames": frames[-200:]}
