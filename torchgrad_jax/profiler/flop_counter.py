"""`torch.utils.flop_counter`: the floating-point operations of matrix products and convolutions, by module."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Self
from warnings import warn

import jax

from torchgrad_jax._ops import ops
from torchgrad_jax.nn.modules.module import Module, register_module_forward_hook, register_module_forward_pre_hook
from torchgrad_jax.profiler.flops import argument_of, flops_of_product, inner_jaxprs
from torchgrad_jax.profiler.naming import operation_name
from torchgrad_jax.profiler.watching import BACKWARD, FORWARD, Watch
from torchgrad_jax.runtime.value import Value

__all__ = ["FlopCounterMode"]

_GLOBAL = "Global"
_SUFFIXES = ("", "K", "M", "B", "T")


class FlopCounterMode:
    """Counts, while it is entered, two operations for each multiplication that is added, in products of matrices and convolutions and in their
    derivatives; sums and functions element by element are not counted, nor products of vectors. Operations run one by one meanwhile.

    depth: of modules in the table, None for all. display: whether the table is printed at the end, which takes the package `tabulate`.
    NotImplementedError for `custom_mapping`: operations are counted in what they give to XLA.
    """

    def __init__(self, mods: Any = None, depth: int | None = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None) -> None:
        if mods is not None:
            warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        if custom_mapping:
            raise NotImplementedError(
                "FlopCounterMode(custom_mapping=...): torchgrad_jax counts operations in what they give to XLA, not by formulas"
            )
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self._counting: _Counting | None = None
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        self.flop_counts.clear()
        self._counting = _Counting(self.flop_counts)
        self._hooks = [register_module_forward_pre_hook(self._counting.enter), register_module_forward_hook(self._counting.leave, always_call=True)]
        self._counting.start()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._counting is not None
        self._counting.stop()
        for hook in self._hooks:
            hook.remove()
        self._counting = None
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        """All that were counted."""
        return sum(self.flop_counts[_GLOBAL].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """By the names of modules, ``"Net.layer"``, and of operators, ``torch.ops.aten.mm``; under ``"Global"`` all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, modules by their depth. ModuleNotFoundError without the package `tabulate`."""
        import tabulate

        depth = self.depth if depth is None else depth
        depth = 999_999 if depth is None else depth
        total, rows = self.get_total_flops(), []
        names = [name for name in sorted(self.flop_counts) if name != _GLOBAL and name.count(".") + 1 <= depth]
        if _GLOBAL in self.flop_counts and not any(sum(self.flop_counts[name].values()) == total for name in names):
            names = [_GLOBAL, *names]
        shift = int(names[:1] == [_GLOBAL])
        for name in names:
            indent = " " * (0 if name == _GLOBAL else name.count(".") + shift)
            found = sum(self.flop_counts[name].values())
            rows.append([indent + name, _scaled(found, total), _share(found, total)])
            rows += [[f"{indent} - {op}", _scaled(n, total), _share(n, total)] for op, n in self.flop_counts[name].items()]
        return tabulate.tabulate(rows or [[_GLOBAL, "0", "0%"]], headers=("Module", "FLOP", "% Total"), colalign=("left", "right", "right"))


def _scaled(number: int, total: int) -> str:
    """A count in thousands, millions ..., as the total is."""
    place = min(max((len(str(total)) - 2) // 3, 0), len(_SUFFIXES) - 1)
    return str(number) if not place else f"{number / 1000**place:.3f}{_SUFFIXES[place]}"


def _share(number: int, total: int) -> str:
    return f"{number / total:.2%}" if total else "0%"


class _Counting(Watch):
    """Counts the operations of a thread. modules: those that run, by name; what is computed backward is counted for those that ran forward."""

    def __init__(self, counts: dict[str, dict[Any, int]]) -> None:
        super().__init__()
        self.counts = counts
        self._names: dict[Module, str] = {}
        self._running: list[str] = []
        self._ran: dict[int, tuple[str, ...]] = {}
        self._convolutions: dict[int, int] = {}
        self._backward: list[tuple[str, int]] = []

    def enter(self, module: Module, _arguments: Any) -> None:
        """A module begins."""
        if module not in self._names:
            self._name(module, type(module).__name__)
        self._running.append(self._names[module])

    def leave(self, _module: Module, _arguments: Any, _result: Any) -> None:
        """It has ended."""
        self._running.pop()

    def _name(self, module: Module, name: str) -> None:
        self._names.setdefault(module, name)
        for child, inner in module.named_children():
            self._name(inner, f"{self._names[module]}.{child}")

    def begin(self, name: str, scope: int = FORWARD, sequence: int = -1, fwd_thread: int = 0, shapes: Any = (), inputs: Any = ()) -> Any:
        """See Watch."""
        if scope == BACKWARD:
            self._backward.append((name, sequence))
        elif sequence >= 0 and not fwd_thread:
            self._ran[sequence] = tuple(self._running)
        return scope, sequence

    def end(self, begun: Any) -> None:
        """See Watch."""
        if begun[0] == BACKWARD:
            self._backward.pop()

    def ran(self, begun: Any, given: Sequence[Value], values: Sequence[Value], bound: Any) -> None:
        """See Watch."""
        self.end(begun)
        node, sequence = self._backward[-1] if self._backward else ("", begun[1])
        modules = self._ran.get(sequence, ()) if self._backward else self._running
        for operator, count in self._found(values, bound, node, sequence):
            for name in (_GLOBAL, *dict.fromkeys(modules)):
                self.counts[name][operator] += count

    def _found(self, values: Sequence[Value], bound: Any, node: str, sequence: int) -> list[tuple[Any, int]]:
        """PyTorch's operators in an operation, each with its count."""
        sig: Any = values[0].signature
        name = operation_name(bound)
        if name == "aten::convolution":
            x, weight = (spec.shape for spec in sig.specs[:2])
            sizes = x[2:] if bound.statics["transposed"] else values[0].aval.shape[2:]
            count = self._convolutions[sequence] = 2 * x[0] * math.prod(sizes) * math.prod(weight)
            return [(ops.aten.convolution, count)]
        if node == "ConvolutionBackward0" and sequence in self._convolutions:  # as much for the image's gradient, and for the kernel's
            return [(ops.aten.convolution_backward, self._convolutions[sequence] * sum([v.aval.ndim > 2 for v in values]))]
        return _products(jax.make_jaxpr(sig.function)(*[argument_of(spec) for spec in sig.specs]).jaxpr, name, node)


def _products(jaxpr: Any, name: str, node: str) -> list[tuple[Any, int]]:
    """The products in a jaxpr, each as PyTorch's operator and its count. name: of the operation; node: of the backward function it is part of."""
    found: list[tuple[Any, int]] = []
    for eqn in jaxpr.eqns:
        count = flops_of_product(eqn)
        if count and (operator := _operator(eqn, name, node)) is not None:
            found.append((operator, count))
        for inner in inner_jaxprs(eqn):
            found += _products(inner, name, node)
    return found


_NAMED = {"aten::addmm": ops.aten.addmm, "aten::baddbmm": ops.aten.baddbmm}
_OF_VECTORS = ("aten::mv", "aten::dot", "aten::vdot", "aten::addmv", "MvBackward0", "DotBackward0", "AddmvBackward0")


def _operator(eqn: Any, name: str, node: str) -> Any:
    if eqn.primitive.name == "conv_general_dilated":
        return ops.aten.convolution_backward if node else ops.aten.convolution
    if name in _OF_VECTORS or node in _OF_VECTORS:
        return None
    if not node and name in _NAMED:
        return _NAMED[name]
    _, (batch, _) = eqn.params["dimension_numbers"]
    return ops.aten.bmm if batch else ops.aten.mm
