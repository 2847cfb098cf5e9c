"""The timeline as a widget: filters above a canvas with zoom, movement and the details of every bar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import traitlets

from mlacademy.viz.explorer import HERE, Explorer, View
from mlacademy.viz.study import Study
from mlacademy.viz.timeline import MOST_LANES, Run, heading_of
from mlacademy.viz.timeline_facts import observers
from mlacademy.viz.timeline_keys import KEY_NAMES, KEYS
from mlacademy.viz.timeline_lanes import Lane, choose, lanes_of
from mlacademy.viz.timeline_text import summary, twin
from mlacademy.viz.trace_studies import selected


def _joined(*names: str) -> str:
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


class TimelineView(View):
    """The canvas. Traits beside those of every view: `scene`, the lanes as JSON, and `summary`."""

    _esm = _joined("timeline_canvas.js", "timeline.js")
    _css = _joined("view.css", "timeline.css")
    scene = traitlets.Unicode().tag(sync=True)
    summary = traitlets.Unicode().tag(sync=True)


class TimelineExplorer(Explorer):
    """Timeline of one run with filters; `study` draws the static picture of the same settings."""

    def __init__(self, run: Run, study: Study) -> None:
        self.run = run
        super().__init__(study, TimelineView())

    def show(self) -> None:
        """Send the lanes that the filters leave."""
        chosen = choose(self.run.trace, **selected(self.settings))
        lanes = lanes_of(self.run.trace, chosen, MOST_LANES)
        ctas = list(dict.fromkeys(lane.cta for lane in lanes))
        line = summary(self.run.trace, ctas, self.run.died)
        title = heading_of(self.run.trace)
        self.view.title, self.view.summary = title, line
        self.view.text = "\n".join([title, line, twin(self.run.trace, ctas, lanes, self.run.died)])
        self.view.scene = json.dumps(scene_of(self.run, lanes), separators=(",", ":"))


def scene_of(run: Run, lanes: Sequence[Lane]) -> dict[str, Any]:
    """Return what the canvas draws, as plain data: lanes with their bars, steps and links; each sentence once."""
    texts: dict[str, int] = {}
    warps = {(lane.cta, lane.warp): place for place, lane in enumerate(lanes) if lane.section == "warps"}
    seen = observers(run.trace, {lane.cta for lane in lanes})
    rows = []
    for lane in lanes:
        row: dict[str, Any] = {
            "section": lane.section,
            "cta": lane.cta,
            "name": lane.name,
            "levels": 2 if lane.section == "buffers" else int(lane.bars.level.max(initial=0)) + 1,
            "start": _numbers(lane.bars.start),
            "stop": _numbers(lane.bars.stop),
            "key": lane.bars.key.tolist(),
            "level": lane.bars.level.tolist(),
            "text": [texts.setdefault(text, len(texts)) for text in lane.bars.text],
        }
        if lane.steps is not None:
            row["steps"] = {
                "time": _numbers(lane.steps.time),
                "pending": lane.steps.pending.tolist(),
                "owed": lane.steps.tx.tolist(),
            }
        if len(lane.rows):
            found = [(bar, seen.get(int(op))) for bar, op in enumerate(lane.rows)]
            row["links"] = [
                [bar, warps[who.cta, who.warp], round(who.time, 2), round(who.since, 2), who.reads]
                for bar, who in found
                if who is not None and (who.cta, who.warp) in warps
            ]
        rows.append(row)
    return {
        "cycles": float(run.trace.cycles),
        "ctas": len({lane.cta for lane in lanes}),
        "died": run.died,
        "names": KEY_NAMES,
        "keys": {
            name: {
                "words": key.words,
                "colour": key.colour,
                "tint": key.tint,
                "hatched": key.hatched,
                "line": key.line,
            }
            for name, key in KEYS.items()
        },
        "legend": _legend(lanes),
        "texts": list(texts),
        "lanes": rows,
    }


def _legend(lanes: Sequence[Lane]) -> list[str]:
    used = [
        KEY_NAMES[key]
        for section in ("warps", "operations", "buffers")
        for key in sorted({int(k) for lane in lanes if lane.section == section for k in set(lane.bars.key.tolist())})
    ]
    return used + (["pending", "owed"] if any(lane.section == "barriers" for lane in lanes) else [])


def _numbers(values: Any) -> list[float]:
    """Times to a hundredth of a cycle, whole ones without a fraction: the scene of a long run stays small."""
    return [int(v) if v == int(v) else round(float(v), 2) for v in values.tolist()]
