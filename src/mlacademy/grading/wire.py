"""Plain data across the boundary between the worker and the judge.

The worker runs a stranger's code, so what it sends is never unpickled. A value travels as a tree of JSON nodes plus
raw buffers (bytes, dtype, shape); everything that is not plain data arrives as ``Foreign``: a description in words.
``encode`` looks only at ``type(value)`` and calls only methods of the built-in base types, so a class that overrides
``__eq__``, ``__iter__`` or ``__array__`` cannot put itself between the numbers and the judge.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_BYTES = 256 << 20
MAX_NODES = 200_000
MAX_DEPTH = 24
_HEAD = struct.Struct("<II")
_DTYPE = re.compile(r"[<>|][biufc][0-9]{1,2}")

Node = dict[str, Any]


class WireError(ValueError):
    """A value that cannot travel, or a message that does not follow the form; the text is for the learner."""


@dataclass(frozen=True)
class Foreign:
    """Something that is not plain data, in words: ``a function``, ``an object of class Foo``."""

    what: str


@dataclass(frozen=True, eq=False)
class Tensor:
    """A torch tensor from the worker: its numbers (bfloat16 and float8 widened to float32) and torch's dtype name."""

    array: np.ndarray[Any, Any]
    dtype: str


def encode(value: Any) -> tuple[Node, list[bytes]]:
    """The tree and buffers of a value. Raises ``WireError`` when it is too large or too deep."""
    writer = _Writer()
    return writer.node(value, 0), writer.buffers


class _Writer:
    def __init__(self) -> None:
        self.buffers: list[bytes] = []
        self.nodes = self.bytes = 0

    def node(self, value: Any, depth: int) -> Node:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise WireError(f"a result nested more than {MAX_DEPTH} levels deep")
        if self.nodes > MAX_NODES:
            raise WireError(f"a result of more than {MAX_NODES:,} items; return an array")
        kind = type(value)
        if value is None:
            return {"t": "none"}
        if value is Ellipsis:
            return {"t": "ellipsis"}
        if kind is bool:
            return {"t": "bool", "v": value}
        if issubclass(kind, int):
            if int.bit_length(value) > 8192:
                raise WireError("an integer of more than 8,192 bits")
            return {"t": "int", "v": int.__repr__(value)}
        if issubclass(kind, float):
            return {"t": "float", "v": float.hex(value)}
        if issubclass(kind, complex):
            real, imaginary = complex.__getattribute__(value, "real"), complex.__getattribute__(value, "imag")
            return {"t": "complex", "v": [float.hex(real), float.hex(imaginary)]}
        if issubclass(kind, str):
            text = str.__getitem__(value, slice(0, 100_000))
            return {"t": "str", "v": str.encode(text, "utf-8", "replace").decode()}
        if issubclass(kind, (list, tuple)):
            base = list if issubclass(kind, list) else tuple
            return {"t": base.__name__, "v": [self.node(item, depth + 1) for item in base.__iter__(value)]}
        if issubclass(kind, dict):
            pairs = [[self.node(k, depth + 1), self.node(v, depth + 1)] for k, v in list(dict.items(value))]
            return {"t": "dict", "v": pairs}
        if issubclass(kind, np.ndarray):
            return self.array(np.ndarray.view(value, np.ndarray), {})
        if issubclass(kind, np.generic):
            return self.array(np.ndarray.view(np.asarray(value), np.ndarray), {"scalar": True})
        torch = sys.modules.get("torch")
        if torch is not None and issubclass(kind, torch.Tensor):
            return self.tensor(torch, value)
        return {"t": "foreign", "v": _in_words(value, kind)}

    def array(self, array: np.ndarray[Any, Any], extra: Node) -> Node:
        if array.dtype.kind not in "biufc":
            words = {"O": "Python objects", "U": "strings", "S": "byte strings"}
            return {"t": "foreign", "v": f"an array of {words.get(array.dtype.kind, str(array.dtype))}"}
        if array.dtype.itemsize > 8 and array.dtype.kind != "c":
            array = array.astype(np.float64)
        self.bytes += array.nbytes
        if self.bytes > MAX_BYTES:
            raise WireError(f"a result of more than {MAX_BYTES >> 20} MB")
        self.buffers.append(np.ndarray.tobytes(array, order="C"))
        return {"t": "array", "dtype": array.dtype.str, "shape": list(array.shape), **extra}

    def tensor(self, torch: Any, value: Any) -> Node:
        with torch._C.DisableTorchFunctionSubclass():
            plain = torch.Tensor.detach(value)
            name = str(plain.dtype).removeprefix("torch.")
            if plain.layout is not torch.strided:
                return {"t": "foreign", "v": f"a {plain.layout} tensor"}
            if plain.numel() * plain.element_size() > MAX_BYTES:
                raise WireError(f"a result of more than {MAX_BYTES >> 20} MB")
            if plain.device.type == "meta":
                return {"t": "foreign", "v": "a tensor on the device meta, which has no numbers"}
            try:
                plain = plain.cpu().resolve_conj().resolve_neg()
                if name == "bfloat16" or name.startswith("float8"):
                    plain = plain.float()
                array = plain.numpy()
            except (TypeError, RuntimeError):  # NotImplementedError is a RuntimeError
                return {"t": "foreign", "v": f"a tensor of dtype {name}"}
        return self.array(array, {"torch": name})


