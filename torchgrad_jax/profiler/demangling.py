"""Names of C++ functions as traces have them, made readable: nested names and parameters of the built-in types.

What is more than that (templates, substitutions) stays as it is, as the usual tools leave what they do not understand.
"""

from __future__ import annotations

_TYPES = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short", "t": "unsigned short", "i": "int",
    "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long", "f": "float", "d": "double",
    "e": "long double", "z": "...",
}  # fmt: skip
_AROUND = {"P": "*", "R": "&", "O": "&&", "K": " const"}


class _Unknown(Exception):
    """Something that is not understood."""


def demangled(name: str) -> str:
    """``foo::bar(int)`` for ``_ZN3foo3barEi``; a name that is no mangled one as it is."""
    if not name.startswith("_Z"):
        return name
    try:
        function, rest = _name(name[2:])
        return f"{function}({', '.join(_parameters(rest))})" if rest else function
    except (_Unknown, IndexError):
        return name


def _name(text: str) -> tuple[str, str]:
    if not text.startswith("N"):
        return _identifier(text)
    parts, text = [], text[1:]
    while not text.startswith("E"):
        part, text = _identifier(text)
        parts.append(part)
    return "::".join(parts), text[1:]


def _identifier(text: str) -> tuple[str, str]:
    digits = len(text) - len(text.lstrip("0123456789"))
    if not digits:
        raise _Unknown
    end = digits + int(text[:digits])
    if end > len(text):
        raise _Unknown
    return text[digits:end], text[end:]


def _parameters(text: str) -> list[str]:
    found = []
    while text:
        kind, text = _type(text)
        found.append(kind)
    return [] if found == ["void"] else found


def _type(text: str) -> tuple[str, str]:
    first = text[0]
    if first in _AROUND:
        inner, rest = _type(text[1:])
        return inner + _AROUND[first], rest
    if first in _TYPES:
        return _TYPES[first], text[1:]
    return _name(text)
