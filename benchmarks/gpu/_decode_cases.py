"""The calls that `ops.py` makes: samples of the public library's own test matrix, and cases that it has not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from mlacademy.cache import MODEL1, V32

CORRECTNESS = (
    *((512, 64, 2), (512, 64, 64), (512, 64, 69), (1024, 576, 2), (1024, 576, 61)),
    *((2046, 2048, 2), (2046, 2048, 64), (2046, 2048, 576)),
)
"""Tokens of a request, entries of its list, tokens of a page."""

CORNERS = ((512, 64, 61), (650, 576, 53))


def _sources(layout: Any, shapes: Any) -> Iterator[tuple[Any, Any, bool, bool]]:
    """The main and the extra source's shape, and which of them have lengths."""
    for extra in (False, True) if layout is MODEL1 else (False,):
        for extra_lengths in (False, True) if extra else (False,):
            for lengths, one, other in itertools.product((False, True), shapes, shapes if extra else (None,)):
                yield one, other, lengths, extra_lengths


def public_matrix() -> list[dict[str, Any]]:
    """Every correctness and corner case: the arguments of `random_call`."""
    cases = []
    for layout in (V32, MODEL1):
        for one, other, lengths, extra_lengths in _sources(layout, CORRECTNESS):
            for h_q, b, s_q in itertools.product((64, 128), (4, 74, 321), (1, 3)):
                for varied in (True, False) if b == 74 and not (lengths or extra_lengths) else (True,):
                    cases.append(_case(layout, h_q, b, s_q, one, other, lengths, extra_lengths, varied, sink=True))
        for one, other, lengths, extra_lengths in _sources(layout, CORNERS):
            for h_q, b in itertools.product((64, 128), (4, 74, 321)):
                for varied in (True, False) if b == 74 and not (lengths or extra_lengths) else (True,):
                    for nothing, zero, sink in itertools.product((True, False), repeat=3):
                        if nothing or zero or sink:
                            corner = {"nothing": nothing, "zero": zero}
                            shape = (one, other, lengths, extra_lengths, varied)
                            cases.append(_case(layout, h_q, b, 3, *shape, sink=sink, corner=corner))
    return cases


def sample(count: int, seed: int) -> list[dict[str, Any]]:
    """``count`` cases of the matrix, without replacement."""
    return random.Random(seed).sample(public_matrix(), count)


def _case(
    layout: Any,
    h_q: int,
    b: int,
    s_q: int,
    one: tuple[int, int, int],
    other: tuple[int, int, int] | None,
    lengths: bool,
    extra_lengths: bool,
    varied: bool,
    *,
    sink: bool,
    corner: dict[str, bool] | None = None,
) -> dict[str, Any]:
    def source(shape: tuple[int, int, int], with_lengths: bool) -> dict[str, Any]:
        tokens, topk, page = shape
        numbers = {"tokens": tokens, "topk": topk, "page": page}
        return {**numbers, "varied": varied, "with_lengths": with_lengths, **(corner or {})}

    return {
        "layout": layout,
        "b": b,
        "s_q": s_q,
        "h_q": h_q,
        "main": source(one, lengths),
        "extra": None if other is None else source(other, extra_lengths),
        "sink": sink,
    }


def further() -> dict[str, dict[str, Any]]:
    """Cases of our own, by name."""
    plain = {"tokens": 4096, "topk": 2048, "page": 64}
    short = {"tokens": 300, "topk": 128, "page": 13}
    cases: dict[str, dict[str, Any]] = {}
    for layout, h_q, s_q in itertools.product((V32, MODEL1), (1, 16, 24, 32, 64, 100, 128), (1, 2, 3)):
        name = f"{layout.name} h{h_q} s{s_q} odd pages"
        cases[name] = {"layout": layout, "b": 5, "s_q": s_q, "h_q": h_q, "main": {**short, "with_lengths": True}}
    for layout in (V32, MODEL1):
        for b in (1, 2, 16, 64, 128, 1024):
            main = plain if b < 1024 else {**plain, "tokens": 1000, "topk": 512}
            cases[f"{layout.name} h128 s1 b{b}"] = {"layout": layout, "b": b, "s_q": 1, "h_q": 128, "main": main}
        for h_q in (16, 32, 64):
            cases[f"{layout.name} h{h_q} s2 b128"] = {"layout": layout, "b": 128, "s_q": 2, "h_q": h_q, "main": plain}
    big = {**plain, "tokens": 100_000, "varied": False}
    cases["V3.2 cache of 4.2 GB"] = {"layout": V32, "b": 64, "s_q": 1, "h_q": 128, "main": big}
    cases["MODEL1 cache of 4.2 GB"] = {"layout": MODEL1, "b": 72, "s_q": 1, "h_q": 64, "main": big}
    for name, case in cases.items():
        case["sink"] = "odd" in name
    return cases
