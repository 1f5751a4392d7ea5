"""`torch.autograd.graph`: the nodes of the graph, the edges between them, what they save, and hooks on several tensors at once."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from torchgrad_jax.autograd.engine import GraphTask
from torchgrad_jax.autograd.saved_tensors import allow_mutation_on_saved_tensors, disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torchgrad_jax.core import node as tensor_node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import per_thread

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "region_activation_memory_budget",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_override_stale_capture_stream",
    "set_warn_on_accumulate_grad_stream_mismatch",
]


class Node(abc.ABC):
    """What every node of the graph can do. The classes of nodes are virtual subclasses: this one is not among their bases."""

    @abc.abstractmethod
    def name(self) -> str:
        """The node's name, such as ``MulBackward0``."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that this one passes gradients on to, one entry for each tensor input; ``(None, 0)`` where none."""

    @property
    @abc.abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes."""

    @property
    @abc.abstractmethod
    def _input_metadata(self) -> Sequence[Any]: ...

    @abc.abstractmethod
    def _sequence_nr(self) -> int: ...

    @abc.abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_inputs, grad_outputs)`` after this node has run; what it returns replaces grad_inputs."""

    @abc.abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> Any:
        """Call ``fn(grad_outputs)`` before this node runs; what it returns replaces grad_outputs."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return True if cls is Node and issubclass(subclass, tensor_node.Node) else NotImplemented


class GradientEdge(NamedTuple):
    """Where a tensor's gradient goes: output `output_nr` of `node`. Stands for the tensor in `torch.autograd.grad` and `backward`.

    ownership_token keeps alive what the node needs.
    """

    node: tensor_node.Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that `tensor` stands for. RuntimeError where it does not require a gradient."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*tensor._edge())


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write to a tensor, or to each of several, that was not made by an operation. Inference tensors count none.

    RuntimeError for anything else.
    """
    if isinstance(tensor, Tensor):
        tensor = (tensor,)
    elif not isinstance(tensor, Iterable):
        raise RuntimeError("increment_version expect a Iterable[Tensor] as input")
    for t in tensor:
        if not isinstance(t, Tensor):
            raise RuntimeError("increment_version expects each element of the iterable to be a tensor")
        storage = t._shared()
        if storage.counted:
            storage.write(per_thread.recorder.alias(storage.value))


def graph_task() -> GraphTask | None:
    """The backward pass that runs in this thread."""
    return per_thread.recorder.flags.task


def graph_task_id() -> int:
    """The number of the backward pass that runs in this thread; -1 where none does."""
    task = graph_task()
    return -1 if task is None else task.id


def graph_task_keeps_graph() -> bool:
    """Whether the backward pass that runs in this thread keeps the graph; True where none does."""
    task = graph_task()
    return task is None or task.retain_graph


def will_engine_execute_node(node: Any) -> bool:
    """Whether the backward pass that runs in this thread reaches `node`. RuntimeError outside of a pass."""
    if not isinstance(node, tensor_node.Node):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    task = graph_task()
    if task is None:
        raise RuntimeError("_get_should_execute_nodes should only be called during the backward pass")
    return task.executes(node)


class MultiHandle:
    """Removes the hooks that `register_multi_grad_hook` put on several tensors."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Remove them all."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> MultiHandle:
    """Call `fn` in every backward pass when gradients of `tensors` are there. Returns a handle that removes the hook.

    mode "all": once all gradients that the pass computes are there, with a list of them (None for a tensor that the pass does not reach).
    mode "any": at the first gradient, with it. What `fn` returns is not used. ValueError for another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    if not all(t.requires_grad for t in tensors):
        raise AssertionError("Expected gradient function to be set")
    if mode == "any":
        first = _first_of(fn)
        return MultiHandle([t.register_hook(first) for t in tensors])
    gathered = _Gathered([t._edge()[0] for t in tensors], fn)
    return MultiHandle([t.register_hook(gathered.hook(i)) for i, t in enumerate(tensors)])


class _Gathered:
    """Collects the gradients of a backward pass, in the pass's notes."""

    def __init__(self, nodes: Sequence[tensor_node.Node], fn: Callable[..., Any]) -> None:
        self.nodes, self.fn = nodes, fn

    def hook(self, place: int) -> Callable[[Any], None]:
        """The hook of the tensor at `place`."""

        def gather(grad: Any) -> None:
            task = graph_task()
            assert task is not None
            found = task.notes.get(self)
            if found is None:
                found = task.notes[self] = ([None] * len(self.nodes), [sum(map(task.executes, self.nodes))])
            grads, missing = found
            grads[place] = grad
            missing[0] -= 1
            if not missing[0]:
                self.fn(grads)

        return gather


def _first_of(fn: Callable[..., Any]) -> Callable[[Any], None]:
    """A hook that calls `fn` once in each backward pass."""

    def hook(grad: Any) -> None:
        task = graph_task()
        assert task is not None
        if hook not in task.notes:
            task.notes[hook] = True
            fn(grad)

    return hook


def profiler_enabled() -> bool:
    """Whether a profile is on in this thread."""
    return per_thread.recorder.flags.watch is not None


def region_activation_memory_budget(budget: float) -> NoReturn:
    """RuntimeError, always: how much of a compiled region's activations is kept is XLA's choice. `torch.utils.checkpoint` says it for a region."""
    raise RuntimeError(
        "torch.autograd.graph.region_activation_memory_budget can only be used inside a torch.compile region; it has no effect in eager mode. "
        "torchgrad_jax has it nowhere: torch.utils.checkpoint.checkpoint computes a region's activations again."
    )


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Changes nothing: XLA's programs have no streams that autograd would see. RuntimeError for what is no bool."""
    _need_bool(enabled)


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Changes nothing: gradients are never accumulated on another stream. RuntimeError for what is no bool."""
    _need_bool(enabled)


def _need_bool(enabled: Any) -> None:
    if not isinstance(enabled, bool):
        raise RuntimeError(f"enabled must be a bool, but got {type(enabled).__name__}")
