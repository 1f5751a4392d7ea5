"""`torch.nn.utils.spectral_norm`: spectral normalization by a hook before `forward`."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from torchgrad_jax.nn.modules.module import Module

__all__ = ["SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook that computes the tensor `name` of a module: ``<name>_orig``, as a matrix, over its largest singular value, of which ``<name>_u`` and
    ``<name>_v`` are the singular vectors so far."""

    # 1: states have the vector v; before, it was computed.
    _version: int = 1
    name: str
    dim: int
    n_power_iterations: int
    eps: float

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        self.name, self.dim = name, dim
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.n_power_iterations, self.eps = n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        """The tensor as a matrix of the rows along `dim`."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.dim()) if d != self.dim])
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Any:
        """The tensor, after the steps of the power method if `do_power_iteration`; these write to the vectors, which copies of the module share."""
        weight, u, v = (getattr(module, self.name + part) for part in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v = F.normalize(matrix.t().mv(u), dim=0, eps=self.eps, out=v)
                    u = F.normalize(matrix.mv(v), dim=0, eps=self.eps, out=u)
                u, v = u.clone(), v.clone()  # what backward saves is not what the next call writes to
        return weight / u.dot(matrix.mv(v))

    def remove(self, module: Module) -> None:
        """Let the tensor be a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for part in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + part)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, matrix: Any, u: Any, sigma: Any) -> Any:
        """The v with u = matrix @ v up to a factor, which is such that u @ matrix @ v is `sigma`."""
        v = matrix.t().mm(matrix).pinverse().mm(matrix.t()).mv(u)
        return v.mul_(sigma / u.dot(matrix.mv(v)))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Put the hook onto a module. RuntimeError where it is there, ValueError where the parameter is None."""
        if any(isinstance(hook, SpectralNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight: Any = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with no_grad():
            rows, columns = made.reshape_weight_to_matrix(weight).size()
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)  # an attribute, so that what reads it before the first call finds it
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(SpectralNormStateDictHook(made))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(made))
        return made


class SpectralNormLoadStateDictPreHook:
    """Understands states of before version 1, which have the normalized tensor in place of the vector v."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str], unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:  # fmt: skip
        name = prefix + self.fn.name
        version = local_metadata.get("spectral_norm", {}).get(self.fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        if version is None and name not in state_dict and all(name + part in state_dict for part in ("_orig", "_u", "_v")):
            return  # of today, without what says so
        missing = [name + part for part in ("_orig", "", "_u") if name + part not in state_dict]
        if missing:
            if strict:
                missing_keys.extend(missing)
            return
        with no_grad():
            original, weight = state_dict[name + "_orig"], state_dict.pop(name)
            matrix = self.fn.reshape_weight_to_matrix(original)
            state_dict[name + "_v"] = self.fn._solve_v_and_rescale(matrix, state_dict[name + "_u"], (original / weight).mean())


class SpectralNormStateDictHook:
    """Puts the version into the state's metadata."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Module:
    """`torch.nn.utils.parametrizations.spectral_norm` by a hook (Miyato et al. 2018): the parameter ``<name>_orig`` and the buffers ``<name>_u`` and
    ``<name>_v``. dim: the dimension of outputs; 0 by default, 1 for transposed convolutions. ValueError, RuntimeError where it cannot be."""
    SpectralNorm.apply(module, name, n_power_iterations, rows_of(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Take spectral normalization from a module. ValueError where it has none."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for number, hook in list(hooks.items()):
            if isinstance(hook, (SpectralNormStateDictHook, SpectralNormLoadStateDictPreHook)) and hook.fn.name == name:
                del hooks[number]
    return module


def rows_of(module: Module) -> int:
    """The dimension of a layer's weight that is its outputs."""
    return int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))
