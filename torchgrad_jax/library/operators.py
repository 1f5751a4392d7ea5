"""An operator of the user's: its kernels, its gradient, its rule for vmap, and how a call goes through them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax._ops import OpOverload, OpOverloadPacket, ops
from torchgrad_jax.autograd.autocast_mode import autocast, is_autocast_enabled
from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.level import in_transform
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import stack
from torchgrad_jax.library.schema import Schema
from torchgrad_jax.lifting.trees import TreeSpec, tree_flatten
from torchgrad_jax.runtime.recorder import per_thread

# Where a kernel stands that serves every type of device: below autograd, and as what autograd follows.
DEFAULT, COMPOSITE = "default", "composite"
operators: dict[str, CustomOperator] = {}


class Packet(OpOverloadPacket):
    """``torch.ops.namespace.name``, which can be called; its one overload is `default`."""

    def __init__(self, operator: CustomOperator) -> None:
        self.namespace, name = operator.name.split("::")
        super().__init__(name)
        self.key, self.operator = operator.name, operator
        self.default = Overload(self, "default")

    def __getattr__(self, overload: str) -> Any:
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{overload}'")

    def overloads(self) -> list[str]:
        """The names of its overloads."""
        return ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator gives."""
        return self.operator(*args, **kwargs)


class Overload(OpOverload):
    """``torch.ops.namespace.name.default``."""

    packet: Packet  # type: ignore[assignment] - of an operator of the user's

    @property
    def _schema(self) -> Schema | None:
        return self.packet.operator.schema


class _Call(NamedTuple):
    """A call: the operator, its arguments as leaves, of which those at `places` are tensors, and their structure."""

    operator: CustomOperator
    leaves: list[Any]
    places: list[int]
    spec: TreeSpec

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with these in the places of the tensors."""
        leaves = list(self.leaves)
        for place, t in zip(self.places, tensors, strict=True):
            leaves[place] = t
        return self.spec.unflatten(leaves)

    def of_tensors(self, what: Sequence[Any], otherwise: Any) -> tuple[Any, ...]:
        """What belongs to each tensor, in the structure of the positional arguments; `otherwise` in the place of other arguments."""
        leaves = [otherwise] * len(self.leaves)
        for place, x in zip(self.places, what, strict=True):
            leaves[place] = x
        return self.spec.unflatten(leaves)[0]


class _Results(NamedTuple):
    """What a kernel gave, as leaves and structure: its tensors went through autograd by themselves."""

    leaves: list[Any]
    places: list[int]
    spec: TreeSpec

    def with_tensors(self, tensors: Any) -> Any:
        """The results, with these tensors."""
        leaves = list(self.leaves)
        for place, t in zip(self.places, tensors if isinstance(tensors, tuple) else (tensors,), strict=True):
            leaves[place] = t
        return self.spec.unflatten(leaves)


class _Running(threading.local):
    """calls: those under way in this thread whose tensors are within a Function, the innermost last, each with its results once it has them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []


_running = _Running()


def _taken_apart(tree: Any) -> tuple[list[Any], list[int], TreeSpec]:
    leaves, spec = tree_flatten(tree)
    return leaves, [i for i, x in enumerate(leaves) if isinstance(x, Tensor)], spec


