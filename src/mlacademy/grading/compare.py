"""Compare what an answer returned with what was expected, and say where they first differ.

Everything compared here is plain data: Python numbers, strings, lists, dicts, NumPy arrays, ``wire.Tensor`` (a tensor
that came back from the worker) and, on the expected side, torch tensors. Nothing of the learner's classes gets here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlacademy.grading.wire import Foreign, Tensor

DTYPE_RULES = ("kind", "same", "any")


@dataclass(frozen=True)
class Difference:
    """The first place where an output is not as expected.

    ``kind`` is one of ``value, nan, shape, dtype, type, length, key``. ``index`` and ``axes`` say where;
    ``wrong`` of ``total`` numbers differ. ``sentence`` replaces the generated one (for comparisons of an exercise's
    own). ``why`` is the tolerance and its reason.
    """

    output: str
    kind: str
    expected: Any
    got: Any
    index: tuple[int | str, ...] = ()
    axes: tuple[str, ...] = ()
    wrong: int | None = None
    total: int | None = None
    why: str = ""
    sentence: str = ""

    @property
    def where(self) -> str:
        """``value[token 1, element 3]``."""
        parts = []
        for position, step in enumerate(self.index):
            name = self.axes[position] if position < len(self.axes) else ""
            parts.append(f"{name} {step}" if name else repr(step))
        return f"{self.output}[{', '.join(parts)}]" if parts else self.output

    def say(self, show: Callable[[Any], str] | None = None, *, reveal: bool = True) -> str:
        """One sentence; without the expected value when ``reveal`` is false."""
        if self.sentence:
            return self.sentence
        write = show or show_value
        if self.kind in ("value", "nan"):
            text = f"{self.where} is {_safely(write, self.got)}"
            text += f", expected {_safely(write, self.expected)}" if reveal else ", which is not right"
            if self.wrong is not None and self.total is not None and self.total > 1:
                text += f"; {self.wrong} of {self.total} numbers differ"
            return text + "."
        return f"{self.where} {self.got}; expected {self.expected}."


@dataclass(frozen=True)
class Compare:
    """How one output is compared. ``dtype``: ``"kind"`` (integers for integers, floats for floats; any width),
    ``"same"`` (exactly the expected dtype) or ``"any"``. ``why`` explains the tolerance and is printed with it."""

    atol: float = 0.0
    rtol: float = 0.0
    why: str = ""
    dtype: str = "kind"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_RULES:
            raise ValueError(f"dtype must be one of {DTYPE_RULES}, got {self.dtype!r}")
        if not (0 <= self.atol < math.inf and 0 <= self.rtol < 1):
            raise ValueError(f"tolerances must be finite and not negative, got atol={self.atol}, rtol={self.rtol}")

    def __call__(
        self, name: str, expected: Any, got: Any, axes: tuple[str, ...] = (), magnitude: Any = None
    ) -> Difference | None:
        """The first difference, or None. NaN equals NaN; an infinity equals only itself. ``magnitude`` (an array like
        ``expected``) takes the place of ``|expected|`` in the relative tolerance."""
        if magnitude is not None:
            bound = _Bound(self.dtype, self.atol + self.rtol * np.asarray(magnitude, np.float64))
            found = _compare(bound, name, expected, got, axes)
        else:
            found = _compare(self, name, expected, got, axes)
        if found is None or found.kind != "value" or not (self.atol or self.rtol):
            return found
        size = "|expected|" if magnitude is None else "the sum of the terms' magnitudes"
        bounds = [f"{self.atol:.3g}" if self.atol else "", f"{self.rtol:.3g} × {size}" if self.rtol else ""]
        text = "Tolerance: " + " + ".join(bound for bound in bounds if bound)
        return replace(found, why=f"{text} ({self.why})." if self.why else text + ".")


@dataclass(frozen=True)
class Exact(Compare):
    """Equal, number by number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.atol or self.rtol:
            raise ValueError("Exact takes no tolerance; use Close")


EXACT = Exact()


