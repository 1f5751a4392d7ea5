"""An operator of the user's: its kernels, its gradient, its rule for vmap, and how a call goes through them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax._ops import OpOverload, OpOverloadPacket, Tag, ops
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

    def called(self, *args: Any, **kwargs: Any) -> Any:
        """What the operator gives, whoever wants to answer."""
        return self.operator(*args, **kwargs)


class Overload(OpOverload):
    """``torch.ops.namespace.name.default``."""

    packet: Packet  # type: ignore[assignment] - of an operator of the user's

    @property
    def _schema(self) -> Schema | None:
        return self.packet.operator.schema

    @property
    def tags(self) -> list[Tag]:
        """What was said of it where it was defined."""
        return list(self.packet.operator.tags)


class _Tree(NamedTuple):
    """Arguments or results as leaves, of which those at `places` are tensors, and their structure."""

    leaves: list[Any]
    places: list[int]
    spec: TreeSpec

    @staticmethod
    def of(tree: Any) -> _Tree:
        """A tree taken apart."""
        leaves, spec = tree_flatten(tree)
        return _Tree(leaves, [i for i, x in enumerate(leaves) if isinstance(x, Tensor)], spec)

    @property
    def tensors(self) -> list[Tensor]:
        """Its tensors."""
        return [self.leaves[i] for i in self.places]

    def with_tensors(self, tensors: Any) -> Any:
        """The tree, with these tensors in place of its own."""
        leaves = list(self.leaves)
        for place, t in zip(self.places, tensors if isinstance(tensors, (tuple, list)) else (tensors,), strict=True):
            leaves[place] = t
        return self.spec.unflatten(leaves)

    def of_tensors(self, what: Sequence[Any], otherwise: Any) -> Any:
        """What belongs to each tensor, in the tree's structure; `otherwise` in the place of other leaves."""
        found = dict(zip(self.places, what, strict=True))
        return self.spec.unflatten([found.get(i, otherwise) for i in range(len(self.leaves))])

    def without_tensors(self) -> _Tree:
        """The tree without its tensors, which it would keep alive."""
        places = set(self.places)
        return _Tree([None if i in places else x for i, x in enumerate(self.leaves)], self.places, self.spec)


def tags_of(tags: Any) -> tuple[Tag, ...]:
    """The tags that a definition was given: one, several or None. TypeError for anything else."""
    found = () if tags is None else (tags,) if isinstance(tags, Tag) else tuple(tags)
    for tag in found:
        if not isinstance(tag, Tag):
            raise TypeError(f"define(): tags must be of torch.Tag, not {type(tag).__name__}")
    return found


class _Running(threading.local):
    """calls: those under way in this thread whose tensors are within a Function, the innermost last, each with its results once it has them."""

    def __init__(self) -> None:
        self.calls: list[Any] = []


_running = _Running()


