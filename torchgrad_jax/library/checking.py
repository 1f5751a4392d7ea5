"""`torch.library.opcheck`: whether an operator of the user's keeps what it has promised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.overloads import allclose
from torchgrad_jax.library.operators import CustomOperator
from torchgrad_jax.library.registering import operator_of
from torchgrad_jax.lifting.jitting import jit
from torchgrad_jax.lifting.trees import tree_flatten

__all__ = ["OpCheckError", "opcheck"]

_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """An operator does not keep what it has promised."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _TESTS,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Try an operator on arguments: by test "SUCCESS", or what was wrong.

    test_schema: it writes to what its schema says, and to nothing else. test_autograd_registration: gradients that are asked for have a node.
    test_faketensor: results are like those of the function that `register_fake` has, if any. test_aot_dispatch_dynamic: results and gradients are the
    same within `jit`; atol, rtol: how near. raise_exception: whether what is wrong is raised, as OpCheckError.
    """
    operator = operator_of(op)
    results: dict[str, Any] = {}
    for name in (test_utils,) if isinstance(test_utils, str) else test_utils:
        if name not in _CHECKS:
            raise OpCheckError(f"opcheck(op, ...): unknown test {name!r}, expected one of {', '.join(_TESTS)}")
        try:
            _CHECKS[name](operator, args, kwargs or {}, atol, rtol)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)") from error
            results[name] = error
    return results


def _copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    leaves, spec = tree_flatten((args, kwargs))
    return spec.unflatten([x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in leaves])


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_flatten(tree)[0] if isinstance(x, Tensor)]


def _schema(operator: CustomOperator, args: Any, kwargs: Any, *_: Any) -> None:
    assert operator.schema is not None
    copied, named = _copied(args, kwargs)
    positional = [a for a in operator.schema.arguments if not a.keyword_only]
    given = dict(zip([a.name for a in positional], copied, strict=False)) | named
    versions = {name: [t._version for t in _tensors(x)] for name, x in given.items()}
    operator(*copied, **named)
    for a in operator.schema.arguments:
        if a.name in given and not a.mutated and [t._version for t in _tensors(given[a.name])] != versions[a.name]:
            raise RuntimeError(f"Argument {a.name} is not defined as mutable but was mutated")


def _autograd_registration(operator: CustomOperator, args: Any, kwargs: Any, *_: Any) -> None:
    copied, named = _copied(args, kwargs)
    if operator.schema is not None and operator.schema.mutates or not any(t.requires_grad for t in _tensors((copied, named))):
        return
    if not any(t.requires_grad for t in _tensors(operator(*copied, **named))):
        raise AssertionError("the results require no gradient, though arguments do: use register_autograd, or compute them by operators of torch")


def _fake(operator: CustomOperator, args: Any, kwargs: Any, *_: Any) -> None:
    if operator.fake is None:
        return
    copied, named = _copied(args, kwargs)
    real, fake = _tensors(operator(*copied, **named)), _tensors(operator.fake(*copied, **named))
    if [(t.shape, t.dtype) for t in real] != [(t.shape, t.dtype) for t in fake]:
        shown = [[(tuple(t.shape), str(t.dtype)) for t in ts] for ts in (fake, real)]
        raise RuntimeError(f"the function of register_fake gives {shown[0]}, the operator {shown[1]}")


def _jitted(operator: CustomOperator, args: Any, kwargs: Any, atol: float | None, rtol: float | None) -> None:
    found = []
    for call in (operator.__call__, jit(operator.__call__)):
        copied, named = _copied(args, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it may look at values, and so run as it is
            out = _tensors(call(*copied, **named))
        leaves = [t for t in _tensors((copied, named)) if t.requires_grad]
        through = [t.sum() for t in out if t.requires_grad]
        grads = grad(sum(through[1:], through[0]), leaves, allow_unused=True) if through and leaves else ()
        found.append([*out, *[g for g in grads if g is not None]])
    for plain, jitted in zip(*found, strict=True):
        if not allclose(jitted, plain, 1e-5 if rtol is None else rtol, 1e-6 if atol is None else atol, True):
            raise AssertionError(f"within jit it gives {jitted}, and {plain} outside")


_CHECKS: dict[str, Callable[..., None]] = dict(zip(_TESTS, (_schema, _autograd_registration, _fake, _jitted), strict=True))