class CustomOperator:
    """An operator of the user's.

    schema: None until it is defined. kernels: by type of device, DEFAULT or COMPOSITE; disabled: those that are left out. own_node: whether a call
    that needs gradients gets a node of its own, also without a formula. backward, setup_context, rule: the user's functions. fake: says what results
    are like. autocast: by type of device, what arguments are converted to under autocast. refuses_aliases: whether results may not be arguments.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.schema: Schema | None = None
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.disabled: set[str] = set()
        self.own_node = self.refuses_aliases = False
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.rule: Callable[..., Any] | None = None
        self.fake: Callable[..., Any] | None = None
        self.autocast: dict[str, Any] = {}
        self.packet = Packet(self)
        self._function: type[Function] | None = None

    def define(self, schema: str) -> None:
        """Give it its schema, and its place in `torch.ops`."""
        self.schema = Schema(self.name, schema)
        namespace, name = self.name.split("::")
        vars(getattr(ops, namespace))[name] = self.packet

    # ------------------------------------------------------------------ a call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert self.schema is not None
        args, kwargs = self.schema.bound(args, kwargs)
        leaves, places, spec = _taken_apart((args, kwargs))
        where = next((leaves[i].device.type for i in places), "cpu")
        if self.autocast and where in self.autocast and is_autocast_enabled(where):
            return self._under_autocast(where, leaves, places, spec)
        call = _Call(self, leaves, places, spec)
        if in_transform():
            return self._through_autograd(call)
        if not (self.own_node or self.backward is not None) or COMPOSITE in self.kernels:
            return self.run(where, args, kwargs)
        if per_thread.recorder.grad_enabled and not self.schema.mutates and any(leaves[i].requires_grad for i in places):
            return self._through_autograd(call)
        with no_grad():
            return self.run(where, args, kwargs)

    def _under_autocast(self, where: str, leaves: list[Any], places: list[int], spec: TreeSpec) -> Any:
        dtype = self.autocast[where]
        for i in places:
            if leaves[i].is_floating_point() and leaves[i].dtype.itemsize < 8:
                leaves[i] = leaves[i].to(dtype)
        args, kwargs = spec.unflatten(leaves)
        with autocast(where, enabled=False):
            return self(*args, **kwargs)

    def run(self, where: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the kernel for a type of device gives. NotImplementedError where there is none, RuntimeError for results that are none."""
        kernel = None if where in self.disabled else self.kernels.get(where)
        kernel = kernel or self.kernels.get(DEFAULT) or self.kernels.get(COMPOSITE)
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{self.name}' with arguments from the '{where.upper()}' backend. This could be because the operator doesn't exist "
                f"for this backend: register a kernel. '{self.name}' is only available for these backends: "
                f"[{', '.join(map(str.upper, self.kernels))}]."
            )
        rec = per_thread.recorder
        if rec.level is None or rec.grad_enabled:  # then autograd follows what it is made of
            results = kernel(*args, **kwargs)
        else:
            results = rec.level.carried(self.packet.default, args, lambda: kernel(*args, **kwargs))
        self._check(results, args, kwargs)
        return results

    def _check(self, results: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert self.schema is not None
        returns = self.schema.returns
        for kind, x in zip(returns, results if self.schema.several and len(returns) > 1 else (results,), strict=False):
            if kind == "Tensor" and not isinstance(x, Tensor):
                raise RuntimeError(f"Unable to cast {x!r} to Tensor")
        if not self.refuses_aliases:
            return
        memory: set[int] = set()
        for t in (*_tensors((args, kwargs)), *_tensors(results)):
            own = id(t) if t._storage is None else id(t._storage)
            if own in memory and t.numel() and any(t is x for x in _tensors(results)):
                raise RuntimeError(
                    f"{self.name.split('::')[1]}: The output of this custom operator (1) must not also be an input to this custom operator and (2) "
                    "may not alias any inputs to this custom operator or other returns. The most common way to trigger this error is if we have y = "
                    "custom_op(x) and y and x are the same Tensor. Please instead return a clone of the offending output tensor(s) (e.g. return "
                    "x.clone()) or refactor the custom operator to not return y."
                )
            memory.add(own)

    # ------------------------------------------------------------------ autograd and vmap

    def _through_autograd(self, call: _Call) -> Any:
        """A call whose tensors go through a Function. What else it has is kept where that finds it: all of a Function's arguments count."""
        _running.calls.append([call, None])
        try:
            tensors = self._as_function().apply(*[call.leaves[i] for i in call.places])
            results = _running.calls[-1][1]
        finally:
            _running.calls.pop()
        return tensors if results is None else results.with_tensors(tensors)

    def _as_function(self) -> type[Function]:
        if self._function is None:
            methods = {name: staticmethod(getattr(self, f"_{name}")) for name in ("forward", "setup", "backward_of", "vmap")}
            methods["setup_context"], methods["backward"] = methods.pop("setup"), methods.pop("backward_of")
            namespace, name = self.name.split("::")
            self._function = type(f"GeneratedBackwardFor_{namespace}_{name}_default", (Function,), methods)
        return self._function

    def _forward(self, *tensors: Tensor) -> Any:
        call = _running.calls[-1][0]
        args, kwargs = call.arguments(tensors)
        results = _Results(*_taken_apart(self.run(next((t.device.type for t in tensors), "cpu"), args, kwargs)))
        _running.calls[-1][1] = results
        found = tuple([results.leaves[i] for i in results.places])
        return found[0] if len(found) == 1 else found

    def _setup(self, ctx: Any, tensors: tuple[Any, ...], output: Any) -> None:
        call, results = _running.calls[-1]
        ctx._call_of_operator, ctx._results_of_operator = call, results
        ctx.needs_input_grad = call.of_tensors(ctx.needs_input_grad, False)
        if self.setup_context is not None:
            assert self.schema is not None
            inputs, named = self.schema.with_defaults(*call.arguments(tensors))
            output = results.with_tensors(output)
            if named:
                self.setup_context(ctx=ctx, inputs=inputs, keyword_only_inputs=named, output=output)
            else:
                self.setup_context(ctx=ctx, inputs=inputs, output=output)

    def _backward_of(self, ctx: Any, *grads: Any) -> Any:
        if self.backward is None:
            raise RuntimeError(
                f"Trying to backward through {self.packet.default} but no autograd formula was registered. Please use register_autograd to add one."
            )
        call, results = ctx._call_of_operator, ctx._results_of_operator
        outer = results.spec.unflatten([dict(zip(results.places, grads, strict=True)).get(i) for i in range(len(results.leaves))])
        assert self.schema is not None
        found = self.backward(ctx, *(outer if self.schema.several and isinstance(outer, tuple) else (outer,)))
        found = found if isinstance(found, tuple) else (found,)
        given = call.of_tensors(range(len(call.places)), None)
        if len(found) < len(given):
            raise RuntimeError(
                f"Expected the return from backward to be of the same structure as the inputs. Got: {len(found)} gradients (return from backward), "
                f"{len(given)} inputs"
            )
        by_tensor: list[Any] = [None] * len(call.places)
        for places, grad in zip(given, found, strict=False):
            for place, g in zip(places, grad, strict=False) if isinstance(places, (list, tuple)) and grad is not None else ((places, grad),):
                if isinstance(place, int):
                    by_tensor[place] = g
        return tuple(by_tensor)

    def _vmap(self, info: Any, in_dims: tuple[Any, ...], *tensors: Any) -> tuple[Any, Any]:
        call = _running.calls[-1][0]
        if self.rule is None:
            return self._one_by_one(info.batch_size, call, in_dims, tensors), 0
        args, kwargs = call.arguments(tensors)
        found, dims = self.rule(info, call.of_tensors(in_dims, None), *args, **kwargs)
        _running.calls[-1][1] = results = _Results(*_taken_apart(found))
        outs = tuple([results.leaves[i] for i in results.places])
        dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,) * len(outs)
        return (outs[0], dims[0]) if len(outs) == 1 else (outs, dims)

    def _one_by_one(self, size: int, call: _Call, in_dims: tuple[Any, ...], tensors: Sequence[Any]) -> Any:
        """The operator for each part of a batch, and the results put together."""
        parts = []
        for n in range(size):
            args, kwargs = call.arguments([t if d is None else t.select(d, n) for t, d in zip(tensors, in_dims, strict=True)])
            parts.append(_Results(*_taken_apart(self(*args, **kwargs))))
        _running.calls[-1][1] = parts[0]
        made = tuple([stack([part.leaves[i] for part in parts]) for i in parts[0].places])
        return made[0] if len(made) == 1 else made


def _tensors(tree: Any) -> Iterable[Tensor]:
    leaves, places, _ = _taken_apart(tree)
    return [leaves[i] for i in places]


def operator_named(name: str) -> CustomOperator:
    """The operator of a qualified name, which may not have been defined yet. ValueError for another name."""
    if name.count("::") != 1:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {name}. The qualname passed to the torch.library APIs must consist '
            "of a namespace and a name, e.g. aten::sin"
        )
    if "." in name.split("::")[1]:
        raise ValueError(f"The torch.library.custom_op APIs do not handle overloads, i.e. operator names with '.' in them. Please name your operator "
                         f"something like {name.replace('.', '_')}. Got: {name}")  # fmt: skip
    return operators.setdefault(name, CustomOperator(name))


def forget(name: str) -> None:
    """Take an operator out of `torch.ops`."""
    operators.pop(name, None)
    namespace, short = name.split("::")
    with contextlib.suppress(KeyError):
        del vars(getattr(ops, namespace))[short]
