"""What `decode_step` found out: times, bytes and errors, as an object that prints as tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from mlacademy.fp8 import ErrorStats, error_stats
from mlacademy.schedule import Schedule


@dataclass(frozen=True)
class Stage:
    """One stage of the step: its name, wall-clock seconds on this machine, and what it produced."""

    name: str
    seconds: float
    note: str


@dataclass(frozen=True)
class Comparison:
    """How far one result lies from another. `out` compares every output element, `lse_max_abs` is in natural units."""

    name: str
    out: ErrorStats
    lse_max_abs: float


def compare(name: str, exact: tuple[Tensor, Tensor], approx: tuple[Tensor, Tensor]) -> Comparison:
    """Compare two `(out, lse)` pairs in float64."""
    lse_error = (exact[1].double() - approx[1].double()).abs().max()
    return Comparison(name, error_stats(exact[0].double(), approx[0].double()), float(lse_error))


@dataclass(frozen=True)
class DecodeReport:
    """Result of `decode_step`; `print(report)` shows it as tables.

    contexts: tokens in each request. cache_bytes: what all of them take in the FP8 cache. attention_bytes,
    indexer_bytes: what this step's attention and indexer read. dense_bf16_bytes: what attention over the whole context
    would read from a bf16 cache. kept_mass: smallest and mean share, over requests and heads, of the full softmax
    that the picked tokens hold. out [b, 1, h_q, 512] bf16, lse [b, h_q, 1], indices [b, 1, topk]: the step's results.
    """

    contexts: tuple[int, ...]
    heads: int
    topk: int
    stages: tuple[Stage, ...]
    comparisons: tuple[Comparison, ...]
    cache_bytes: int
    attention_bytes: int
    indexer_bytes: int
    dense_bf16_bytes: int
    kept_mass: tuple[float, float]
    schedule: Schedule = field(repr=False)
    indices: Tensor = field(repr=False)
    out: Tensor = field(repr=False)
    lse: Tensor = field(repr=False)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def comparison(self, name: str) -> Comparison:
        """The comparison called `name`; raises KeyError with the known names."""
        for found in self.comparisons:
            if found.name == name:
                return found
        raise KeyError(f"no comparison {name!r}: there are {[c.name for c in self.comparisons]}")

    def __str__(self) -> str:
        contexts = " + ".join(f"{n:,}" for n in self.contexts)
        lines = [
            f"One decode step: {len(self.contexts)} requests ({contexts} tokens), "
            f"{self.heads} heads, top {self.topk:,}, FP8 cache",
            "",
            *_table(
                ("stage", "seconds", "result"),
                [(stage.name, f"{stage.seconds:.3f}", stage.note) for stage in self.stages],
            ),
            "",
            *_table(
                ("bytes", "MB", ""),
                [
                    ("FP8 cache of all requests", _mb(self.cache_bytes), ""),
                    ("read by attention", _mb(self.attention_bytes), "picked tokens, FP8"),
                    ("read by the indexer", _mb(self.indexer_bytes), "one small key of every token"),
                    ("dense bf16 would read", _mb(self.dense_bf16_bytes), "every token, 1,152 B each"),
                ],
            ),
            "",
            *_table(
                ("error of out", "max abs", "max rel*", "rms rel", "1 − cosine", "lse max abs"),
                [
                    (
                        c.name,
                        *(f"{v:.1e}" for v in (c.out.max_abs, c.out.max_rel, c.out.rms_rel, 1 - c.out.cosine)),
                        f"{c.lse_max_abs:.1e}",
                    )
                    for c in self.comparisons
                ],
            ),
            "* max rel is set by outputs that happen to lie near 0; rms rel is the size that matters.",
            "",
            f"Picked tokens hold {self.kept_mass[1]:.1%} of the full softmax on average, "
            f"{self.kept_mass[0]:.1%} for the worst head.",
        ]
        return "\n".join(lines)


def _mb(count: int) -> str:
    return f"{count / 1e6:,.1f}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Fixed-width rows: the first and any worded column flush left, columns of numbers flush right."""
    numeric = [all(row[i][:1].isdigit() for row in rows) for i in range(len(head))]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: tuple[str, ...]) -> str:
        cells = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("─" * w for w in widths).rstrip(), *map(line, rows)]
