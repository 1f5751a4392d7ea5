"""The names by which PyTorch's files know what is ours: a file says `torch.nn.modules.conv.Conv2d`, wherever that is written here."""

from __future__ import annotations

import importlib
import pickletools
import sys
from functools import cache
from importlib.resources import files
from itertools import takewhile
from types import ModuleType
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.pickles import PLACE, rebuilding

OURS = "torchgrad_jax"
# Where PyTorch has what our pickles name.
_PLACES = {
    "_rebuild_size": ("torch", "Size"),
    "_rebuild_device": ("torch", "device"),
    "_rebuild_from_type_v2": ("torch._tensor", "_rebuild_from_type_v2"),
    "_get_layout": ("torch.serialization", "_get_layout"),
}
_THERE = {place: rebuilding[name] for name, place in _PLACES.items() if name[:9] != "_rebuild_" or place[0] == "torch._tensor"}


@cache
def modules() -> dict[str, list[str]]:
    """PyTorch's modules that have a public class of this name. Written by ``python -m compat_suite.saved_files --places``."""
    found: dict[str, list[str]] = {}
    for line in files("torchgrad_jax.saving").joinpath("places.txt").read_text().splitlines():
        module, _, names = line.partition(": ")
        for name in names.split():
            found.setdefault(name, []).append(module)
    return found


def _in_common(a: str, b: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a.split("."), b.split("."), strict=False)))


def torch_name(module: str, name: str) -> tuple[str, str] | None:
    """What PyTorch calls what pickles of ours name so; None for what is not ours."""
    parts = module.split(".")
    if parts[0] != OURS:
        return None
    if module == PLACE:
        return _PLACES.get(name, ("torch._utils", name))
    if name == "Tensor" or (name == "Size" and parts[1:2] == ["core"]):
        return "torch", name
    if name == "Parameter":
        return "torch.nn.parameter", name
    there = ".".join(["torch", *parts[1:]])
    known = [m for m in modules().get(name, ()) if _in_common(m, there) > 1]
    return max(known, key=lambda m: _in_common(m, there), default=there), name


def find(module: str, name: str) -> Any:
    """What PyTorch, or a pickle of ours, names so. AttributeError where there is no such thing here."""
    if (module, name) in _THERE:
        return _THERE[module, name]
    if name in rebuilding and module in ("torch._utils", PLACE):
        return rebuilding[name]
    if module == "torch._C" and name in ("_VariableFunctionsClass", "TensorBase"):  # of which functions and methods are attributes
        return Tensor if name == "TensorBase" else sys.modules[OURS]
    path = module.split(".")[1:]
    while True:
        found = _attribute(".".join([OURS, *path]), name)
        if found is not None:
            return found
        if not path:
            raise AttributeError(f"torchgrad_jax has no {module}.{name}, which the file names")
        path.pop()


def _attribute(module: str, dotted: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return None
    for name in dotted.split("."):
        found = getattr(found, name, None)
    return None if isinstance(found, ModuleType) else found


def is_torch(module: str) -> bool:
    """Whether a name in this module is PyTorch's, or ours."""
    return module.partition(".")[0] in ("torch", OURS)


# ---------------------------------------------------------------------- renaming what was pickled


def renamed(stream: bytes, globals_written: set[tuple[str, str]] | None) -> bytes:
    """A pickle with PyTorch's names in place of ours. globals_written: what it names, where that is known and the pickle has protocol 3 or less: each
    stands in it once, unless the same bytes happen to be in what is saved."""
    if globals_written is not None:
        texts = {_text(m, n): _text(*new) for m, n in globals_written if (new := torch_name(m, n)) is not None}
        if all(stream.count(text) == 1 for text in texts):
            for text, new in texts.items():
                stream = stream.replace(text, new)
            return stream
    return _renamed_each(stream)


def _text(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _renamed_each(stream: bytes) -> bytes:
    """The same, operation by operation. Frames, which say how long their contents are, are left out: they only tell how to read ahead."""
    out: list[bytes] = []
    memo: dict[Any, Any] = {}
    recent: list[Any] = []  # what the last operations put onto the stack, as far as they are texts
    found = [(op.name, argument, at) for op, argument, at in pickletools.genops(stream)]
    ends = [at for _, _, at in found[1:]] + [len(stream)]
    for (name, argument, at), end in zip(found, ends, strict=True):
        code = stream[at:end]
        if name == "FRAME":
            continue
        if name == "GLOBAL":
            module, _, attribute = str(argument).partition(" ")
            new = torch_name(module, attribute)
            code = code if new is None else _text(*new)
        elif name == "STACK_GLOBAL":
            new = torch_name(*recent[-2:]) if len(recent) > 1 and all(type(x) is str for x in recent[-2:]) else None
            code = code if new is None else b"00" + _text(*new)
        if "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = recent[-1] if recent else None
        else:
            recent.append(memo.get(argument) if "GET" in name else argument if "UNICODE" in name else None)
        out.append(code)
    return b"".join(out)


def text_of(found: Any) -> str:
    """A function or class as PyTorch's messages name it."""
    module, name = found.__module__, getattr(found, "__qualname__", found.__name__)
    new = torch_name(module, name)
    return name if module == "builtins" else ".".join(new or (module, name))


REBUILD_FROM_TYPE = find("torch._tensor", "_rebuild_from_type_v2")