@dataclass(frozen=True)
class Close(Compare):
    """``|got - expected| <= atol + rtol·|expected|``. ``why`` is required: a tolerance has a reason."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.why:
            raise ValueError("Close needs why: the reason for its tolerance, printed with it")


@dataclass(frozen=True)
class _Bound:
    """A tolerance given element by element."""

    dtype: str
    atol: Any
    rtol: float = 0.0


def _compare(how: Compare | _Bound, name: str, expected: Any, got: Any, axes: tuple[str, ...]) -> Difference | None:
    if isinstance(got, Foreign):
        return Difference(name, "type", describe(expected), f"is {got.what}", axes=axes)
    if is_array(expected):
        return _arrays(how, name, expected, got, axes)
    if isinstance(expected, Mapping):
        return _mappings(how, name, expected, got)
    if isinstance(expected, (list, tuple)):
        return _sequences(how, name, expected, got, axes)
    if expected is None or isinstance(expected, str):
        same = type(got) is type(expected) and got == expected
        return None if same else Difference(name, "value", expected, got, total=1, wrong=1)
    return _scalars(how, name, expected, got)


def is_array(value: Any) -> bool:
    """Whether ``value`` is a NumPy array with axes or a tensor (also one of torch's own)."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Tensor) or is_torch(value)


def is_torch(value: Any) -> bool:
    """Whether ``value`` is one of torch's own tensors; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def plain(value: Any) -> tuple[np.ndarray[Any, Any], str]:
    """The numbers of an array, tensor or scalar as a NumPy array, and its dtype's name (``bfloat16`` stays that)."""
    if isinstance(value, Tensor):
        return value.array, value.dtype
    if is_torch(value):
        value = value.detach().cpu()
        name = str(value.dtype).removeprefix("torch.")
        if name == "bfloat16" or name.startswith("float8"):
            value = value.float()
        return value.numpy(), name
    array = np.asarray(value)
    return array, array.dtype.name


def _arrays(how: Compare | _Bound, name: str, expected: Any, got: Any, axes: tuple[str, ...]) -> Difference | None:
    want, want_dtype = plain(expected)
    if not (is_array(got) or isinstance(got, np.ndarray)):
        return Difference(name, "type", describe(expected), f"is {describe(got)}", axes=axes)
    have, have_dtype = plain(got)
    if have.shape != want.shape:
        names = f" ({', '.join(axes)})" if len(axes) == want.ndim and axes else ""
        return Difference(name, "shape", f"{_shape(want.shape)}{names}", f"has shape {_shape(have.shape)}", axes=axes)
    if how.dtype == "same" and want_dtype != have_dtype:
        return Difference(name, "dtype", want_dtype, f"has dtype {have_dtype}", axes=axes)
    if how.dtype == "kind" and _kind(want) != _kind(have):
        return Difference(name, "dtype", f"{_kind(want)} ({want_dtype})", f"has dtype {have_dtype}", axes=axes)
    return _numbers(how, name, want, have, axes)


def _numbers(
    how: Compare | _Bound, name: str, want: np.ndarray[Any, Any], have: np.ndarray[Any, Any], axes: tuple[str, ...]
) -> Difference | None:
    with np.errstate(all="ignore"):
        equal = want == have
        if want.dtype.kind in "fc" or have.dtype.kind in "fc":
            equal |= np.isnan(want) & np.isnan(have)
            if np.any(how.atol) or how.rtol:
                wide_want, wide_have = np.asarray(want, np.float64), np.asarray(have, np.float64)
                near = np.abs(wide_have - wide_want) <= how.atol + how.rtol * np.abs(wide_want)
                equal |= near & np.isfinite(wide_want) & np.isfinite(wide_have)
    if equal.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~equal)[0])
    first_want, first_have = want[index], have[index]
    kind = "nan" if have.dtype.kind in "fc" and np.isnan(first_have) else "value"
    wrong = int(equal.size - np.count_nonzero(equal))
    return Difference(name, kind, first_want, first_have, index, axes, wrong, int(equal.size))


