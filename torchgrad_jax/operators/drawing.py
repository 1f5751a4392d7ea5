"""Operators that put numbers drawn on the host into the graph: the numbers are operands."""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp

from torchgrad_jax.declaration.converting import zeros_like_grad
from torchgrad_jax.declaration.operator import ARRAY, NOT_IMPLEMENTED, op, registry
from torchgrad_jax.declaration.refusals import kernel, no_derivative, not_implemented
from torchgrad_jax.operators.kernels import implicit
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.operation import signature
from torchgrad_jax.runtime.value import aval_of

_NODES = {
    "uniform": "UniformBackward0", "normal": "NormalBackward0", "exponential": "ExponentialBackward0", "geometric": "GeometricBackward0",
    "cauchy": "CauchyBackward0", "log_normal": "LogNormalBackward0", "bernoulli": "BernoulliBackward2",
    "random": "RandomBackward2", "random_to": "RandomBackward1", "random_from_to": "RandomBackward0",
}  # fmt: skip
for _name, _node in _NODES.items():

    @op(f"{_name}_drawn(Tensor self, Tensor src)", method=False, toplevel=False, node=_node,
        grads={"self": zeros_like_grad})  # fmt: skip
    def _replace(x: Any, src: Any) -> Any:
        return src


@op("bernoulli_of_tensor_drawn(Tensor self, Tensor p, Tensor src)", method=False, toplevel=False, node="BernoulliBackward1",
    grads={"self": zeros_like_grad, "p": lambda grad: jnp.zeros((), grad.dtype)})  # fmt: skip
def _replace_by_tensor(x: Any, p: Any, src: Any) -> Any:
    return src


@op("_drawn_of(Tensor self, Tensor src, str node)", method=False, toplevel=False, edges=("self",), node=lambda node: node,
    grads={"self": zeros_like_grad})  # fmt: skip
def _of_one(x: Any, src: Any, node: str) -> Any:
    return src


@op("_drawn_of_two(Tensor self, Tensor other, Tensor src, str node)", method=False, toplevel=False, edges=("self", "other"),
    node=lambda node: node, grads={n: lambda grad: jnp.zeros((), grad.dtype) for n in ("self", "other")})  # fmt: skip
def _of_two(x: Any, y: Any, src: Any, node: str) -> Any:
    return src


@op("bernoulli_of_number(Tensor self, Tensor src)", method=False, toplevel=False, node=NOT_IMPLEMENTED, grads={"self": no_derivative("bernoulli")})
def _of_number(x: Any, src: Any) -> Any:
    return src


@op("binomial_of_two(Tensor count, Tensor prob, Tensor src)", method=False, toplevel=False, node=NOT_IMPLEMENTED,
    grads={"count": no_derivative("binomial"), "prob": no_derivative("binomial")})  # fmt: skip
def _of_counts(count: Any, prob: Any, src: Any) -> Any:
    return src


def _of_samples(concentration: Any) -> Any:
    """The plan of the gradients of gamma samples of concentrations like these; None where there is none."""
    aval = aval_of(concentration.shape, concentration.dtype)
    return signature(registry["_standard_gamma_grad"].bind((ARRAY, ARRAY)), (aval, aval)).baseline


def _of_gamma_like(grad: Any, aval: Any, concentration: Any, drawn: Any) -> Any:
    alike = concentration.dtype == drawn.dtype == grad.dtype == aval.dtype and aval.size
    return grad if alike and _of_samples(concentration) is not None else None


_OF_GAMMA = Forms(
    lambda grad, aval, concentration, drawn: grad * _of_samples(concentration)(concentration, drawn)[0], _of_gamma_like, planned=True,
    fused=lambda grad, concentration, drawn: _of_samples(concentration).cost,
)  # fmt: skip


@op("_standard_gamma_drawn(Tensor self, Tensor src)", method=False, toplevel=False, node="StandardGammaBackward0",
    numpy_vjp=_OF_GAMMA,
    grads={"self": lambda grad, self, result: grad * implicit.standard_gamma_grad(self, result)})  # fmt: skip
def _of_concentration(concentration: Any, src: Any) -> Any:
    return src


@op("_sample_dirichlet_drawn(Tensor self, Tensor src)", method=False, toplevel=False, node=NOT_IMPLEMENTED,
    grads={"self": no_derivative("_sample_dirichlet")})  # fmt: skip
def _of_concentrations(concentration: Any, src: Any) -> Any:
    return src


@op("_standard_gamma_grad(Tensor self, Tensor output)", promote="common", method=False,
    grads={n: not_implemented("_standard_gamma_grad") for n in ("self", "output")})  # fmt: skip
@kernel("_standard_gamma_grad_cpu", "biuch")
def _standard_gamma_grad(concentration: Any, sample: Any) -> Any:
    """The derivative of gamma samples of rate 1 by their concentration."""
    return implicit.standard_gamma_grad(concentration, sample)


@op("_dirichlet_grad(Tensor x, Tensor alpha, Tensor total)", promote="common", method=False, node=NOT_IMPLEMENTED,
    grads={n: no_derivative("_dirichlet_grad") for n in ("x", "alpha", "total")})  # fmt: skip
@kernel("_dirichlet_grad_cpu", "biuch")
def _dirichlet_grad(sample: Any, concentration: Any, total: Any) -> Any:
    """The derivative of Beta(alpha, total - alpha) samples x by alpha, over 1 - x."""
    return implicit.dirichlet_grad(sample, concentration, total)


@op("_native_dropout(Tensor input, Tensor mask, Scalar scale)", elementwise=True, method=False, toplevel=False, node="NativeDropoutBackward0",
    grads={"input": lambda grad, mask, scale: (grad * mask * scale).astype(grad.dtype)})  # fmt: skip
def _kept(x: Any, mask: Any, scale: Any) -> Any:
    return (x * mask * scale).astype(x.dtype)
