"""What a widget is made of, without any widget library: controls as plain data, presets, and a pure drawing function.

A `Study` can be drawn, stepped through and tested with no browser and no ipywidgets; `explorer` puts it on screen.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from mlacademy.viz.picture import Picture

Settings = dict[str, Any]


@dataclass(frozen=True)
class Slider:
    """A number from `low` to `high` in steps of `step`; whole when all of them are.

    With `log_base` the slider moves in powers of it (`low` and `high` stay plain values) and a text field takes any
    exact value.
    """

    name: str
    label: str
    default: float
    low: float
    high: float
    step: float = 1
    log_base: float | None = None

    @property
    def whole(self) -> bool:
        """True when the slider gives integers."""
        return self.log_base is None and all(isinstance(v, int) for v in (self.default, self.low, self.high, self.step))


@dataclass(frozen=True)
class Stops:
    """A slider over listed values only."""

    name: str
    label: str
    default: Any
    options: tuple[Any, ...]


@dataclass(frozen=True)
class Choice:
    """One of a few named values: `options` maps the words on screen to the values."""

    name: str
    label: str
    default: Any
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Toggle:
    """A check box."""

    name: str
    label: str
    default: bool


Control = Slider | Stops | Choice | Toggle


@dataclass(frozen=True)
class Study:
    """A picture and the controls it depends on.

    draw: takes every control's value by name and returns the picture; raises `ValueError` for settings that make no
    sense together, with a sentence for the learner.
    presets: name -> settings that differ from the defaults.
    limits: given the settings, the highest value of sliders that depend on others.
    """

    draw: Callable[..., Picture]
    controls: tuple[Control, ...]
    presets: Mapping[str, Settings] = field(default_factory=dict)
    limits: Callable[[Settings], dict[str, int]] | None = None

    @property
    def defaults(self) -> Settings:
        """The settings a widget opens with."""
        return {control.name: control.default for control in self.controls}

    def picture(self, **changes: Any) -> Picture:
        """Draw with the defaults, changed by `changes`."""
        unknown = changes.keys() - self.defaults.keys()
        if unknown:
            raise ValueError(f"no such setting: {', '.join(sorted(unknown))}; there are {', '.join(self.defaults)}")
        return self.draw(**(self.defaults | changes))

    def preset(self, name: str) -> Settings:
        """All settings of a preset."""
        return self.defaults | self.presets[name]

    def name_of(self, settings: Settings) -> str | None:
        """The preset that these settings are, if any; numbers need to agree to within a slider's rounding."""
        for name in self.presets:
            wanted = self.preset(name)
            if all(_same(settings[key], value) for key, value in wanted.items()):
                return name
        return None


def _same(a: Any, b: Any) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) if isinstance(b, float) else bool(a == b)


def show(study: Study, widget: Callable[[], Any] | None = None) -> Any:
    """Return the study as a widget; as a static `Picture` with `MLACADEMY_STATIC=1` or without ipywidgets.

    `widget` makes it; by default an `Explorer`, which shows the picture that the study draws.
    """
    if os.environ.get("MLACADEMY_STATIC") == "1" or find_spec("anywidget") is None or find_spec("ipywidgets") is None:
        return study.picture()
    if widget is not None:
        return widget()
    from mlacademy.viz.explorer import Explorer

    return Explorer(study)
