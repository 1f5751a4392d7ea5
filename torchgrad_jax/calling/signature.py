"""A signature as the table tells it: ``sum(Tensor input, int[1]? dim, bool keepdim = False, *, dtype dtype = None, Tensor out = None)``.

Types: Tensor, Tensor|Scalar (a tensor, or a number in its place), Tensor[], Scalar, int, float, bool, str, int[], int[n] (one number stands for n),
float[], Scalar[], dtype, device, layout, memory_format, Generator, any, truth and bool! (what can be asked whether it is true; and
is a bool then), and .name: what has that attribute. `?` after a type allows None, and so does the default None.
"""

from __future__ import annotations

from typing import NamedTuple

_WORDS = {
    "Scalar": "Number", "Tensor|Scalar": "Tensor", "int[]": "tuple of ints", "Tensor[]": "tuple of Tensors", "float[]": "tuple of floats",
    "Scalar[]": "tuple of Scalars", "dtype": "torch.dtype", "device": "torch.device", "layout": "torch.layout",
    "memory_format": "torch.memory_format", "Generator": "torch.Generator", "bool!": "bool",
}  # fmt: skip
# NumPy's names of parameters, which PyTorch takes as well as its own.
_NUMPY_NAMES = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("x", "a", "x1"), "other": ("x2",)}


class Parameter(NamedTuple):
    """One parameter. width: of how many equal numbers one stands for all, else 0; default: as text, None where an argument is required."""

    name: str
    kind: str
    width: int
    takes_none: bool
    default: str | None
    keyword_only: bool

    @property
    def word(self) -> str:
        """What PyTorch's errors call the type."""
        return _WORDS.get(self.kind, self.kind)

    @property
    def numpy_names(self) -> tuple[str, ...]:
        """Other names that a keyword may have."""
        return _NUMPY_NAMES.get(self.name, ())

    def __str__(self) -> str:
        return f"{self.word} {self.name}" + ("" if self.default is None else f" = {self.default}")


class Signature:
    """One way to call a function. `deprecated`: PyTorch takes it and warns, but does not list it."""

    __slots__ = ("parameters", "by_name", "most_positional", "fewest", "deprecated", "gathers")

    def __init__(self, text: str, deprecated: bool = False) -> None:
        parameters: list[Parameter] = []
        keyword_only = False
        for part in parts(text):
            if part[0] == "*":
                keyword_only = True
            else:
                parameters.append(_parameter(part, keyword_only))
        self.parameters = tuple(parameters)
        self.by_name = {p.name: p for p in parameters}
        self.most_positional = sum(not p.keyword_only for p in parameters)
        self.fewest = sum(p.default is None for p in parameters)
        self.deprecated = deprecated
        # ``view(2, 3)`` means ``view((2, 3))``.
        self.gathers = self.most_positional == 1 and parameters[0].kind == "int[]"

    def __str__(self) -> str:
        shown = [str(p) for p in self.parameters]
        if self.most_positional < len(shown):
            shown.insert(self.most_positional, "*")
        return f"({', '.join(shown)})"


def _parameter(part: str, keyword_only: bool) -> Parameter:
    head, equals, default = part.partition(" = ")
    kind, _, name = head.rpartition(" ")
    takes_none = kind.endswith("?") or default == "None"
    kind = kind.removesuffix("?")
    width = 0
    if "[" in kind and not kind.endswith("[]"):
        kind, _, size = kind.partition("[")
        kind, width = f"{kind}[]", int(size[:-1])
    return Parameter(name, kind, width, takes_none, default if equals else None, keyword_only)


def parts(text: str) -> list[str]:
    """The parameters of a signature, each as text."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    return [p for p in [*found, text[start:].strip()] if p]
