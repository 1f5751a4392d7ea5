"""The calls of the sweep, as text: from each signature one call that PyTorch takes, and from this the calls of each category."""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from compat_suite.calls.operands import OPERANDS, Operands

CATEGORIES = ("keywords", "types", "out", "strides", "dtypes")
# What may stand where a type is asked for: tried in turn until PyTorch takes the call.
_TENSORS = ("A", "P", "V", "J", "I", "M", "C", "T", "B", "Q", "S", "PIVOTS", "R")
_FILLINGS: dict[str, tuple[str, ...]] = {
    "Scalar": ("2", "0.5"), "int": ("1", "0", "2", "3"),
    "int[]": ("(0,)", "(0, 1)", "(3, 3)", "(1, 1)", "(9,)", "(2, 1)", "(2, 3, 4)", "(2, 2)", "(0, 1, 2, 3)"),
    "float": ("0.5", "2.0"), "bool": ("True", "False"), "str": ("'L'", "'ij,jk->ik'", "'reflect'"), "dtype": ("torch.float64", "torch.int64"),
    "Tensor[]": ("[A, A]", "[V, V]", "[T, T]", "[I]", "[S]"), "device": ("'cpu'",), "layout": ("torch.strided",),
    "memory_format": ("torch.contiguous_format", "torch.preserve_format"), "Generator": ("None", "torch.Generator()"),
    "float[]": ("(0.5, 2.0)", "(0.5,)"),
    "Scalar[]": ("(1, 2, 3)",), "any": (*_TENSORS, "1", "2", "(3, 3)", "0.5", "[A, A]", "[I]", "'ij,jk->ik'", "(1, 1)"),
}  # fmt: skip
_INDICES = ("I", "J", "I", "torch.tensor(0)", "torch.zeros(2, 3, 4, dtype=torch.int64)", "PIVOTS")
_BY_NAME: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("index", "indices", "target", "sorter", "tensor_indices_or_sections"), (*_INDICES, *_TENSORS)), "mask": ("M",),
    "weight": ("None", *_TENSORS), "callable": ("lambda *a: a[0]",), "fill_value": ("2", "0.5"), "cls": ("torch.Tensor",),
    "ndarray": ("np.ones((3, 3), np.float32)",),
}  # fmt: skip
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
WRONG = ("None", "'x'", "1.5", "2", "True", "[1.5]", "[1, 'x']", "A", "[A]", "torch.float32", "np.float32(1.5)", "np.int64(1)", "np.ones(2)", "1j",
         "object()", "S", "torch.tensor(1)", "int", "{}", "slice(1)")  # fmt: skip
# NumPy's names that PyTorch's binding takes beside its own.
NUMPY_NAMES = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("x", "a", "x1"), "other": ("x2",)}
_MOST_TRIED = 3000
# Arguments of functions whose required ones alone make no call, or which want operands that suit each other.
_GIVEN: dict[str, str] = {
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_"), "input=A, min=0.5"), "cartesian_prod": "V, V", "chain_matmul": "A, A", "meshgrid": "V, V",
    "einsum": "'ij,jk->ik', A, A", "avg_pool1d": "input=T, kernel_size=2", "max_pool1d": "input=T, kernel_size=2",
    "max_pool1d_with_indices": "input=T, kernel_size=2", "affine_grid_generator": "theta=torch.ones(1, 2, 3), size=(1, 1, 2, 2), align_corners=False",
    "conv3d": "input=torch.ones(1, 1, 3, 3, 3), weight=torch.ones(1, 1, 2, 2, 2)", "conv_transpose1d": "input=T, weight=torch.ones(3, 2, 2)",
    "conv_transpose3d": "input=torch.ones(1, 1, 3, 3, 3), weight=torch.ones(1, 1, 2, 2, 2)",
    **dict.fromkeys(("index_put", "index_put_"), "input=A, indices=(J,), values=torch.ones(3, 3)"), "index_add_": "input=A, dim=0, index=J, source=A",
    **dict.fromkeys(("index_reduce", "index_reduce_"), "input=A, dim=0, index=J, source=A, reduce='amax'"), "lu": "A",
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_"), "input=A, dim=0, index=I, src=A, reduce='sum'"), "unique": "A",
    "unique_consecutive": "A", "grid_sampler": "input=Q, grid=torch.ones(2, 2, 2, 2), interpolation_mode=0, padding_mode=0, align_corners=False",
    "grid_sampler_2d": "input=Q, grid=torch.ones(2, 2, 2, 2), interpolation_mode=0, padding_mode=0, align_corners=False",
    "float_power_": "input=D, exponent=2", "backward": "input=torch.ones((), requires_grad=True)", "unflatten": "input=A, dim=0, sizes=(3, 1)",

    "register_hook": "input=torch.ones(2, requires_grad=True), hook=print", "retain_grad": "input=torch.ones(2, requires_grad=True)",
    "register_post_accumulate_grad_hook": "input=torch.ones(2, requires_grad=True), hook=print", "tensorinv": "torch.eye(6).reshape(6, 2, 3), ind=1",
    "matrix_norm": "A", "interpolate": "input=Q, scale_factor=2", "upsample": "input=Q, scale_factor=2",
    "upsample_bilinear": "input=Q, scale_factor=2",
    "upsample_nearest": "input=Q, scale_factor=2", "grid_sample": "input=Q, grid=torch.ones(2, 2, 2, 2)",
    "affine_grid": "theta=torch.ones(1, 2, 3), size=(1, 1, 2, 2)",
    **dict.fromkeys(("adaptive_max_pool1d",), "input=T, output_size=2"), **dict.fromkeys(("adaptive_max_pool2d",), "input=Q, output_size=2"),
    "max_pool2d": "input=Q, kernel_size=2", "max_pool3d": "input=torch.ones(1, 2, 4, 4, 4), kernel_size=2",
    "adaptive_max_pool3d": "input=torch.ones(1, 2, 4, 4, 4), output_size=2",
}  # fmt: skip