def _scalars(how: Compare | _Bound, name: str, expected: Any, got: Any) -> Difference | None:
    if not (isinstance(got, (bool, int, float, complex, np.generic)) or (is_array(got) or isinstance(got, np.ndarray))):
        return Difference(name, "type", describe(expected), f"is {describe(got)}")
    have, _ = plain(got)
    if have.ndim:
        return Difference(name, "type", describe(expected), f"is {describe(got)}")
    want = np.asarray(expected)
    kinds = {_kind(want), _kind(have)}
    if how.dtype != "any" and len(kinds) > 1 and kinds != {"integers", "floats"}:
        return Difference(name, "type", describe(expected), f"is {describe(got)}")
    if how.dtype != "any" and _kind(want) == "integers" and _kind(have) == "floats":
        return Difference(name, "type", "an integer", f"is the float {show_value(have[()])}")
    found = _numbers(how, name, want, have, ())
    return found and replace(found, wrong=1, total=1)


def _sequences(
    how: Compare | _Bound, name: str, expected: Sequence[Any], got: Any, axes: tuple[str, ...]
) -> Difference | None:
    if is_array(got):
        got = plain(got)[0].tolist()
    if not isinstance(got, (list, tuple)):
        return Difference(name, "type", describe(expected), f"is {describe(got)}", axes=axes)
    wrong: list[Difference] = []
    for position, (one, other) in enumerate(zip(expected, got, strict=False)):
        found = _compare(how, name, one, other, axes[1:])
        if found is not None:
            head = axes[0] if axes else ""
            wrong.append(replace(found, index=(position, *found.index), axes=(head, *found.axes)))
    if wrong and (len(expected) == len(got) or wrong[0].kind == "value"):
        first = wrong[0]
        return first if first.wrong != 1 else replace(first, wrong=len(wrong), total=len(expected))
    if len(expected) != len(got):
        return Difference(name, "length", f"{len(expected)}", f"has {len(got)} items", axes=axes)
    return None


def _mappings(how: Compare | _Bound, name: str, expected: Mapping[Any, Any], got: Any) -> Difference | None:
    if not isinstance(got, dict):
        return Difference(name, "type", describe(expected), f"is {describe(got)}")
    for key, value in expected.items():
        if key not in got:
            return Difference(name, "key", f"the keys {', '.join(map(repr, expected))}", f"has no key {key!r}")
        if got[key] is Ellipsis:
            return Difference(name, "key", "a value", "is not answered yet", index=(key,))
        found = _compare(how, name, value, got[key], ())
        if found is not None:
            return replace(found, index=(key, *found.index), axes=("", *found.axes))
    extra = [key for key in got if key not in expected]
    if extra:
        return Difference(name, "key", f"the keys {', '.join(map(repr, expected))}", f"has the extra key {extra[0]!r}")
    return None


def _kind(array: np.ndarray[Any, Any]) -> str:
    return {"b": "booleans", "i": "integers", "u": "integers", "f": "floats", "c": "complex numbers"}[array.dtype.kind]


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def describe(value: Any) -> str:
    """What a value is, for a sentence: ``an array of shape [2, 3] (float32)``, ``a list of 4``, ``the number 3``."""
    if value is None:
        return "None"
    if isinstance(value, Foreign):
        return value.what
    if isinstance(value, (bool, np.bool_)):
        return f"the boolean {bool(value)}"
    if is_array(value):
        array, dtype = plain(value)
        noun = "an array" if isinstance(value, np.ndarray) else "a tensor"
        return f"{noun} of shape {_shape(array.shape)} ({dtype})"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, Mapping):
        return f"a dict of {len(value)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return "a number" if np.asarray(value).dtype.kind in "fc" else "an integer"


def show_value(value: Any) -> str:
    """One number as a learner would type it; long values are cut."""
    if isinstance(value, np.floating) and np.isfinite(value):
        short = value == 0 or 1e-5 <= abs(value) < 1e9
        return np.format_float_positional(value, unique=True, trim="0") if short else f"{value:.9g}"
    if isinstance(value, np.generic):
        value = value.item()
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _safely(show: Callable[[Any], str], value: Any) -> str:
    try:
        return show(value.item() if isinstance(value, np.generic) and show is not show_value else value)
    except Exception:
        return show_value(value)
