"""Zip archives as PyTorch writes them: records that are not compressed and begin at multiples of 64 bytes, so that they can be mapped into memory.

The format is PKWARE's APPNOTE 6.3, with its 64-bit extension.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_UTF8 = 0x800
# Deflate makes at most 1032 bytes of one.
_MOST_SHRUNK = 1032
# Midnight of 1 January 1980: the same content gives the same file.
_TIME, _DATE = 0, 0x21

_ADVICE = (
    " If you are seeing this error, there is a high likelihood that your checkpoint file is corrupted. This can happen if the checkpoint was not "
    "saved properly, was transferred incorrectly, or the file was modified after saving."
)


def broken(what: str) -> NoReturn:
    """RuntimeError in PyTorch's words."""
    raise RuntimeError(f"PytorchStreamReader failed {what}. This is an internal miniz error.{_ADVICE}")


class Writer:
    """Writes records one behind the other by `write`, which takes bytes: nothing is sought, so pipes will do."""

    def __init__(self, write: Callable[[Any], Any], folder: str, alignment: int, with_crc: bool) -> None:
        self._write, self._folder, self._alignment, self._with_crc = write, folder, alignment, with_crc
        self._at = 0
        self._entries: list[bytes] = []

    def _put(self, content: Any) -> None:
        self._write(content)
        self._at += memoryview(content).nbytes

    def record(self, name: str, content: Any) -> None:
        """Write a record. content: bytes or an array of them; a number stands for so many bytes of zero."""
        path = f"{self._folder}/{name}".encode()
        size = content if isinstance(content, int) else memoryview(content).nbytes
        crc = 0 if isinstance(content, int) or not self._with_crc else zlib.crc32(content)
        begin = self._at
        large = struct.pack("<2H2Q", 1, 16, size, size) if size >= _FULL32 else b""
        short = min(size, _FULL32)
        padding = -(begin + _LOCAL.size + len(path) + len(large) + 4) % self._alignment
        extra = large + b"FB" + struct.pack("<H", padding) + b"Z" * padding
        flags = (20, _UTF8, 0, _TIME, _DATE, crc, short, short, len(path))
        self._put(_LOCAL.pack(b"PK\3\4", *flags, len(extra)) + path + extra)
        if isinstance(content, int):
            for done in range(0, size, 2**20):
                self._put(bytes(min(2**20, size - done)))
        else:
            self._put(content)
        far = (size, size, begin) if max(size, begin) >= _FULL32 else ()
        extra = struct.pack("<2H3Q", 1, 24, *far) if far else b""
        ends = (short if not far else _FULL32,) * 2
        header = (20, 20, _UTF8, 0, _TIME, _DATE, crc, *ends, len(path), len(extra), 0, 0, 0, 0, _FULL32 if far else begin)
        self._entries.append(_CENTRAL.pack(b"PK\1\2", *header) + path + extra)

    def close(self) -> None:
        """Write the directory, which is last."""
        begin, count = self._at, len(self._entries)
        self._put(b"".join(self._entries))
        size = self._at - begin
        if count >= _FULL16 or begin >= _FULL32 or size >= _FULL32:
            at = self._at
            self._put(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, begin) + _LOCATOR.pack(b"PK\6\7", 0, at, 1))
        short = min(count, _FULL16)
        self._put(_END.pack(b"PK\5\6", 0, 0, short, short, min(size, _FULL32), min(begin, _FULL32), 0))


class _Entry(NamedTuple):
    method: int
    stored: int  # bytes in the file
    size: int  # bytes of the record
    header: int  # where it begins