@dataclass
class Parameter:
    """One parameter of a signature."""

    kind: str
    name: str
    default: str | None
    keyword: bool


@dataclass
class Signature:
    """One way to call a function."""

    function: str
    parameters: list[Parameter] = field(default_factory=list)

    @property
    def method(self) -> bool:
        """Whether it is a method of Tensor."""
        return self.function.startswith("Tensor.")


def parsed(line: str) -> Signature:
    """The signature that a line of the table tells."""
    function, _, rest = line.partition("(")
    found, keyword = Signature(function), False
    depth, start, text = 0, 0, rest[:-1] + ","
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c != "," or depth:
            continue
        part, start = text[start:i].strip(), i + 1
        if part.startswith("*"):
            keyword = True
        elif part:
            head, equals, default = part.partition(" = ")
            kind, _, name = head.rpartition(" ")
            found.parameters.append(Parameter(kind, name, default if equals else None, keyword))
    return found


@dataclass
class Call:
    """A call as text, in parts that can be exchanged."""

    signature: Signature
    receiver: str | None
    arguments: dict[str, str]

    def text(self, arguments: dict[str, str] | None = None, by_name: bool = False, receiver: str | None = None, extra: str = "") -> str:
        """The expression; positionally unless `by_name`."""
        arguments = self.arguments if arguments is None else arguments
        keyword_only = {p.name for p in self.signature.parameters if p.keyword}
        parts, named = [], by_name
        order = {p.name: i for i, p in enumerate(self.signature.parameters)}
        for name, value in arguments.items():
            position = order.get(name, 99)
            named = not name.startswith("*") and (named or name in keyword_only or position != len(parts))
            parts.append(f"{name}={value}" if named else value)
        if extra:
            parts.append(extra)
        root = f"{receiver or self.receiver}.{self.signature.function[7:]}" if self.signature.method else f"torch.{self.signature.function}"
        return f"{root}({', '.join(parts)})"


def _choices(p: Parameter) -> tuple[str, ...]:
    kind = p.kind.rstrip("?")
    named = _BY_NAME.get(p.name)
    if named is not None and (kind in ("Tensor", "any", "Scalar")):
        return named if p.name != "weight" or p.default is None else _TENSORS
    if kind.startswith("int["):
        return _FILLINGS["int[]"]
    return _TENSORS if kind == "Tensor" else _FILLINGS.get(kind, ("A",))


def base_call(signature: Signature) -> Call | None:
    """A call of the required parameters alone that PyTorch takes."""
    given = _GIVEN.get(signature.function.rpartition(".")[2])
    if given is not None:
        return _given(signature, given)
    required = [p for p in signature.parameters if p.default is None]
    receivers = _TENSORS if signature.method else (None,)
    choices = [receivers, *map(_choices, required)]

    def alike(combination: tuple[Any, ...]) -> int:
        return len({c for c in combination if c in OPERANDS}) or 9

    combinations = list(itertools.islice(itertools.product(*choices), 20 * _MOST_TRIED))
    # Most functions take tensors that are alike.
    for receiver, *values in sorted(combinations, key=alike)[:_MOST_TRIED]:
        call = Call(signature, receiver, {p.name: v for p, v in zip(required, values, strict=True)})
        if works(call.text()):
            return call
    return None


def _given(signature: Signature, given: str) -> Call | None:
    """The call with the arguments given for the function by hand, as far as this signature has them."""
    tree: Any = ast.parse(f"f({given})", mode="eval").body
    values = [ast.unparse(v) for v in tree.args]
    arguments = {str(k.arg): ast.unparse(k.value) for k in tree.keywords}
    receiver = (arguments.pop("input", None) or values.pop(0)) if signature.method else None
    positional = [p.name for p in signature.parameters if not p.keyword and not p.name.startswith("*")]
    arguments = {positional[i] if i < len(positional) else f"*{i}": v for i, v in enumerate(values)} | arguments
    call = Call(signature, receiver, arguments)
    return call if works(call.text()) else None


