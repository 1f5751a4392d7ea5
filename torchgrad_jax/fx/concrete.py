"""Arguments that have their values while a program is recorded, and those that are containers of proxies."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from torchgrad_jax.fx.code import PyTreeCodeGen, PyTreeInfo
from torchgrad_jax.fx.naming import PACKAGE, found_in_torch
from torchgrad_jax.lifting.trees import tree_flatten, tree_map, tree_unflatten
from torchgrad_jax.runtime.user_code import warn_user


class PHBase:
    """In `concrete_args`, says what stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """`PH` with a name for the input."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


def _assert_is_none(value: Any, msg: str) -> None:
    """AssertionError unless the value is None."""
    assert value is None, msg


_assert_is_none.__module__ = f"{PACKAGE}.fx._symbolic_trace"


def concrete_placeholders(tracer: Any, names: list[str], signature: inspect.Signature, concrete: dict[str, Any] | None) -> list[Any]:
    """What each parameter is while the program is recorded: a proxy, or the value that `concrete` has for it, which is then checked by the graph."""
    return [_placeholder(tracer, name, signature.parameters.get(name), concrete) for name in names]


def _placeholder(tracer: Any, name: str, parameter: inspect.Parameter | None, concrete: dict[str, Any] | None) -> Any:
    if concrete is not None and name in concrete:
        count = [0]

        def replace(value: Any) -> Any:
            count[0] += 1
            return _settled(tracer, name, f"{name}_{count[0]}", value, parameter)

        return tree_map(replace, concrete[name])
    default = () if parameter is None or parameter.default is inspect.Parameter.empty else (parameter.default,)
    annotation = None if parameter is None or parameter.annotation is inspect.Parameter.empty else parameter.annotation
    return tracer.create_proxy("placeholder", name, default, {}, type_expr=meant(annotation, tracer.function_globals))


def meant(annotation: Any, names: dict[str, Any]) -> Any:
    """A type as graphs have it. Modules of the library are written with types as text, and with `Any` where PyTorch's have none."""
    if isinstance(annotation, str) and str(names.get("__name__")).startswith(f"{PACKAGE}."):
        annotation = eval(annotation, names)
        return None if annotation is Any else annotation
    return annotation


def _settled(tracer: Any, name: str, own: str, value: Any, parameter: inspect.Parameter | None) -> Any:
    default = () if parameter is None or parameter.default is inspect.Parameter.empty else (parameter.default,)
    proxy = tracer.create_proxy("placeholder", own, default, {})
    if isinstance(value, PHBase):
        return proxy
    if type(value) is bool or isinstance(value, (int, float, str)):
        message = f"{name} has been specialized to have value {value} but got another value"
        equal = tracer.create_proxy("call_function", operator.eq, (proxy, value), {})
        tracer.create_proxy("call_function", found_in_torch("torch._assert"), (equal, message), {})
    elif value is None:
        message = f"{name} has been specialized to have value None but got another value"
        tracer.create_proxy("call_function", _assert_is_none, (proxy, message), {})
    else:
        warn_user(
            f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the user to make sure that your "
            "inputs match the inputs you specialized the function with.",
            UserWarning,
        )
    return value


def structured(
    tracer: Any, fn: Callable[..., Any], names: list[str], args: list[Any], is_module: bool, concrete: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """The function of what its arguments contain, whose graph is written as a function of the containers."""
    own = args[:1] if is_module else []
    inputs = args[len(own) :]
    leaves, spec = tree_flatten(inputs)
    info = PyTreeInfo(names[: len(inputs)], spec, None)

    def flattened(*given):  # type: ignore[no-untyped-def] - the graph would be given its types
        whole = tree_unflatten(list(given), spec)
        result, out_spec = tree_flatten(fn(*own, *whole))
        tracer.graph._codegen.pytree_info = tracer.graph._codegen.pytree_info._replace(out_spec=out_spec)
        return result

    tracer.graph.set_codegen(PyTreeCodeGen(info))
    return flattened, leaves
