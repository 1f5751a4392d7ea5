"""What random programs call. It is run in each program's namespace, where `torch` is either library; printed scripts begin with it."""

import math

import torch

calls = []
grad = torch.autograd.grad


def nested(values, shape):
    """The values as nested lists."""
    return [nested(values, shape[1:]) for _ in range(shape[0])] if shape else next(values)


def leaf(*shape, seed=0, dtype="float64", requires_grad=True, nudge=0.0):
    """A tensor of quarters, none of them 0; of integers or booleans. nudge: by how much, relatively, they are wrong."""
    numbers = [((i * 7 + seed * 3 + 2) % 11 - 5.5) / 4 * (1 + nudge * ((i * 5 + seed) % 6 - 2.5)) for i in range(math.prod(shape))]
    if dtype == "bool":
        numbers = [x > 0 for x in numbers]
    elif not dtype.startswith("float"):
        numbers = [int(4 * x) for x in numbers]
    return torch.tensor(nested(iter(numbers), shape), dtype=getattr(torch, dtype), requires_grad=requires_grad and dtype.startswith("float"))


def special(*shape, seed=0, dtype="float64", requires_grad=True):
    """A tensor of infinities, NaN, zeros and a few ordinary numbers."""
    numbers = [math.nan, 1.5, math.inf, 0.75, -2.0, -math.inf, 0.0, 0.25]
    numbers = [numbers[(i * 3 + seed) % 8] for i in range(math.prod(shape))]
    return torch.tensor(nested(iter(numbers), shape), dtype=getattr(torch, dtype), requires_grad=requires_grad)


def plain(x):
    """A copy in row-major order."""
    return x.clone(memory_format=torch.contiguous_format)


def contents(x):
    """A tensor's dtype and values; None for none."""
    return None if x is None else (str(x.dtype), x.tolist())


def hook(tag, scale=None):
    """A gradient hook that notes its call and scales."""

    def note(grad):
        calls.append((tag, contents(grad)))
        return None if scale is None or grad is None else grad * scale

    return note


def after(tag):
    """A hook for after accumulation that notes the gradient."""
    return lambda x: calls.append((tag, contents(x.grad)))


def prehook(tag, scale=None):
    """A node's pre-hook that notes its call and scales."""

    def note(grads):
        calls.append((tag, *map(contents, grads)))
        return None if scale is None else tuple(None if g is None else g * scale for g in grads)

    return note


def hook_of_node(tag, scale=None):
    """A node's hook that notes its call and scales."""

    def note(inputs, outputs):
        calls.append((tag, tuple(map(contents, inputs)), tuple(map(contents, outputs))))
        return None if scale is None else tuple(None if g is None else g * scale for g in inputs)

    return note


def second(*grads):
    """Copies of gradients. What is below them in a graph has names of its own in torchgrad_jax, which are not compared."""
    found = []
    for g in grads:
        found.append(g if g is None else plain(g))
        if g is not None and found[-1].grad_fn is not None:
            found[-1].grad_fn.metadata["second order"] = True
    return found[0] if len(found) == 1 else found


def saved(tag):
    """Hooks for saved tensors that note what is packed and unpacked."""

    def pack(x):
        calls.append((tag, "packed", contents(x)))
        return x

    def unpack(x):
        calls.append((tag, "unpacked", contents(x)))
        return x

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
