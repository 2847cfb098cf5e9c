"""`Trace`: what happened in a launch on the emulator, in modelled cycles.

>>> report = device.launch(kernel, plan, args, trace=True)      # doctest: +SKIP
>>> report.trace.cycles                                         # doctest: +SKIP
5214.0
>>> trace = report.trace; trace.spans.t1[trace.spans.kind == "wait"]  # doctest: +SKIP

Tables are columns of equal length. Times are cycles from the start of the launch; `order` numbers rows as they came
about. CTAs are numbered by their place in the grid, x first.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlacademy.gpu.cost_model import CostModel

if TYPE_CHECKING:
    from mlacademy.gpu.plan import LaunchPlan

LIMIT = 2_000_000
"""Events that a trace keeps unless `trace_limit` says otherwise: an event takes 24 bytes, a row of a table more."""

_MOST_THREADS, _MOST_CTAS, _SHARED_BYTES, _RESERVED_BYTES = 2048, 32, 233472, 1024


class Trace:
    """The event log of one launch, replayed by a cost model.

    Attributes:
        kernel: the kernel's name.
        cost_model: the constants that times follow from.
        error: the exception that ended the launch, or None.
        files: the source files that ``source_file`` numbers.
        cycles: modelled cycles from the launch's start to its last event.
        spans: ``cta, warp, t0, t1, kind, what, ptx_line, source_file, source_line, object, role, instructions,
            order``: runs of instructions of one kind (``alu, memory, shared, mma, sync, async, control``) and waits
            (``wait``, with the barrier or group as ``object``). Spans of a warp do not overlap.
        operations: ``id, kind, cta, warp, t_issue, t_start, t_read, t_end, bytes, reads, writes, barrier,
            source_line``: asynchronous operations; ``reads`` and ``writes`` name buffers.
        barriers: ``cta, offset, name, time, event, pending, expected, tx, phase, by, by_cta, by_operation, amount,
            order``: what happened at each mbarrier, with its state afterwards. ``by`` is the operation's id where
            ``by_operation`` is true, else the warp's number in CTA ``by_cta``.
        accesses: ``cta, buffer, t0, t1, mode, by``: when buffers of shared memory were read and written, and by whom.
        warps: ``cta, warp, role``. buffers: ``cta, name, offset, bytes``. ctas: ``cta, sm, block, t0, t1``.
    """

    def __init__(
        self,
        log: Any,
        plan: LaunchPlan,
        *,
        cost_model: CostModel | None = None,
        error: BaseException | None = None,
        registers: int = 0,
    ) -> None:
        self._log = log
        self._plan = plan
        self._registers = registers
        self.cost_model = cost_model or CostModel()
        self.error = error
        self.kernel: str = log.kernel
        self.files: tuple[str, ...] = tuple(log.files)

    def with_costs(self, cost_model: CostModel) -> Trace:
        """The same log replayed with other constants."""
        return Trace(self._log, self._plan, cost_model=cost_model, error=self.error, registers=self._registers)

    @property
    def totals(self) -> dict[str, int]:
        """What the log counts: ``events, instructions, lane_instructions``."""
        return dict(self._log.totals)

    @property
    def resident(self) -> int:
        """How many CTAs the model puts on one multiprocessor."""
        threads = -(-int(self._log.threads) // 32) * 32
        fits: list[int] = [
            _MOST_CTAS,
            _MOST_THREADS // threads,
            _SHARED_BYTES // (int(self._log.shared_bytes) + _RESERVED_BYTES),
        ]
        if self._registers:
            fits.append(65536 // (-(-self._registers // 8) * 8 * threads))
        return max(1, min(fits))

    @functools.cached_property
    def _replay(self) -> dict[str, Any]:
        replayed: dict[str, Any] = self._log.replay(self.cost_model.as_dict(), self.resident)
        return replayed

    @property
    def cycles(self) -> float:
        return float(self._replay["cycles"])

    @functools.cached_property
    def ctas(self) -> SimpleNamespace:
        rows = self._replay["ctas"]
        x, y, _ = self._plan.grid
        cta = [bx + x * (by + y * bz) for bx, by, bz in rows["block"]]
        return SimpleNamespace(
            cta=np.array(cta, np.int32), sm=rows["sm"], block=_objects(rows["block"]), t0=rows["t0"], t1=rows["t1"]
        )

    @functools.cached_property
    def _cta_of(self) -> dict[tuple[int, int], int]:
        rows = self._replay["ctas"]
        return {
            (int(cluster), int(rank)): int(cta)
            for cluster, rank, cta in zip(rows["cluster"], rows["rank"], self.ctas.cta, strict=True)
        }

    @functools.cached_property
    def _code(self) -> dict[str, np.ndarray]:
        texts, ptx_lines, files, lines, _ = zip(*self._log.code, strict=True)
        return {
            "text": _objects(texts),
            "ptx_line": np.array(ptx_lines, np.int32),
            "source_file": np.array(files, np.int32),
            "source_line": np.array(lines, np.int32),
        }

    @functools.cached_property
    def spans(self) -> SimpleNamespace:
        rows, code = self._replay["spans"], self._code
        names = _objects([*self._log.names, ""])
        count, pc = rows["instructions"], rows["pc"]
        what = [
            text if n <= 1 else f"{text} and {n - 1} more"
            for text, n in zip(code["text"][pc], count.tolist(), strict=True)
        ]
        return SimpleNamespace(
            cta=self.ctas.cta[rows["cta"]],
            warp=rows["warp"],
            t0=rows["t0"],
            t1=rows["t1"],
            kind=_objects(rows["kind"]),
            what=_objects(what),
            ptx_line=code["ptx_line"][pc],
            source_file=code["source_file"][pc],
            source_line=code["source_line"][pc],
            object=_objects(rows["object"]),
            role=names[np.where(rows["role"] < 0, -1, rows["role"])],
            instructions=count,
            order=rows["order"],
        )

    @functools.cached_property
    def _buffer_names(self) -> dict[tuple[int, int], str]:
        return {(cluster, index): name for cluster, index, _, name, _, _ in self._log.buffers}

    @functools.cached_property
    def operations(self) -> SimpleNamespace:
        rows, names = self._replay["operations"], self._buffer_names
        clusters = rows["cluster"].tolist()

        def touched(stretches: list[list[tuple[int, int, int, int]]]) -> np.ndarray:
            found = []
            for cluster, pieces in zip(clusters, stretches, strict=True):
                called = ("global" if buffer < 0 else names[cluster, buffer] for _, buffer, _, _ in pieces)
                found.append(tuple(dict.fromkeys(called)))
            return _objects(found)

        def barrier(cluster: int, rank: int, offset: int) -> str:
            return self._barrier_name(self._cta_of[cluster, rank], offset) if rank >= 0 else ""

        signals = zip(clusters, rows["signal_rank"].tolist(), rows["signal_offset"].tolist(), strict=True)
        return SimpleNamespace(
            id=np.arange(1, len(clusters) + 1, dtype=np.int32),
            kind=_objects(rows["kind"]),
            cta=self._numbers(clusters, rows["rank"]),
            warp=rows["warp"],
            t_issue=rows["t_issue"],
            t_start=rows["t_start"],
            t_read=rows["t_read"],
            t_end=rows["t_end"],
            bytes=rows["bytes"],
            reads=touched(rows["reads"]),
            writes=touched(rows["writes"]),
            barrier=_objects([barrier(*signal) for signal in signals]),
            source_line=self._code["source_line"][rows["pc"]],
        )

    def _numbers(self, clusters: list[int], ranks: np.ndarray) -> np.ndarray:
        pairs = zip(clusters, ranks.tolist(), strict=True)
        return np.array([self._cta_of[pair] for pair in pairs], np.int32)

    @functools.cached_property
    def _id_of(self) -> dict[tuple[int, int], int]:
        rows = self._replay["operations"]
        pairs = zip(rows["cluster"].tolist(), rows["number"].tolist(), strict=True)
        return {pair: index + 1 for index, pair in enumerate(pairs)}

    @functools.cached_property
    def barriers(self) -> SimpleNamespace:
        rows = self._replay["barriers"]
        cta = self.ctas.cta[rows["cta"]]
        ids = zip(rows["cluster"].tolist(), rows["by_operation"].tolist(), strict=True)
        operation = np.array([self._id_of[pair] if pair[1] else 0 for pair in ids], np.int32)
        return SimpleNamespace(
            cta=cta,
            offset=rows["offset"],
            name=_objects(
                [self._barrier_name(*place) for place in zip(cta.tolist(), rows["offset"].tolist(), strict=True)]
            ),
            time=rows["time"],
            event=_objects(rows["event"]),
            pending=rows["pending"],
            expected=rows["expected"],
            tx=rows["tx"],
            phase=rows["phase"],
            by=np.where(operation > 0, operation, rows["by_warp"]).astype(np.int32),
            by_cta=self.ctas.cta[rows["by_cta"]],
            by_operation=operation > 0,
            amount=rows["amount"],
            order=rows["order"],
        )

    @functools.cached_property
    def accesses(self) -> SimpleNamespace:
        rows, names = self._replay["accesses"], self._buffer_names
        clusters = self._replay["ctas"]["cluster"][rows["cta"]].tolist()
        by = [
            f"operation {self._id_of[cluster, operation]}" if operation else f"warp {warp}"
            for cluster, operation, warp in zip(
                clusters, rows["by_operation"].tolist(), rows["by_warp"].tolist(), strict=True
            )
        ]
        return SimpleNamespace(
            cta=self.ctas.cta[rows["cta"]],
            buffer=_objects([names[key] for key in zip(clusters, rows["buffer"].tolist(), strict=True)]),
            t0=rows["t0"],
            t1=rows["t1"],
            mode=_objects(np.where(rows["write"], "write", "read").tolist()),
            by=_objects(by),
        )

    @functools.cached_property
    def warps(self) -> SimpleNamespace:
        spans = self.spans
        found: dict[tuple[int, int], str] = {}
        for cta, warp, role in zip(spans.cta.tolist(), spans.warp.tolist(), spans.role.tolist(), strict=True):
            found[cta, warp] = role or found.get((cta, warp), "")
        keys = sorted(found)
        return SimpleNamespace(
            cta=np.array([cta for cta, _ in keys], np.int32),
            warp=np.array([warp for _, warp in keys], np.int32),
            role=_objects([found[key] for key in keys]),
        )

    @functools.cached_property
    def buffers(self) -> SimpleNamespace:
        rows = sorted(
            (self._cta_of[cluster, rank], offset, size, name)
            for cluster, _, rank, name, offset, size in self._log.buffers
        )
        return SimpleNamespace(
            cta=np.array([row[0] for row in rows], np.int32),
            name=_objects([row[3] for row in rows]),
            offset=np.array([row[1] for row in rows], np.int32),
            bytes=np.array([row[2] for row in rows], np.int32),
        )

    @functools.cached_property
    def _places(self) -> dict[int, list[tuple[int, int, str]]]:
        places: dict[int, list[tuple[int, int, str]]] = {}
        for cluster, _, rank, name, offset, size in self._log.buffers:
            places.setdefault(self._cta_of[cluster, rank], []).append((offset, size, name))
        return places

    @functools.cache  # noqa: B019 - a trace lives as long as its tables
    def _barrier_name(self, cta: int, offset: int) -> str:
        for start, size, name in reversed(self._places.get(cta, [])):
            if start <= offset < start + size:
                return name if offset == start else f"{name} + {offset - start}"
        return f"mbarrier at {offset}"

    def to_perfetto(self, path: str | Path) -> Path:
        """Write the trace for https://ui.perfetto.dev: one process a CTA, one thread a warp. Gives the path."""
        from mlacademy.gpu.perfetto import write

        return write(self, Path(path))

    def summary(self) -> str:
        """Cycles, and who waited how long on what, as text."""
        from mlacademy.gpu.trace_summary import summary

        return summary(self)

    def __repr__(self) -> str:
        return f"<Trace of {self.kernel}: {self.cycles:,.0f} cycles, {len(self.spans.t0):,} spans>"


def _objects(values: Any) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = values
    return out
