"""Keep an answer from handing the work to the library it is about.

In the runner (a forked process that ends with the job) the functions of the forbidden modules are replaced, in place,
by stubs that raise ``LibraryCall`` and leave a note. Replacing the code of the function object reaches every name it
goes by: ``from module import f``, a lambda, an import inside the answer, another library function that calls it.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

JUDGES = "mlacademy.grading.judges"
"""Never importable where an answer runs."""


class LibraryCall(Exception):
    """The answer called, or looked up, something that the exercise asks it to write itself."""


@dataclass
class Calls:
    """The forbidden names an answer has used so far; what is still to be closed; closed objects that are watched."""

    names: list[str] = field(default_factory=list)
    forbids: list[str] = field(default_factory=list)
    kept: list[tuple[Any, str]] = field(default_factory=list)


_calls = Calls()


def used(name: str) -> NoReturn:
    """Note that ``name`` was used, and refuse."""
    if name not in _calls.names:
        _calls.names.append(name)
    raise LibraryCall(name)


def _stub(*args: Any, **kwargs: Any) -> NoReturn:
    import sys

    from mlacademy.grading.guard import used

    used(sys._getframe().f_code.co_name)


def _no_input(prompt: object = "") -> NoReturn:
    raise EOFError("an answer cannot read from the keyboard")


def prepare(forbids: list[str]) -> Calls:
    """Import what is forbidden, and hide the judges and the keyboard, before the process loses its rights."""
    builtins.input = _no_input
    for name in [name for name in sys.modules if name == JUDGES or name.startswith(JUDGES + ".")]:
        del sys.modules[name]
    sys.modules[JUDGES] = None  # type: ignore[assignment]
    for name in forbids:
        resolve(name)
    _calls.forbids = list(dict.fromkeys(spelling for name in forbids for spelling in _spellings(name)))
    return _calls


def _spellings(name: str) -> list[str]:
    """The name, and for a function of torch the other places where torch has it: ``x.softmax()``, ``torch.special``."""
    top, _, attribute = name.partition(".")
    if top != "torch" or not attribute or _import(name) is not None:
        return [name]
    last = attribute.rpartition(".")[2]
    places = ("torch", "torch.Tensor", "torch.special", "torch.nn.functional")
    return [name, *(f"{place}.{last}" for place in places if resolve(f"{place}.{last}")[0] is not None)]


def close() -> None:
    """Put stubs in place of everything forbidden: whole modules, or single names like ``torch.softmax``. Once."""
    forbids, _calls.forbids = _calls.forbids, []
    for name in forbids:
        module = _import(name)
        if module is not None:
            _close_module(name)
            continue
        owner, attribute = resolve(name)
        if isinstance(owner, types.ModuleType):
            _close_names(owner, {attribute}, classes=False)
        elif owner is not None:
            setattr(owner, attribute, _named_stub(name))


def replace_in(namespace: dict[str, Any]) -> None:
    """Exchange names that were bound, before ``close``, to something whose code cannot be replaced in place."""
    for key, value in list(namespace.items()):
        for closed, name in _calls.kept:
            if value is closed:
                namespace[key] = _named_stub(name)


def resolve(name: str) -> tuple[Any, str]:
    """The object that holds ``name`` (a module, or a class such as ``torch.Tensor``) and the attribute's own name.

    ``(None, attribute)`` when there is no such thing; a whole module is its own holder, with an empty attribute.
    """
    module = _import(name)
    if module is not None:
        return module, ""
    path, _, attribute = name.rpartition(".")
    owner: Any = None
    if path:
        holder, rest = resolve(path)
        owner = getattr(holder, rest, None) if rest and holder is not None else holder
    return (owner if hasattr(owner, attribute) else None), attribute


def _import(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _close_module(name: str) -> None:
    members = [m for key, m in sys.modules.items() if m is not None and (key == name or key.startswith(name + "."))]
    for module in members:
        own = {
            key
            for key, value in vars(module).items()
            if not key.startswith("__")
            and (callable(value) or isinstance(value, (types.ModuleType, np.ndarray)))
            and _lives_in(value, name)
        }
        _close_names(module, own)


def _lives_in(value: Any, name: str) -> bool:
    home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or name
    return bool(home == name or str(home).startswith(name + "."))


def _close_names(module: types.ModuleType, names: set[str], *, classes: bool = True) -> None:
    """Every function under ``names`` refuses; looking up the rest (native functions, numbers) on the module refuses.

    Of a class the methods refuse; without ``classes``, looking it up does: a class named alone may be a NumPy dtype,
    which is used without a call.
    """
    watched = set()
    for key in names:
        value = vars(module).get(key)
        if isinstance(value, types.ModuleType):
            continue  # its own functions are closed one by one
        if isinstance(value, types.FunctionType) and not value.__code__.co_freevars:
            value.__code__ = _stub.__code__.replace(co_name=f"{module.__name__}.{key}")
            value.__defaults__ = value.__kwdefaults__ = None
        elif classes and isinstance(value, type) and not issubclass(value, BaseException):
            for method, function in list(vars(value).items()):
                plain = isinstance(function, types.FunctionType) and not function.__code__.co_freevars
                if plain and not method.startswith("__"):
                    function.__code__ = _stub.__code__.replace(co_name=f"{module.__name__}.{key}.{method}")
        else:
            watched.add(key)
            _calls.kept.append((value, f"{module.__name__}.{key}"))
    if watched:
        _watch(module, watched)


def _watch(module: types.ModuleType, names: set[str]) -> None:
    already = type(module)
    reader = already.__getattribute__

    class Watched(already):  # type: ignore[misc, valid-type]
        def __getattribute__(self, key: str) -> Any:
            if key in names:
                used(f"{reader(self, '__name__')}.{key}")
            return reader(self, key)

    try:
        module.__class__ = Watched
    except TypeError:
        for key in names:
            setattr(module, key, _named_stub(f"{module.__name__}.{key}"))


def _named_stub(name: str) -> Any:
    return types.FunctionType(_stub.__code__.replace(co_name=name), {"__builtins__": builtins})
