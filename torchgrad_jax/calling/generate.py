"""From the declared operators: `torch.X`, `Tensor.X`, the in-place `X_`, `out=`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torchgrad_jax.calling.out import check_out, check_same_dtype, write_out
from torchgrad_jax.calling.overrides import Public, announce, guard
from torchgrad_jax.calling.return_types import return_type
from torchgrad_jax.calling.understood import Understood, is_tensor, written_by
from torchgrad_jax.core.called import binary, unary
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.hot import Writing, writing_method
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY, Operator
from torchgrad_jax.runtime.keeping import Memo

_OF_TWO = (["Tensor", "Tensor|Scalar"], ["Tensor", "Tensor"], ["Tensor|Scalar", "Tensor|Scalar"])


def function_of(operator: Operator, name: str | None = None) -> Callable[..., Any]:
    """The function of a declared operator; with a dotted name it is a public one, which looks for overrides."""
    public = None if name is None else Public(name)
    general = _general(operator, public)
    parameters = operator.schema.parameters
    made = general
    if operator.results is None and operator.order is None and all(p.default is not None for p in parameters):
        kinds = [p.type for p in parameters]
        if kinds == ["Tensor"]:
            made = unary(operator.bind((ARRAY,)), operator.name, general)
        elif kinds in _OF_TWO:
            made = binary(operator.bind((ARRAY, ARRAY)), operator.name, general, kinds[1] != "Tensor")
    made.__doc__ = _docstring(operator, operator.schema.text)
    if public is not None:
        announce(made, public)
    return made


def _general(operator: Operator, public: Public | None) -> Callable[..., Any]:
    named = _result_type(operator)
    kinds = [p.type for p in operator.schema.parameters]
    if named is not None or operator.order is not None:
        return _of_any(operator, named, public)
    if kinds[:1] == ["Tensor"] and not any(p.is_tensor or p.is_number for p in operator.schema.parameters[1:]):
        return _of_one_tensor(operator, public)
    return _of_any(operator, named, public)


def _of_one_tensor(operator: Operator, public: Public | None) -> Callable[..., Any]:
    """An operator of one tensor and static arguments: each combination of arguments that was used once has a function of its own, since
    working out what arguments mean costs more than the operation."""
    any_arguments = _of_any(operator, None, public)
    known = Memo()

    def call(*args: Any, **kwargs: Any) -> Any:
        rest = args[1:]
        try:
            # 1, 1.0 and True are equal, but not the same argument.
            key = (rest, *map(type, rest), *kwargs.items(), *map(type, kwargs.values())) if kwargs else (rest, *map(type, rest))
            found = known.get(key)
        except TypeError:  # a list, or something else that has no hash
            return any_arguments(*args, **kwargs)
        if found is not None and args:
            return found(args[0])
        made = any_arguments(*args, **kwargs)
        if args and type(args[0]) is Tensor and "out" not in kwargs and not any(isinstance(a, Tensor) for a in (*rest, *kwargs.values())):
            with contextlib.suppress(TypeError):  # names that only the guard understands
                bound, _ = operator.parse(args, kwargs, is_tensor)
                known.keep(key, unary(bound, operator.name, lambda t, rest=rest, kwargs=kwargs: any_arguments(t, *rest, **kwargs)))
        return made

    call.__name__ = call.__qualname__ = operator.name
    return call


def _of_any(operator: Operator, named: Any, public: Public | None) -> Callable[..., Any]:
    understood = Understood(operator)

    def call(*args: Any, **kwargs: Any) -> Any:
        out: Any = kwargs.pop("out", None) if operator.out else None
        if out is not None:
            if operator.out == "dtype":
                kwargs["dtype"] = _computed_in(kwargs.get("dtype"), out)
            check_out(operator.name, (*args, *kwargs.values(), *(out if isinstance(out, (tuple, list)) else (out,))))
        bound, operands = understood(args, kwargs)
        outs: Any = apply(bound, operands)
        if named is not None:
            outs = named(outs)
        if out is None:
            return outs
        if operator.out == "same" and not (operands[0].is_complex() and not outs.is_complex()):  # parts of complex numbers are converted
            check_same_dtype(out, outs)
        return write_out(operator.name, out, outs, inputs=operands if operator.elementwise else ())

    call.__name__ = call.__qualname__ = operator.name
    call.schema = operator.schema  # type: ignore[attr-defined] - which names the function knows
    return call if public is None else guard(call, public)


def _computed_in(dtype: Any, out: Tensor) -> Any:
    """The dtype that is computed in where `out` says it. RuntimeError where another one is asked for."""
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {dtype.word}, but got {out.dtype.word} instead")
    return out.dtype


def _result_type(operator: Operator) -> Any:
    if operator.results is None:
        return None
    return return_type(operator.name, operator.results)


def inplace_of(operator: Operator, name: str) -> Callable[..., Tensor]:
    """The twin of a declared operator that writes its result into `self`, by its dotted name."""
    public = Public(name)
    write: Any = written_by(Understood(operator))
    write.schema = operator.schema  # which names the function knows
    write.__name__ = write.__qualname__ = name.rpartition(".")[2]
    write.__doc__ = _docstring(operator, f"In-place version of `{write.__name__[:-1]}`. ")
    kinds = [p.type for p in operator.schema.parameters]
    if kinds not in _OF_TWO:
        return guard(write, public)
    return writing_of_two(write, public, operator, (Tensor,) if kinds[1] == "Tensor" else (Tensor, float, int))


def writing_of_two(write: Any, public: Public, operator: Operator, taken: tuple[type, ...] = (Tensor, float, int)) -> Callable[..., Tensor]:
    """An in-place function that carries out `operator` of the tensor and one operand of these types by itself, and is `write` else."""
    return announce_writing(write, public, Writing(operator.bind((ARRAY, ARRAY)), guard(write, public), float in taken))


# What the public methods in place of two operands do, for the operators that do the same (`x += y`).
writings: dict[Any, Writing] = {}


def announce_writing(write: Any, public: Public, writing: Writing) -> Callable[..., Tensor]:
    """The public method of an operation in place; `write` has its name and words."""
    call = writing_method(writing)
    call.__name__, call.__qualname__, call.__doc__ = write.__name__, write.__qualname__, write.__doc__
    announce(call, public)
    writings[call] = writing
    return call


def _docstring(operator: Operator, lead: str) -> str:
    return f"{lead}\n\n{operator.__doc__ or ''}"