def _in_words(value: Any, kind: type) -> str:
    if value is NotImplemented:
        return "NotImplemented"
    name = type.__getattribute__(kind, "__name__")
    special = {
        "function": "a function (is a call missing its parentheses?)",
        "builtin_function_or_method": "a function (is a call missing its parentheses?)",
        "method": "a method (is a call missing its parentheses?)",
        "generator": "a generator (yield instead of return, or a comprehension in round brackets)",
        "coroutine": "a coroutine (async def instead of def)",
        "type": "a class",
        "module": "a module",
        "dtype": "a dtype",
        "set": "a set, which has no order",
    }
    return special.get(name, f"an object of class {name[:60]}")


def decode(tree: Node, buffers: list[bytes]) -> Any:
    """The value of a tree and its buffers. Raises ``WireError`` on anything that ``encode`` would not have written."""
    rest = list(reversed(buffers))
    try:
        value = _read(tree, rest, 0)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, ValueError) as error:
        raise WireError(f"malformed result ({type(error).__name__})") from error
    if rest:
        raise WireError("malformed result (buffers left over)")
    return value


def _read(node: Node, buffers: list[bytes], depth: int) -> Any:
    if depth > MAX_DEPTH + 1:
        raise WireError("malformed result (too deep)")
    kind, value = node["t"], node.get("v")
    if kind in ("none", "ellipsis"):
        return None if kind == "none" else Ellipsis
    if kind == "bool":
        return bool(value)
    if kind == "int":
        return int(str(value))
    if kind == "float":
        return float.fromhex(str(value))
    if kind == "complex":
        assert value is not None
        return complex(float.fromhex(value[0]), float.fromhex(value[1]))
    if kind == "str":
        return str(value)
    if kind in ("list", "tuple"):
        assert value is not None
        items = [_read(item, buffers, depth + 1) for item in value]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        assert value is not None
        return {_key(_read(k, buffers, depth + 1)): _read(v, buffers, depth + 1) for k, v in value}
    if kind == "array":
        return _read_array(node, buffers.pop())
    if kind == "foreign":
        return Foreign(str(value)[:200])
    raise WireError(f"malformed result (node {str(kind)[:20]!r})")


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int, float, bool, tuple, type(None))) else str(key)


def _read_array(node: Node, data: bytes) -> Any:
    if not _DTYPE.fullmatch(node["dtype"]):
        raise WireError("malformed result (dtype)")
    dtype = np.dtype(node["dtype"])
    shape = tuple(int(n) for n in node["shape"])
    if any(n < 0 for n in shape) or len(shape) > 32 or math.prod(shape) * dtype.itemsize != len(data):
        raise WireError("malformed result (shape)")
    array = np.frombuffer(data, dtype).reshape(shape).copy()
    if "torch" in node:
        return Tensor(array, str(node["torch"])[:20])
    return array[()] if node.get("scalar") and not shape else array


def pack(message: Node, buffers: list[bytes]) -> bytes:
    """One message as bytes: two lengths, the JSON header, the buffers end to end."""
    head = json.dumps({**message, "sizes": [len(b) for b in buffers]}).encode()
    return b"".join([_HEAD.pack(len(head), sum(map(len, buffers))), head, *buffers])


def unpack(data: bytes | bytearray) -> tuple[list[tuple[Node, list[bytes]]], bool]:
    """The whole messages at the start of ``data``, and whether it ended cleanly after the last one.

    Raises ``WireError`` where a message does not follow the form.
    """
    messages, at = [], 0
    while at + _HEAD.size <= len(data):
        head_size, body_size = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + head_size + body_size
        if end > len(data):
            break
        body = at + _HEAD.size + head_size
        try:
            message = json.loads(bytes(data[at + _HEAD.size : body]))
            sizes = [int(size) for size in message["sizes"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WireError("malformed message") from error
        if not isinstance(message, dict) or sum(sizes) != body_size or any(size < 0 for size in sizes):
            raise WireError("malformed message")
        buffers = []
        for size in sizes:
            buffers.append(bytes(data[body : body + size]))
            body += size
        messages.append((message, buffers))
        at = end
    return messages, at == len(data)