class CustomOperator:
    """An operator of the user's.

    schema: None until it is defined. kernels: by type of device, DEFAULT or COMPOSITE; disabled: those that are left out. followed: by type of
    device or DEFAULT, what is called in place of kernels but in inference mode, and autograd follows what that is made of. own_node: whether a call
    that needs gradients gets a node of its own, also without a formula. backward, setup_context, rule: the user's functions. fake: says what results
    are like. autocast: by type of device, what arguments are converted to under autocast. refuses_aliases: whether results may not be arguments.
    tags: what is said of it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.schema: Schema | None = None
        self.tags: tuple[Tag, ...] = ()
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.disabled: set[str] = set()
        self.followed: dict[str, Callable[..., Any]] = {}
        self.own_node = self.refuses_aliases = False
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.rule: Callable[..., Any] | None = None
        self.fake: Callable[..., Any] | None = None
        self.autocast: dict[str, Any] = {}
        self.packet = Packet(self)
        self._function: type[Function] | None = None

    def define(self, schema: str, tags: tuple[Tag, ...] = ()) -> None:
        """Give it its schema, its tags, and its place in `torch.ops`."""
        self.schema, self.tags = Schema(self.name, schema), tags
        namespace, name = self.name.split("::")
        vars(getattr(ops, namespace))[name] = self.packet

    # ------------------------------------------------------------------ a call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert self.schema is not None
        args, kwargs = self.schema.bound(args, kwargs)
        call = _Tree.of((args, kwargs))
        where = next((t.device.type for t in call.tensors), "cpu")
        if where in self.autocast and is_autocast_enabled(where):
            return self._under_autocast(where, call)
        if self.followed and not per_thread.recorder.inference and (followed := self.followed.get(where) or self.followed.get(DEFAULT)):
            return self._checked(followed(*args, **kwargs), call)
        kernel = self._kernel(where)
        if kernel is self.kernels.get(COMPOSITE) or not (self.own_node or self.backward is not None or self.rule is not None):
            return self._checked(kernel(*args, **kwargs), call)  # autograd and transforms follow what it is made of
        recorded = per_thread.recorder.grad_enabled and not self.schema.mutates and any(t.requires_grad for t in call.tensors)
        if call.places and (recorded or in_transform()):
            return self._through_autograd(call)
        with no_grad():
            return self._run(kernel, call)

    def _under_autocast(self, where: str, call: _Tree) -> Any:
        dtype = self.autocast[where]
        cast = [t.to(dtype) if t.is_floating_point() and t.dtype.itemsize < 8 else t for t in call.tensors]
        args, kwargs = call.with_tensors(cast)
        with autocast(where, enabled=False):
            return self(*args, **kwargs)

    def _kernel(self, where: str) -> Callable[..., Any]:
        """The kernel for a type of device. NotImplementedError where there is none."""
        kernel = None if where in self.disabled else self.kernels.get(where)
        kernel = kernel or self.kernels.get(DEFAULT) or self.kernels.get(COMPOSITE)
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{self.name}' with arguments from the '{where.upper()}' backend. This could be because the operator doesn't exist "
                f"for this backend: register a kernel. '{self.name}' is only available for these backends: "
                f"[{', '.join(map(str.upper, self.kernels))}]."
            )
        return kernel

    def _run(self, kernel: Callable[..., Any], call: _Tree) -> Any:
        """What a kernel gives below autograd. RuntimeError for results that are none."""
        args, kwargs = call.spec.unflatten(call.leaves)
        level = per_thread.recorder.level
        if level is None:
            return self._checked(kernel(*args, **kwargs), call)
        return self._checked(level.carried(self.packet.default, args, lambda: kernel(*args, **kwargs)), call)

    def _checked(self, results: Any, call: _Tree) -> Any:
        assert self.schema is not None
        returns = self.schema.returns
        for kind, x in zip(returns, results if self.schema.several and len(returns) > 1 else (results,), strict=False):
            if kind == "Tensor" and not isinstance(x, Tensor):
                raise RuntimeError(f"Unable to cast {x!r} to Tensor")
        if self.refuses_aliases:
            memory = set(map(_memory, call.tensors))
            for t in _Tree.of(results).tensors:
                if _memory(t) in memory:
                    raise RuntimeError(
                        f"{self.name.split('::')[1]}: The output of this custom operator (1) must not also be an input to this custom operator and "
                        "(2) may not alias any inputs to this custom operator or other returns. The most common way to trigger this error is if we "
                        "have y = custom_op(x) and y and x are the same Tensor. Please instead return a clone of the offending output tensor(s) "
                        "(e.g. return x.clone()) or refactor the custom operator to not return y."
                    )
                memory.add(_memory(t))
        return results

    # ------------------------------------------------------------------ autograd and vmap

    def _through_autograd(self, call: _Tree) -> Any:
        """A call whose tensors go through a Function. What else it has is kept where that finds it: all of a Function's arguments count."""
        _running.calls.append([call, None])
        try:
            tensors = self._as_function().apply(*call.tensors)
            results = _running.calls[-1][1]
        finally:
            _running.calls.pop()
        return tensors if results is None else results.with_tensors(tensors)

    def _as_function(self) -> type[Function]:
        if self._function is None:
            methods = {"forward": self._forward, "setup_context": self._setup, "backward": self._backward, "vmap": self._vmap}
            name = f"GeneratedBackwardFor_{self.name.replace('::', '_')}_default"
            self._function = type(name, (Function,), {key: staticmethod(method) for key, method in methods.items()})
        return self._function

    def _forward(self, *tensors: Tensor) -> Any:
        call = _Tree.of(_running.calls[-1][0].with_tensors(tensors))
        results = _Tree.of(self._run(self._kernel(tensors[0].device.type), call))
        _running.calls[-1][1] = results.without_tensors()
        found = results.tensors
        return found[0] if len(found) == 1 else tuple(found)

    def _setup(self, ctx: Any, tensors: tuple[Any, ...], output: Any) -> None:
        call, results = _running.calls[-1]
        ctx._call_of_operator, ctx._results_of_operator = call.without_tensors(), results
        ctx.needs_input_grad = call.of_tensors(ctx.needs_input_grad, False)[0]
        if self.setup_context is not None:
            assert self.schema is not None
            inputs, named = self.schema.with_defaults(*call.with_tensors(tensors))
            more = {"keyword_only_inputs": named} if named else {}
            self.setup_context(ctx=ctx, inputs=inputs, output=results.with_tensors(output), **more)

    def _backward(self, ctx: Any, *grads: Any) -> Any:
        if self.backward is None:
            raise RuntimeError(
                f"Trying to backward through {self.packet.default} but no autograd formula was registered. Please use register_autograd to add one."
            )
        assert self.schema is not None
        outer = ctx._results_of_operator.of_tensors(grads, None)
        found: Any = self.backward(ctx, *(outer if self.schema.several and isinstance(outer, tuple) else (outer,)))
        found = found if isinstance(found, tuple) else (found,)
        call = ctx._call_of_operator
        given = call.of_tensors(range(len(call.places)), None)[0]
        _check_count(type(ctx).__name__, len(given), found)
        by_tensor: list[Any] = [None] * len(call.places)
        for places, grad in zip(given, found, strict=False):
            pairs: Any = zip(places, grad, strict=False) if isinstance(places, (list, tuple)) and grad is not None else ((places, grad),)
            for place, g in pairs:
                if isinstance(place, int):
                    by_tensor[place] = g
        return tuple(by_tensor)

    def _vmap(self, info: Any, in_dims: tuple[Any, ...], *tensors: Any) -> tuple[Any, Any]:
        call: _Tree = _running.calls[-1][0]
        if self.rule is None:
            return self._one_by_one(info.batch_size, call, in_dims, tensors), 0
        args, kwargs = call.with_tensors(tensors)
        found, dims = self.rule(info, call.of_tensors(in_dims, None)[0], *args, **kwargs)
        results = _Tree.of(found)
        _running.calls[-1][1] = results.without_tensors()
        outs = results.tensors
        dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,) * len(outs)
        return (outs[0], dims[0]) if len(outs) == 1 else (tuple(outs), dims)

    def _one_by_one(self, size: int, call: _Tree, in_dims: tuple[Any, ...], tensors: Sequence[Any]) -> Any:
        """The operator for each part of a batch, and the results put together."""
        parts = []
        for n in range(size):
            args, kwargs = call.with_tensors([t if d is None else t.select(d, n) for t, d in zip(tensors, in_dims, strict=True)])
            parts.append(_Tree.of(self(*args, **kwargs)))
        _running.calls[-1][1] = parts[0].without_tensors()
        made = [stack(list(together)) for together in zip(*[part.tensors for part in parts], strict=True)]
        return made[0] if len(made) == 1 else tuple(made)