class Reader:
    """Reads records of a file that can be sought. The folder that all of them are in is left out of their names.

    What the file says of itself is believed only as far as the file goes: RuntimeError where it ends before a record does.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        if not isinstance(self._size, int):  # not all that is like a file says where it is
            self._size = file.tell()
        if self._size < _END.size:
            broken("reading zip archive: not a ZIP archive")
        self._entries = self._directory()
        if not self._entries:
            broken("reading zip archive: archive does not contain any files")
        self.folder = next(iter(self._entries)).partition("/")[0]

    def _at(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset + size > self._size:
            broken("reading zip archive: file too small")
        self._file.seek(offset)
        found = self._file.read(size)
        if len(found) != size:
            broken("reading zip archive: file read failed")
        return found

    def _directory(self) -> dict[str, _Entry]:
        length = min(self._size, _END.size + _FULL16)
        tail = self._at(self._size - length, length)
        at = tail.rfind(b"PK\5\6")
        if at < 0 or at + _END.size > length:
            broken("reading zip archive: failed finding central directory")
        _, _, _, _, count, size, begin, _ = _END.unpack_from(tail, at)
        before = at - _LOCATOR.size
        if before >= 0 and tail[before : before + 4] == b"PK\6\7":
            found = self._at(_LOCATOR.unpack_from(tail, before)[2], _END64.size)
            if found[:4] == b"PK\6\6":
                _, _, _, _, _, _, _, count, size, begin = _END64.unpack(found)
        content = self._at(begin, size)
        entries: dict[str, _Entry] = {}
        offset = 0
        for _ in range(count):
            if offset + _CENTRAL.size > size or content[offset : offset + 4] != b"PK\1\2":
                broken("reading zip archive: invalid header or archive is corrupted")
            fields = _CENTRAL.unpack_from(content, offset)
            method, stored, full, name_size, extra_size, comment_size, header = (*fields[4:5], *fields[8:13], fields[16])
            offset += _CENTRAL.size
            name = content[offset : offset + name_size].decode("utf-8", "replace")
            extra = content[offset + name_size : offset + name_size + extra_size]
            entries[name] = _Entry(method, *_large(extra, full, stored, header))
            offset += name_size + extra_size + comment_size
        return entries

    def names(self) -> list[str]:
        """What records there are."""
        return [name.partition("/")[2] for name in self._entries]

    def __contains__(self, name: str) -> bool:
        return f"{self.folder}/{name}" in self._entries

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(f"{self.folder}/{name}")
        if entry is None:
            broken(f"locating file {name}: file not found")
        return entry

    def size(self, name: str) -> int:
        """Bytes of a record."""
        return self._entry(name).size

    def place(self, name: str) -> int | None:
        """Where in the file a record begins; None where it is compressed."""
        entry = self._entry(name)
        head = self._at(entry.header, _LOCAL.size)
        if head[:4] != b"PK\3\4":
            broken(f"reading file {name}: invalid header or archive is corrupted")
        begin = entry.header + _LOCAL.size + sum(_LOCAL.unpack(head)[-2:])
        if begin + entry.stored > self._size:
            broken(f"reading file {name}: file too small")
        if entry.method == 0 and entry.stored != entry.size:
            broken(f"reading file {name}: invalid header or archive is corrupted")
        return begin if entry.method == 0 else None

    def read(self, name: str) -> np.ndarray:
        """The bytes of a record, nobody else's."""
        entry, begin = self._entry(name), self.place(name)
        if begin is None:
            return np.frombuffer(self._inflated(name, entry), np.uint8)
        found = np.empty(entry.size, np.uint8)
        self._file.seek(begin)
        if not entry.size:
            return found
        if not hasattr(self._file, "readinto"):
            found[:] = np.frombuffer(self._at(begin, entry.size), np.uint8)
        elif self._file.readinto(found.data) != entry.size:
            broken(f"reading file {name}: file read failed")
        return found

    def _inflated(self, name: str, entry: _Entry) -> bytearray:
        if entry.method != 8:
            broken(f"reading file {name}: unsupported compression method")
        if entry.size > _MOST_SHRUNK * entry.stored:
            broken(f"reading file {name}: decompression failed")
        compressed = self._at(self._place_of(entry), entry.stored)
        try:
            found = zlib.decompressobj(-15).decompress(compressed, entry.size + 1)
        except zlib.error:
            broken(f"reading file {name}: decompression failed")
        if len(found) != entry.size:
            broken(f"reading file {name}: decompression failed")
        return bytearray(found)

    def _place_of(self, entry: _Entry) -> int:
        return entry.header + _LOCAL.size + sum(_LOCAL.unpack(self._at(entry.header, _LOCAL.size))[-2:])


def _large(extra: bytes, size: int, stored: int, header: int) -> tuple[int, int, int]:
    """Stored size, size and place of an entry, of which what does not fit into 32 bits is in an extra field."""
    wanted = [size, stored, header]
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == 1:
            numbers = list(struct.unpack_from(f"<{min(length, len(extra) - at) // 8}Q", extra, at))
            wanted = [numbers.pop(0) if n == _FULL32 and numbers else n for n in wanted]
        at += length
    size, stored, header = wanted
    return stored, size, header
