"""Mutants of a kernel: its PTX with one synchronising statement deleted or altered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

STATEMENT = re.compile(r"^\s*(?P<guard>@!?\S+\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;]*);\s*$")
LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)(?:.*inlined_at (\d+) (\d+))?")


@dataclass(frozen=True)
class Mutant:
    """One altered kernel: the whole PTX, and what was done to the statement of source line `line`."""

    kernel: str
    line: int
    opcode: str
    change: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.kernel} line {self.line}: {self.opcode}: {self.change}"


def split_operands(text: str) -> list[str]:
    """Operands of a statement; brackets and braces keep theirs together."""
    parts, depth = [""], 0
    for letter in text.strip():
        depth += letter in "[{("
        depth -= letter in "]})"
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


class Site:
    """A statement that synchronises, and ways to write it wrongly."""

    def __init__(self, opcode: str, operands: list[str]) -> None:
        self.opcode = opcode
        self.operands = operands

    def __str__(self) -> str:
        return f"{self.opcode} {', '.join(self.operands)};" if self.operands else f"{self.opcode};"

    def changed(self, number: int, code: str, bits: str = "b32") -> str:
        """With operand `number` replaced by `mut`, which `code` computes from it ({})."""
        operands = [*self.operands]
        value, operands[number] = operands[number], "mut"
        return f"{{ .reg .{bits} mut; {code.format(value)} {Site(self.opcode, operands)} }}"

    def moved(self, number: int, bytes_: int) -> str:
        """With the address of operand `number` moved."""
        operands = [*self.operands]
        operands[number] = operands[number].replace("]", f"+{bytes_}]")
        return str(Site(self.opcode, operands))

    def renamed(self, old: str, new: str) -> str:
        """With a modifier changed."""
        return str(Site(self.opcode.replace(old, new), self.operands))

    def mutants(self) -> Iterator[tuple[str, str]]:
        """What is done, and the statement that results ('' where it is deleted)."""
        for prefix, rule in RULES:
            if self.opcode.startswith(prefix):
                yield from rule(self)
                return


def deleted(site: Site) -> Iterator[tuple[str, str]]:
    yield "deleted", ""


def init(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    yield "one arrival more", site.changed(1, "add.s32 mut, {}, 1;")
    yield "one arrival fewer", site.changed(1, "add.s32 mut, {}, -1;")


def wait(site: Site) -> Iterator[tuple[str, str]]:
    yield "never waits", f"setp.eq.u32 {site.operands[0]}, 0, 0;"
    yield "other parity", site.changed(2, "xor.b32 mut, {}, 1;")
    yield "parity always 0", site.changed(2, "and.b32 mut, {}, 0;")
    yield "parity always 1", site.changed(2, "or.b32 mut, {}, 1;")
    yield "next barrier", site.moved(1, 8)


def expect(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    arrive = site.opcode.replace(".expect_tx", "")
    yield "bytes not expected", str(Site(arrive, site.operands[:2]))
    yield "does not arrive", str(Site("mbarrier.expect_tx.relaxed.cta.shared::cta.b64", site.operands[1:]))
    yield "16 bytes more", site.changed(2, "add.s32 mut, {}, 16;")
    yield "16 bytes fewer", site.changed(2, "add.s32 mut, {}, -16;")
    yield "twice the bytes", site.changed(2, "add.s32 mut, {0}, {0};")
    yield "next barrier", site.moved(1, 8)


def arrive(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    yield "twice", f"{site} {site}"
    yield "counts 2", str(Site(site.opcode, [*site.operands, "2"]))
    yield "next barrier", site.moved(1, 8)


def named_barrier(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    if len(site.operands) < 2:  # of all threads
        yield "of the warp only", "bar.warp.sync 0xffffffff;"
        return
    yield "32 threads more", site.changed(1, "add.s32 mut, {}, 32;")
    yield "32 threads fewer", site.changed(1, "add.s32 mut, {}, -32;")
    warp = "mov.u32 mut, %tid.x; shr.u32 mut, mut, 5; and.b32 mut, mut, 1;"
    yield "another barrier in odd warps", site.changed(0, warp + " mad.lo.u32 mut, mut, 8, {};")
    if site.opcode == "bar.sync":
        yield "does not wait", site.renamed("sync", "arrive")


def proxy_fence(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    yield "of global memory", site.renamed("shared::cta", "global")


def group_wait(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    yield "one group more", str(Site(site.opcode, [str(int(site.operands[0]) + 1)]))
    if site.opcode.endswith("bulk.wait_group"):
        yield "of reads only", str(Site(site.opcode + ".read", site.operands))


def copy(site: Site) -> Iterator[tuple[str, str]]:
    yield from deleted(site)
    if "bulk_group" not in site.opcode:  # a store may well be done twice
        yield "twice", f"{site} {site}"
    if "multicast" in site.opcode:
        yield "to CTA 0 only", site.changed(3, "and.b16 mut, {}, 1;", "b16")
        yield "to CTA 1 only", site.changed(3, "and.b16 mut, {}, 2;", "b16")
    if "bulk_group" in site.opcode:
        yield "16 bytes fewer", site.changed(2, "add.s32 mut, {}, -16;")
    else:
        yield "next barrier", site.moved(2, 8)


def peer(site: Site) -> Iterator[tuple[str, str]]:
    yield "its own CTA", site.changed(2, "mov.u32 mut, %cluster_ctarank;")


RULES = (
    ("mbarrier.init", init),
    ("mbarrier.try_wait", wait),
    ("mbarrier.arrive.expect_tx", expect),
    ("mbarrier.arrive", arrive),
    ("fence.proxy.async", proxy_fence),
    ("fence", deleted),
    ("wgmma.fence", deleted),
    ("wgmma.commit_group", deleted),
    ("wgmma.wait_group", group_wait),
    ("cp.async.bulk.commit_group", deleted),
    ("cp.async.bulk.wait_group", group_wait),
    ("cp.async.bulk", copy),
    ("st.async", copy),
    ("mapa", peer),
    ("barrier.cluster.arrive", deleted),
    ("barrier.cluster.wait", deleted),
    ("bar.warp.sync", deleted),
    ("bar.", named_barrier),
)


def mutants(kernel: str, ptx: str) -> Iterator[Mutant]:
    """Every mutant of a kernel, in the order of its statements."""
    lines = ptx.splitlines()
    source_line = 0
    for number, line in enumerate(lines):
        if loc := LOC.match(line):
            source_line = int(loc[4] or loc[2])
        statement = STATEMENT.match(line)
        if statement is None:
            continue
        site = Site(statement["opcode"], split_operands(statement["operands"]))
        for change, text in site.mutants():
            altered = [*lines[:number], (statement["guard"] or "") + text if text else "", *lines[number + 1 :]]
            yield Mutant(kernel, source_line, site.opcode, change, "\n".join(altered) + "\n")
    yield from without_cluster_barriers(kernel, lines)


def without_cluster_barriers(kernel: str, lines: list[str]) -> Iterator[Mutant]:
    """Each cluster barrier left out as a whole: an arrival and the wait after it."""
    arrivals = [number for number, line in enumerate(lines) if "barrier.cluster.arrive" in line]
    waits = [number for number, line in enumerate(lines) if "barrier.cluster.wait" in line]
    for place, (first, second) in enumerate(zip(arrivals, waits, strict=True), 1):
        kept = [line for number, line in enumerate(lines) if number not in (first, second)]
        yield Mutant(kernel, 0, "barrier.cluster", f"barrier {place} left out", "\n".join(kept) + "\n")
