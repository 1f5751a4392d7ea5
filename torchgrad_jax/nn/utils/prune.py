"""`torch.nn.utils.prune`: parameters of which a part is zero.

A pruned parameter ``w`` is kept as the parameter ``w_orig`` and the buffer ``w_mask``; ``w`` itself is their product, which a hook computes before
each `forward`.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import ones_like, zeros_like
from torchgrad_jax.functions.matrices.norms import norm_
from torchgrad_jax.functions.random_factories import rand, rand_like
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.utils.convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """A way of choosing what is zero. A subclass defines `compute_mask` and says by `PRUNING_TYPE` what a further pruning of the same tensor chooses
    from: the elements that are left ("unstructured"), the channels along ``self.dim`` that are left ("structured"), or all ("global")."""

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for importances `t`: what is 0 in `default_mask` stays 0."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter of `module` times its mask."""
        mask, original = getattr(module, self._tensor_name + "_mask"), getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prune the parameter of a name, further if it is pruned, by ``cls(*args, **kwargs)``. importance_scores: what decides instead of the
        parameter's values. The hook that was put onto the module is returned."""
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        there = [(number, hook) for number, hook in module._forward_pre_hooks.items() if _prunes(hook, name)]
        if len(there) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer.")
        original: Any = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {importance_scores.shape} vs {original.shape}"
            )
        if there:
            before = there[0][1]
            chosen: Any = before if isinstance(before, PruningContainer) else PruningContainer(before)
            chosen.add_pruning_method(method)
            default = getattr(module, name + "_mask").detach().clone()
        else:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            chosen, default = method, ones_like(original)
        try:
            mask = chosen.compute_mask(importance_scores, default)
        except Exception:
            if not there:
                module.register_parameter(name, module._parameters.pop(name + "_orig"))
            raise
        if there:
            del module._forward_pre_hooks[there[0][0]]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, chosen.apply_mask(module))
        module.register_forward_pre_hook(chosen)
        return chosen

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor times its mask. AssertionError where importance_scores are of another shape."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}")
        return t * self.compute_mask(importance_scores, ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Let the parameter be what it is now: the same object as before it was pruned, with zeros."""
        weight = self.apply_mask(module)
        if hasattr(module, self._tensor_name):
            delattr(module, self._tensor_name)
        original: Any = module._parameters.pop(self._tensor_name + "_orig")
        original.data = weight.data
        del module._buffers[self._tensor_name + "_mask"]
        setattr(module, self._tensor_name, original)


def _prunes(hook: Any, name: str) -> bool:
    return isinstance(hook, BasePruningMethod) and hook._tensor_name == name


class PruningContainer(BasePruningMethod):
    """Pruning methods of one tensor, each applied to what those before it left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method, which is for the same tensor. TypeError where it is none, ValueError where it is for another."""
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods = (*self._pruning_methods, method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask, with what the last method takes from what `default_mask` leaves. AttributeError, ValueError for a method that does not say what
        it chooses from."""
        method: Any = self._pruning_methods[-1]
        mask: Any = default_mask.to(dtype=t.dtype)
        left = _left(method, mask)
        mask[left] = method.compute_mask(t[left], default_mask=mask[left])
        return mask


def _left(method: Any, mask: Any) -> Any:
    """The part of a tensor that a method chooses from, as an index."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * mask.dim()
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
    dim = method.dim % mask.dim()
    return (*(slice(None),) * dim, mask.sum(dim=_others(mask, dim)) != 0)


def _others(t: Tensor, dim: int) -> list[int]:
    return [d for d in range(t.dim()) if d != dim % t.dim()]


# ---------------------------------------------------------------------- methods


class Identity(BasePruningMethod):
    """Prunes nothing, but lets the parameter have a mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod."""
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> Any:  # type: ignore[override] - PyTorch's signature
        """See BasePruningMethod."""
        return super().apply(module, name)


class _ByElement(BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _worth(self, t: Tensor) -> Tensor:
        """By how much each element is to stay."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod."""
        count = _count(self.amount, t.nelement())
        mask = default_mask.clone()
        if count != 0:
            chosen: Any = self._worth(t).view(-1).topk(k=count, largest=False)
            mask.view(-1)[chosen.indices] = 0
        return mask


class RandomUnstructured(_ByElement):
    """Prunes elements at random: a number of them, or (a float) a part of them."""

    def _worth(self, t: Tensor) -> Tensor:
        return -rand_like(t)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> Any:  # type: ignore[override] - PyTorch's signature
        """See BasePruningMethod."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_ByElement):
    """Prunes the elements of least absolute value: a number of them, or (a float) a part of them."""

    def _worth(self, t: Tensor) -> Tensor:
        return t.abs()

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:  # type: ignore[override] - PyTorch's
        """See BasePruningMethod."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(BasePruningMethod):
    """Prunes channels along `dim` at random: a number of them, or (a float) a part of them."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod."""
        count = _count_of_channels(self.amount, t, self.dim)
        if count == 0:
            return default_mask
        numbers_drawn: Any = rand(t.shape[self.dim])
        kept = numbers_drawn > numbers_drawn.kthvalue(k=count).values
        return _of_channels(kept.nonzero().view(-1), t, self.dim, default_mask)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> Any:  # type: ignore[override] - PyTorch's signature
        """See BasePruningMethod."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Prunes the channels along `dim` of least n-norm: a number of them, or (a float) a part of them."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod."""
        count = _count_of_channels(self.amount, t, self.dim)
        if count == 0:
            return default_mask
        norms: Any = norm_(t, self.n, _others(t, self.dim))
        return _of_channels(norms.topk(k=t.shape[self.dim] - count, largest=True).indices, t, self.dim, default_mask)

    @classmethod
    def apply(  # type: ignore[override] - PyTorch's signature
        cls, module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> Any:
        """See BasePruningMethod."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes what is 0 in a mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """See BasePruningMethod. AssertionError where the mask is of another shape."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override] - PyTorch's signature
        """See BasePruningMethod."""
        return super().apply(module, name, mask=mask)


def _of_channels(kept: Any, t: Tensor, dim: int, default_mask: Tensor) -> Tensor:
    """The mask that leaves the channels of the numbers `kept`."""
    mask: Any = zeros_like(t)
    mask[(*(slice(None),) * (dim % t.dim()), kept)] = 1
    return mask * default_mask.to(dtype=mask.dtype)


# ---------------------------------------------------------------------- how much


def _validate_pruning_amount_init(amount: Any) -> None:
    """TypeError, ValueError for what is neither a number of elements nor a part of them."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if not (int(amount) >= 0 if isinstance(amount, numbers.Integral) else 0.0 <= float(amount) <= 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount: Any, size: int) -> Any:
    """How many of `size` are pruned. ValueError where there are fewer."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if int(amount) > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return amount


def _count_of_channels(amount: Any, t: Tensor, dim: int) -> Any:
    """How many channels are pruned. ValueError, IndexError where the tensor has none along `dim`."""
    if len(t.shape) <= 1:
        raise ValueError(
            f"Structured pruning can only be applied to multidimensional tensors. Found tensor of shape {t.shape} with {len(t.shape)} dims"
        )
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
    return _count(amount, t.shape[dim])


# ---------------------------------------------------------------------- functions


def identity(module: Module, name: str) -> Module:
    """Let the parameter of a name have a mask that prunes nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune `amount` elements, or (a float) that part of them, at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the `amount` elements, or (a float) that part of them, of least absolute value, or of least importance."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune `amount` channels along `dim`, or (a float) that part of them, at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> Module:
    """Prune the `amount` channels along `dim`, or (a float) that part of them, of least n-norm, of the parameter or of the importances."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prune several parameters, pairs of a module and a name, as if they were one. pruning_method: a class of "unstructured" methods, made of the
    further arguments. importance_scores: a dict of importances by such pairs. TypeError where they are something else."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    importances = parameters_to_vector([importance_scores.get(pair, getattr(*pair)) for pair in parameters])
    default = cat([getattr(module, name + "_mask", ones_like(getattr(module, name))).view(-1) for module, name in parameters])
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type {method.PRUNING_TYPE}'
        )
    container.add_pruning_method(method)
    mask = container.compute_mask(importances, default)
    at = 0
    for module, name in parameters:
        parameter = getattr(module, name)
        custom_from_mask(module, name, mask=mask[at : at + parameter.numel()].view_as(parameter))
        at += parameter.numel()


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune what is 0 in a mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Let a pruned parameter be what it is now, without a mask. ValueError where it is not pruned."""
    for number, hook in module._forward_pre_hooks.items():
        if _prunes(hook, name):
            hook.remove(module)  # type: ignore[attr-defined] - a pruning method
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or below it, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for found in module.modules() for hook in found._forward_pre_hooks.values())
