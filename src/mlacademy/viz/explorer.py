"""A `Study` on screen: ipywidgets controls above one anywidget view that draws the picture and reads it out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as ipw
import traitlets

from mlacademy.viz.study import Choice, Control, Settings, Slider, Stops, Study, Toggle

HERE = Path(__file__).parent
OWN_SETTINGS = "own settings"


class View(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget ships no types
    """What every view has: traits `title`, `text` (the twin), and `message`, what is wrong with the settings or ""."""

    text = traitlets.Unicode().tag(sync=True)
    title = traitlets.Unicode().tag(sync=True)
    message = traitlets.Unicode().tag(sync=True)


class PictureView(View):
    """The drawing, the line about the element under pointer or focus, and the text twin behind a button.

    Its own trait is `svg`, the picture.
    """

    _esm = HERE / "view.js"
    _css = HERE / "view.css"
    svg = traitlets.Unicode().tag(sync=True)


class Explorer(ipw.VBox):  # type: ignore[misc]  # ipywidgets ships no types
    """A study with live controls.

    Attributes:
        controls: name -> the ipywidget whose `value` is that setting.
        view: what draws, a `PictureView` unless another is given. presets: the preset menu, or None.
    """

    def __init__(self, study: Study, view: View | None = None) -> None:
        self.study = study
        self._quiet = False
        self.controls: dict[str, Any] = {}
        boxes = []
        for control in study.controls:
            widget, box = _build(control)
            self.controls[control.name] = widget
            boxes.append(box)
            widget.observe(self._changed, names="value")
        self.presets = None
        if study.presets:
            self.presets = ipw.Dropdown(options=[OWN_SETTINGS, *study.presets], description="preset", **_LOOK)
            self.presets.add_class("mla-wide")
            self.presets.observe(self._preset_chosen, names="value")
            boxes.insert(0, self.presets)
        self.view = view or PictureView()
        grid = ipw.GridBox(
            boxes,
            layout={
                "grid_template_columns": "repeat(auto-fit, minmax(max(250px, 34%), 1fr))",
                "width": "100%",
                "align_items": "center",
            },
        )
        grid.add_class("mla-controls")
        super().__init__([grid, self.view], layout={"max_width": "880px"})
        self._draw()

    @property
    def settings(self) -> Settings:
        """The current value of every control."""
        return {name: widget.value for name, widget in self.controls.items()}

    def set(self, **settings: Any) -> None:
        """Change several controls and draw once."""
        with self._silence():
            # Sliders whose range depends on another setting need their new range first.
            self._limit(self.settings | settings)
            for name, value in settings.items():
                self.controls[name].value = value
        self._draw()

    def _changed(self, _: object) -> None:
        if not self._quiet:
            self._draw()

    def _preset_chosen(self, change: Any) -> None:
        if not self._quiet and change["new"] != OWN_SETTINGS:
            self.set(**self.study.preset(change["new"]))

    @contextmanager
    def _silence(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def _limit(self, settings: Settings) -> None:
        if self.study.limits is not None:
            for name, high in self.study.limits(settings).items():
                self.controls[name].max = high

    def _draw(self) -> None:
        with self._silence():
            self._limit(self.settings)
            if self.presets is not None:
                self.presets.value = self.study.name_of(self.settings) or OWN_SETTINGS
        try:
            with self.view.hold_sync():
                self.show()
                self.view.message = ""
        except (ValueError, TypeError) as problem:
            self.view.message = str(problem) if str(problem).endswith((".", "?")) else f"{problem}."

    def show(self) -> None:
        """Put what the settings give on the view; raise `ValueError` or `TypeError` where they make no sense."""
        picture = self.study.draw(**self.settings)
        self.view.title, self.view.svg, self.view.text = picture.title, picture.svg, picture.text


_LOOK: dict[str, Any] = {"style": {"description_width": "116px"}, "layout": {"width": "auto"}}


def _build(control: Control) -> tuple[Any, Any]:
    """Return the widget that holds the value, and the box that shows it (the same but for logarithmic sliders)."""
    common = {"description": control.label, **_LOOK}
    if isinstance(control, Toggle):
        widget = ipw.Checkbox(value=control.default, **common)
    elif isinstance(control, Choice):
        widget = ipw.Dropdown(options=list(control.options.items()), value=control.default, **common)
    elif isinstance(control, Stops):
        options = [(f"{v:,}" if isinstance(v, int) else str(v), v) for v in control.options]
        widget = ipw.SelectionSlider(options=options, value=control.default, **common)
    elif control.log_base is None:
        kind = ipw.IntSlider if control.whole else ipw.FloatSlider
        widget = kind(value=control.default, min=control.low, max=control.high, step=control.step, **common)
    else:
        return _log_slider(control, control.log_base)
    return widget, widget


def _log_slider(control: Slider, base: float) -> tuple[Any, Any]:
    """Return an exact text field and, beside it, a slider over its logarithm.

    The field holds the value. The slider can only stand at multiples of its step, so it moves the field when it is
    moved, and never because it was set to the nearest step of what the field says.
    """
    step = 0.02
    field = ipw.BoundedFloatText(
        value=control.default,
        min=control.low,
        max=control.high,
        step=control.step,
        description=control.label,
        style=_LOOK["style"],
        layout={"flex": "0 0 220px"},
    )
    slider = ipw.FloatSlider(
        value=math.log(control.default, base),
        min=math.log(control.low, base),
        max=math.log(control.high, base),
        step=step,
        readout=False,
        description=f"log{base:g}",
        style={"description_width": "40px"},
        layout={"flex": "1 1 120px", "width": "auto"},
    )

    def moved(change: Any) -> None:
        if abs(change["new"] - math.log(field.value, base)) > 0.6 * step:
            field.value = float(f"{base ** change['new']:.4g}")

    def typed(change: Any) -> None:
        slider.value = math.log(change["new"], base)

    slider.observe(moved, names="value")
    field.observe(typed, names="value")
    box = ipw.HBox([field, slider], layout={"width": "auto"})
    box.add_class("mla-wide")
    return field, box