def _check_count(name: str, count: int, grads: tuple[Any, ...]) -> None:
    """RuntimeError for another number of gradients than `count`, None at the end aside. PyTorch counts one more, its own beside these."""
    given = len(grads)
    while given > count and grads[given - 1] is None:
        given -= 1
    if given == count + 1:
        raise RuntimeError(
            f"function {name} returned a gradient different than None at position {given}, but the corresponding forward input was not a Variable"
        )
    if given != count:
        raise RuntimeError(f"function {name} returned an incorrect number of gradients (expected {count + 1}, got {len(grads) + 1})")


def _memory(t: Tensor) -> int:
    """What tells whether two tensors share memory."""
    return id(t) if t._storage is None else id(t._storage)


def operator_named(name: str) -> CustomOperator:
    """The operator of a qualified name, which may not have been defined yet. ValueError for another name, NotImplementedError for an overload's."""
    if name.count("::") != 1:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {name}. The qualname passed to the torch.library APIs must consist '
            "of a namespace and a name, e.g. aten::sin"
        )
    if "." in name.split("::")[1]:
        raise NotImplementedError(f"torch.library: an operator of the user's has one overload here; call {name} {name.replace('.', '_')}")
    return operators.setdefault(name, CustomOperator(name))


def forget(name: str) -> None:
    """Take an operator out of `torch.ops`."""
    operators.pop(name, None)
    namespace, short = name.split("::")
    with contextlib.suppress(KeyError):
        del vars(getattr(ops, namespace))[short]