def works(text: str) -> bool:
    """Whether PyTorch performs the call."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(text, {}, Operands(torch))
    except Exception:
        return False
    return True


def calls_of(call: Call, category: str) -> Iterator[str]:
    """The calls of a category that are made from a base call."""
    yield from {"keywords": _keywords, "types": _types, "out": _outs, "strides": _strides, "dtypes": _dtypes}[category](call)


def _keywords(call: Call) -> Iterator[str]:
    yield call.text(by_name=True)
    for p in call.signature.parameters:
        if p.name == "out":
            continue
        value = call.arguments.get(p.name)
        choices = [value] if value is not None else _choices(p)[:3]
        for choice in choices:
            given = {**call.arguments, p.name: choice}
            if value is None:
                yield call.text(given)
            for other in NUMPY_NAMES.get(p.name, ()):
                renamed = {other if n == p.name else n: v for n, v in given.items()}
                yield call.text(renamed, by_name=True)
    yield call.text(by_name=True, extra="unknown=1")
    if call.arguments:
        first = next(iter(call.arguments))
        yield call.text(extra=f"{first}={call.arguments[first]}")


def _types(call: Call) -> Iterator[str]:
    for p in call.signature.parameters:
        for wrong in WRONG:
            yield call.text({**call.arguments, p.name: wrong})
    names = list(call.arguments)
    for i in range(len(names)):
        yield call.text({n: call.arguments[n] for n in names[:i]})
    yield (
        call.text(extra=", ".join(["1"] * (len(call.signature.parameters) + 1 - len(names))))
        if not any(p.keyword for p in call.signature.parameters if p.name in names)
        else call.text(by_name=True)
    )


_OUTS = {
    "Tensor": ("E", "torch.empty(0, dtype=torch.int64)", "torch.empty(0, dtype=torch.bool)", "torch.empty(0, dtype=torch.float64)",
               "torch.empty(0, dtype=torch.complex64)", "torch.empty(5)", "torch.empty(3, 3)", "torch.empty(4, 4)[1:]", "torch.empty(6, 6)[::2, ::2]",
               "torch.empty(3, 3).t()", "torch.empty(1, 3).expand(3, 3)", "torch.empty(3, 3, requires_grad=True)", "None", "1", "[A]"),
    "Tensor[]": ("(E, torch.empty(0, dtype=torch.int64))", "(E, E)", "(E, torch.empty(0))", "(torch.empty(0, dtype=torch.int64), E)",
                 "(torch.empty(5), torch.empty(7, dtype=torch.int64))", "(torch.empty(0), torch.empty(0), torch.empty(0))", "E", "None", "[E]"),
}  # fmt: skip


def _outs(call: Call) -> Iterator[str]:
    out = next((p for p in call.signature.parameters if p.name == "out"), None)
    if out is None:
        return
    for value in _OUTS.get("Tensor" if out.kind == "any" else out.kind, ()):
        yield call.text(extra=f"out={value}")
    for name, value in call.arguments.items():
        if value in OPERANDS and out.kind != "Tensor[]":
            yield call.text(extra=f"out={value}")
            if OPERANDS[value].find("(3, 3") >= 0:
                yield call.text({**call.arguments, name: f"{value}[:-1]"}, extra=f"out={value}[1:]")


def _strides(call: Call) -> Iterator[str]:
    tensors = [n for n, v in call.arguments.items() if v in OPERANDS]
    if call.receiver is None and not tensors:
        return
    for end in ("_t", "_e", "_c"):

        def turned(value: str | None, end: str = end) -> str | None:
            return f"{value}{end}" if f"{value}{end}" in OPERANDS else value

        everything = {n: turned(v) or v for n, v in call.arguments.items()}
        yield call.text(everything, receiver=turned(call.receiver))
        if len(tensors) + (call.receiver is not None) > 1:
            yield call.text(receiver=turned(call.receiver)) if call.receiver else call.text({**call.arguments, tensors[0]: everything[tensors[0]]})
    if all(call.arguments[n] in ("A", "P", "T", "B", "Q") for n in tensors) and call.receiver in (None, "A", "P", "T", "B", "Q"):
        for form in ("Q", "Q_c", "Q_t", "Q_e"):
            yield call.text({n: form if n in tensors else v for n, v in call.arguments.items()}, receiver=form if call.receiver else None)


def _dtypes(call: Call) -> Iterator[str]:
    """All operands in another dtype, and each alone."""
    tensors = [n for n, v in call.arguments.items() if v in OPERANDS]
    for dtype in DTYPES:
        cast = {n: f"{call.arguments[n]}.to(torch.{dtype})" for n in tensors}
        receiver = f"{call.receiver}.to(torch.{dtype})" if call.receiver in OPERANDS else None
        if receiver or cast:
            yield call.text({**call.arguments, **cast}, receiver=receiver)
        if len(cast) + (receiver is not None) > 1:
            if receiver:
                yield call.text(receiver=receiver)
            for name, value in cast.items():
                yield call.text({**call.arguments, name: value})
