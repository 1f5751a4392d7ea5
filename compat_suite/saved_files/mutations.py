"""Damaged files: file number n is always the same. What is damaged, how, and what comes of loading it."""

from __future__ import annotations

import codecs
import faulthandler
import io
import pickle
import random
import struct
import sys
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

import torchgrad_jax as torch

# Errors by which a file may be refused.
ANSWERS = (RuntimeError, pickle.UnpicklingError, EOFError)
# What a file says must not lead to these; loading itself reads files that it was given, no others.
FORBIDDEN = ("exec", "compile", "import", "os.", "subprocess.", "socket.", "ctypes.", "open", "shutil.", "pty.", "marshal.", "code.__new__")


@cache
def originals() -> tuple[bytes, ...]:
    """Whole files of several kinds, in both formats."""
    x = torch.arange(12.0)
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    noted = torch.ones(2)
    noted.note = {"a": [1, (2, "b")]}
    contents = [
        {"x": x, "part": x[2:5], "turned": x.view(3, 4).t(), "list": [1, 2.5, None, True, "text", b"bytes", 2**70, (1, (2,))]},
        layer.state_dict(),
        {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "step": 3},
        [torch.ones(2, dtype=d) for d in (torch.bool, torch.int8, torch.int64, torch.bfloat16, torch.complex64, torch.float64, torch.uint16)],
        [noted, torch.nn.Parameter(x[:2]), torch.tensor([1 + 2j]).conj(), torch.Size([1, 2]), torch.float32, torch.device("cpu"), torch.strided],
        OrderedDict(a=Counter("aab"), b={1, 2}, c=bytearray(b"abc"), d=1 - 2j, e=x[:1].expand(4)),
    ]
    found = []
    for content in contents:
        for new in (True, False):
            stream = io.BytesIO()
            torch.save(content, stream, _use_new_zipfile_serialization=new)
            found.append(stream.getvalue())
    return tuple(found)


# ---------------------------------------------------------------------- ways to damage

HOSTILE = (
    b"cos\nsystem\nX\x04\x00\x00\x00trueq\xfe\x85R", b"c__builtin__\neval\nX\x03\x00\x00\x001+1\x85R", b"cbuiltins\ngetattr\n",
    b"cos\nsystem\n", b"c__builtin__\nexec\n", b"csubprocess\nPopen\n", b"ctorch\nload\n", b"ctorch.hub\nload\n", b"cfunctools\npartial\n",
    b"ctorch.nn.modules.linear\nLinear\n)\x81", b"ctorch\nTensor\n}X\x01\x00\x00\x00aK\x01sb", b"ctorch._utils\n_rebuild_tensor_v2\n}b",
    b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R", b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R", b"i__builtin__\neval\n",
    b"(c__builtin__\neval\nX\x03\x00\x00\x001+1o", b"c_codecs\ndecode\n", b"ctorch\nSize\nJ\xff\xff\xff\x7f\x85\x85R", b"ccollections\nCounter\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"c__builtin__\nset\n", b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_parameter\n",
    b"ccopyreg\n_reconstructor\n", b"\x82\x01", b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f",
    b"B\xff\xff\xff\x7f", b"X\xff\xff\xff\xff", b"r\xff\xff\xff\xff",
)  # fmt: skip
NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
OPERATIONS = b"\x80c(tR\x81bQ}])N\x88\x89aesu\x85\x86\x87KMJG\x8aXTUqrhj.02iod\x94\x95\x93pgIVSLF"


def flip(data: bytearray, rng: random.Random) -> None:
    """Change a few bits."""
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def replace(data: bytearray, rng: random.Random) -> None:
    """Put other bytes in the place of a few."""
    if data:
        at = rng.randrange(len(data))
        data[at : at + rng.choice((1, 2, 4, 8))] = rng.randbytes(rng.choice((1, 2, 4, 8)))


def number(data: bytearray, rng: random.Random) -> None:
    """Write a number at the edge of what fits."""
    at, width = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8))
    data[at : at + width] = struct.pack("<Q", rng.choice(NUMBERS))[:width]


def cut(data: bytearray, rng: random.Random) -> None:
    """Leave out a part, or the end."""
    at = rng.randrange(len(data) + 1)
    del data[at : None if rng.random() < 0.3 else at + rng.choice((1, 2, 5, 30))]


def repeat(data: bytearray, rng: random.Random) -> None:
    """Put in a part twice, somewhere."""
    at = rng.randrange(len(data) + 1)
    data[rng.randrange(len(data) + 1) : 0] = data[at : at + rng.choice((1, 3, 10, 60))]


