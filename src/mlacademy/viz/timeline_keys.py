"""How each kind of bar of a timeline looks, and what its legend calls it: one table for the picture and the widget."""

from __future__ import annotations

from dataclasses import dataclass

from mlacademy.viz.theme import BLUE, BROWN, INK, ORANGE, PINK, PURPLE, TEAL


@dataclass(frozen=True)
class Key:
    """How one kind of bar looks and what the legend calls it."""

    words: str
    colour: str
    tint: float
    hatched: bool = False
    line: bool = False


KEYS = {
    "alu": Key("arithmetic", BLUE, 0.75),
    "memory": Key("global memory", PURPLE, 0.75),
    "shared": Key("shared memory", BROWN, 0.75),
    "mma": Key("tensor cores", ORANGE, 0.85),
    "async": Key("issues copies", TEAL, 0.85),
    "sync": Key("synchronises", PINK, 0.75),
    "control": Key("control", INK, 0.45),
    "wait": Key("waits", INK, 1.0, hatched=True),
    "faded": Key("not selected", INK, 0.1),
    "loads": Key("TMA load", TEAL, 0.75),
    "wgmma": Key("wgmma", ORANGE, 0.75),
    "stores": Key("bulk store", PURPLE, 0.75),
    "cp.async": Key("cp.async", BROWN, 0.75),
    "remote": Key("remote store", PINK, 0.75),
    "even": Key("even phase", INK, 0.3),
    "odd": Key("odd phase", INK, 0.12),
    "write": Key("written", TEAL, 0.75),
    "read": Key("read", BLUE, 0.4),
    "pending": Key("arrivals due", ORANGE, 1.0, line=True),
    "owed": Key("bytes owed", TEAL, 0.45),
}
KEY_NAMES = tuple(KEYS)
