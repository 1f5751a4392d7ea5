"""`torch.utils.flop_counter`: how many floating-point operations a block takes, by module and by operator.

Two are counted for each multiplication that is added: of matrix products, convolutions and attention, forward and backward. The shapes say it, so
operations are looked at as they are dispatched, and run as ever. A backward operation counts for the modules that ran when its node was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod
from typing import Any
from weakref import WeakKeyDictionary

from torchgrad_jax._ops import OpOverloadPacket, ops
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.through import Through
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.nn.modules.calling import register_module_forward_hook, register_module_forward_pre_hook
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["FlopCounterMode"]

Shape = tuple[int, ...]
Counts = dict[OpOverloadPacket, int]
GLOBAL = "Global"
# Operators that are products of two matrices: their names in ATen, and which operand is the first of the two.
_PRODUCTS = {"mm": ("mm", 0), "addmm": ("addmm", 1), "linear_addmm": ("addmm", 1), "bmm": ("bmm", 0), "baddbmm": ("baddbmm", 1)}
# What the gradients of an operation are made of, by its node's name up to "Backward".
_GRADIENTS = {"Mm": "mm", "Addmm": "mm", "Bmm": "bmm", "Baddbmm": "bmm", "Addbmm": "bmm"}
# Attention that PyTorch computes of products; it has kernels for "attention_fused", of which it counts those for GPUs.
_ATTENTION = {"attention_batched": "bmm", "attention_rounded": "bmm", "attention_single": "mm"}
_FUSED = "_scaled_dot_product_flash_attention"


class FlopCounterMode:
    """A context manager that counts floating-point operations in its block, in this thread.

    mods: no longer needed, as in PyTorch. depth: of the table's modules; None for all. display: print the table at the end. custom_mapping:
    NotImplementedError unless empty: its formulas are for operators of PyTorch's dispatcher, whose arguments are not those of the operators here.
    What is computed by a function under `jit`, or by recurrent layers, is not counted.

    Example: ``with FlopCounterMode(display=False) as counter: model(x).sum().backward()``, then ``counter.get_total_flops()``.
    """

    def __init__(self, mods: Any = None, depth: int | None = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None) -> None:
        if mods is not None:
            warn_user("mods argument is not needed anymore, you can stop passing it", UserWarning)
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode: custom_mapping has formulas for the arguments of PyTorch's operators, which are others here")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, Counts] = {GLOBAL: {}}
        self._modules = _Modules()
        self._watching: Any = None

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = {}
        self._modules.start()
        self._watching = _Watching(self._count, self._modules)
        self._watching.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._watching.__exit__(*exc)
        self._watching = None
        self._modules.stop()
        if self.display:
            print(self.get_table(self.depth))

    def _count(self, names: Sequence[str], operator: str, flops: int) -> None:
        packet = getattr(ops.aten, operator)
        for name in dict.fromkeys((GLOBAL, *names)):
            counts = self.flop_counts.setdefault(name, {})
            counts[packet] = counts.get(packet, 0) + flops

    def get_total_flops(self) -> int:
        """How many there were."""
        return sum(self.flop_counts.get(GLOBAL, {}).values())

    def get_flop_counts(self) -> dict[str, Counts]:
        """By the names of modules, such as "Net.block.0", and "Global" for all: a dict from operators, such as ``torch.ops.aten.mm``, to numbers. A
        module counts what those that it calls do."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules with their operators, as text. depth: how many parts a module's name may have; None: as the constructor was told."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        unit = max(0, min(len(_UNITS) - 1, (len(str(total)) - 2) // 3))
        names = [n for n in sorted(self.flop_counts) if n != GLOBAL and (depth is None or n.count(".") < depth)]
        # All that is counted is a module's: "Global" would say it twice.
        if not any([sum(self.flop_counts[n].values()) >= total for n in names]):
            names.insert(0, GLOBAL)
        rows = []
        for name in names:
            counts = self.flop_counts.get(name, {})
            for label, flops in ((name, sum(counts.values())), *[(f"- {packet}", n) for packet, n in counts.items()]):
                shown = f"{flops / 1000**unit:.3f}{_UNITS[unit]}" if unit else str(flops)
                rows.append((label, shown, f"{flops / total:.2%}" if total else "0%"))
        return _aligned(("Module", "FLOP", "% Total"), rows)


_UNITS = ("", "K", "M", "B", "T")


def _aligned(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Columns below their titles, the first to the left and the others to the right."""
    widths = [max(len(title) + 2, *[len(row[i]) for row in rows]) for i, title in enumerate(titles)]
    lines = [titles, tuple(["-" * width for width in widths]), *rows]
    return "\n".join(["  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]) for first, *others in lines])


class _Modules:
    """Which modules are running in a thread, and what they are called: a module that no other one calls by its class, those inside by their paths."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._handles: list[Any] = []
        self._recorder: Any = None

    def start(self) -> None:
        self._recorder = per_thread.recorder
        self.running.clear()
        self._names.clear()
        self._handles = [register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after, always_call=True)]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: Any, args: Any) -> None:
        if per_thread.recorder is self._recorder:
            if module not in self._names:
                kind = type(module).__name__
                for path, inner in module.named_modules():
                    self._names[inner] = f"{kind}.{path}" if path else kind
            self.running.append(self._names[module])

    def _after(self, module: Any, args: Any, output: Any) -> None:
        if per_thread.recorder is self._recorder and self.running:
            self.running.pop()


class _Node:
    """A node that is being evaluated: the modules that it belongs to, and whether it is of a transposed convolution."""

    __slots__ = ("names", "transposed")

    def __init__(self, names: tuple[str, ...], transposed: bool) -> None:
        self.names, self.transposed = names, transposed


class _Watching(Through):
    """Looks at operations. In a backward pass, which dispatches too while this is there, each gradient is an operation of its own."""

    __slots__ = ("count", "modules", "nodes")

    def __init__(self, count: Callable[[Sequence[str], str, int], None], modules: _Modules) -> None:
        self.count, self.modules = count, modules
        self.nodes: list[_Node] = []  # that are being evaluated, innermost last

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        if self.nodes and per_thread.recorder.flags.task is None:  # a pass has failed
            self.nodes.clear()
        made = self.outside(bound, operands)
        shapes = [tuple(o._aval.shape) for o in operands if isinstance(o, Tensor)]
        first = made[0] if type(made) is tuple else made
        if isinstance(bound, BoundOperator):
            self._forward(bound, shapes, first)
        elif len(shapes) > 1:
            self._backward(bound, shapes, first)
        return made

    def _forward(self, bound: BoundOperator, shapes: list[Shape], made: Tensor) -> None:
        name, names = bound.operator.name, tuple(self.modules.running)
        transposed, then = False, None
        if name in _PRODUCTS:
            known, place = _PRODUCTS[name]
            self.count(names, known, 2 * prod(shapes[place]) * shapes[place + 1][-1])
        elif name == "convolution":
            transposed = bound.statics["transposed"]
            self.count(names, name, _convolution(shapes[0] if transposed else made._aval.shape, shapes[0], shapes[1]))
        elif name == "attention_fused" or name in _ATTENTION:
            self.count(names, _ATTENTION.get(name, _FUSED), sum(_attention(*shapes[:3])))
            then = lambda: self._attention_back(name, names, shapes)  # noqa: E731 - without the node, which it would keep alive
        else:
            return
        self._follow(made, _Node(names, transposed), then)

    def _backward(self, bound: Any, shapes: list[Shape], made: Tensor) -> None:
        kind = bound.name.partition("Backward")[0]
        node = self.nodes[-1] if self.nodes else _Node((), False)
        result = tuple(made._aval.shape)
        if kind in _GRADIENTS and len(shapes) == 2 and min(len(shapes[0]), len(shapes[1]), len(result)) > 1:
            # Of sizes m x k, k x n and m x n each occurs twice, in whichever order they are.
            batch = prod(shapes[0][:-2])
            self.count(node.names, _GRADIENTS[kind], 2 * isqrt(prod(shapes[0]) * prod(shapes[1]) * prod(result) // max(batch, 1)))
        elif kind == "Convolution" and len(result) > 1:
            # What was differentiated: of (input, weight, bias) the convolution, of (gradient, input, weight) a gradient of its.
            given = [spec.shape for spec in bound.kin(())[1] if len(spec.shape) > 1]
            again = len(given) > 2
            grad, x, weight = given if again else (shapes[0], *given)
            transposed = node.transposed or grad[1] != weight[0]
            small, large = (x, grad) if transposed else (grad, x)
            # PyTorch counts the gradient of the weight as if there were one group.
            flops = 2 * prod(small) * prod(weight[2:]) * large[1] if result == tuple(weight) else _convolution(small, x, weight)
            self.count(node.names, "convolution" if again else "convolution_backward", flops)
        else:
            return
        self._follow(made, node, None)

    def _attention_back(self, name: str, names: tuple[str, ...], shapes: list[Shape]) -> None:
        """The gradients of attention: two products for those of either factor of each of the two, the fused kernel's first once more."""
        scores, output = _attention(*shapes[:3])
        if name == "attention_fused":
            self.count(names, f"{_FUSED}_backward", 3 * scores + 2 * output)
        else:
            self.count(names, _ATTENTION[name], 2 * scores + 2 * output)

    def _follow(self, made: Tensor, node: _Node, then: Callable[[], None] | None) -> None:
        """Let it be known while the node of `made` is evaluated, if it has one. then: what is called before."""
        if made._node is None:
            return

        def before(grads: Any) -> None:
            self.nodes.append(node)
            if then is not None and per_thread.recorder.level is not None:
                then()

        def after(grads: Any, given: Any) -> None:
            if self.nodes:
                self.nodes.pop()

        hooks = made._node.own_hooks()
        hooks.pre.add(before)
        hooks.post.add(after)


def _convolution(places: Shape, x: Shape, weight: Shape) -> int:
    """Each weight once for each image and place of the smaller side, of the shape `places`; PyTorch takes no notice of padding."""
    return 2 * x[0] * prod(places[2:]) * prod(weight)


def _attention(query: Shape, key: Shape, value: Shape) -> tuple[int, int]:
    """Of the scores and of the output; keys and values are shared by groups of queries where they have fewer heads."""
    scores = 2 * prod(query[:-1]) * key[-2]
    return scores * query[-1], scores * value[-1]