def insert(data: bytearray, rng: random.Random) -> None:
    """Put in what would do harm, or operations."""
    what = rng.choice(HOSTILE) if rng.random() < 0.6 else bytes(rng.choice(OPERATIONS) for _ in range(rng.choice((1, 2, 4))))
    at = rng.randrange(2, max(len(data), 3))
    data[at:at] = what


def mix(data: bytearray, rng: random.Random) -> None:
    """Put in a part of another file."""
    other = rng.choice(originals())
    begin, at = rng.randrange(len(other)), rng.randrange(len(data) + 1)
    data[at : at + rng.choice((0, 10, 100))] = other[begin : begin + rng.choice((4, 40, 400))]


WAYS: tuple[Callable[[bytearray, random.Random], None], ...] = (flip, flip, replace, number, cut, repeat, insert, insert, mix)


def bomb(rng: random.Random) -> bytes:
    """A pickle that is small and would be large, or endless, once it is used."""
    depth = rng.choice((30, 200, 5000))
    kind = rng.randrange(4)
    if kind == 0:  # a tuple of two of a tuple of two ..., as the key of a dictionary
        return b"\x80\x02})" + b"".join(b"q\x00h\x00\x86" for _ in range(depth)) + b"K\x01s."
    if kind == 1:  # the same in a set
        return b"\x80\x02c__builtin__\nset\n])" + b"".join(b"q\x00h\x00\x86" for _ in range(depth)) + b"a\x85R."
    if kind == 2:  # lists in lists
        return b"\x80\x02" + b"]" * depth * 100 + b"a" * (depth * 100 - 1) + b"."
    return b"\x80\x02" + b"(" * depth + b"t" * depth + b"."


def damaged(seed: int) -> bytes:
    """File number `seed`."""
    rng = random.Random(seed)
    content = rng.choice(originals())
    ways = [rng.choice(WAYS) for _ in range(rng.choice((1, 1, 2, 3)))]
    if content[:4] != b"PK\3\4" or rng.random() < 0.3:
        data = bytearray(content)
        for way in ways:
            way(data, rng)
        return bytes(data)
    return _with_damaged_records(content, ways, rng)


def _with_damaged_records(content: bytes, ways: list[Any], rng: random.Random) -> bytes:
    """An archive that is whole, of records that are not."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w", rng.choice((0, 0, 8))) as new:
        records = {i.filename: bytearray(old.read(i)) for i in old.infolist()}
        pickled = next(name for name in records if name.endswith("data.pkl"))
        chosen = pickled if rng.random() < 0.7 else rng.choice(list(records))
        for way in ways:
            way(records[chosen], rng)
        if rng.random() < 0.03:
            records[pickled] = bytearray(bomb(rng))
        for name, held in records.items():
            if rng.random() < 0.99:
                new.writestr(name, bytes(held))
    return stream.getvalue()


# ---------------------------------------------------------------------- what comes of it

_events: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is not None and event.startswith(FORBIDDEN):
        _events.append(f"{event} {arguments!r:.100}")


_noting: list[bool] = []


def outcome(seed: int, patience: float | None = None) -> tuple[str, bool]:
    """What comes of loading file number `seed`, and whether that is in order. patience: seconds after which the process is ended."""
    global _events
    if not _noting:
        for name in ("latin1", "ascii", "utf-8"):  # which texts in files may have
            codecs.lookup(name)
        sys.addaudithook(_note)
        _noting.append(True)
    content = damaged(seed)
    if patience is not None:
        faulthandler.dump_traceback_later(patience, exit=True)
    _events = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(io.BytesIO(content))
            said, good = "loaded", True
    except ANSWERS as error:
        said, good = f"{type(error).__name__}: {str(error)[-300:]}", True
    except ValueError as error:
        said, good = f"ValueError: {error}", str(error).startswith("Unknown endianness type")
    except BaseException as error:
        said, good = f"{type(error).__name__}: {error!r:.200}", False
    events, _events = _events, None
    if patience is not None:
        faulthandler.cancel_dump_traceback_later()
    if events:
        return f"ran code: {events[0]}", False
    return _used(found) if said == "loaded" else (said, good)


def _used(found: Any) -> tuple[str, bool]:
    """What comes of reading the tensors that were loaded."""
    waiting, seen = [found], 0
    while waiting and seen < 1000:
        x, seen = waiting.pop(), seen + 1
        if isinstance(x, torch.Tensor):
            if x.numel() < 10**5 and x.dim() and len(x.tolist()) != len(x):
                return f"a tensor of other elements than it says: {tuple(x.shape)}", False
        elif isinstance(x, dict):
            waiting += x.values()
        elif isinstance(x, (list, tuple)):
            waiting.extend(x)
    return "loaded", True


def limit_memory(more: int = 4 << 30) -> None:
    """Let this process take no more than so many bytes beyond what it has."""
    import resource

    with open("/proc/self/statm") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + more, has + more))
