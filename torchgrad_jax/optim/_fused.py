"""What `torch._fused_adam_` and the like do: the step of an optimizer, of lists that its caller keeps."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.adagrad import Adagrad
from torchgrad_jax.optim.adam import Adam
from torchgrad_jax.optim.by_parameter import ByParameter
from torchgrad_jax.optim.scalars import settings_of
from torchgrad_jax.optim.sgd import SGD

Tensors = Sequence[Tensor]
# The lists that are not named by the plural of what is in a state.
_LISTS = {"step": "state_steps", "sum": "state_sums", "momentum_buffer": "momentum_buffer_list"}


@no_grad()
def _step(
    kind: type[ByParameter], params: Tensors, grads: Tensors, columns: dict[str, Tensors], grad_scale: Tensor | None, found_inf: Tensor | None,
    unwritten: Tensors = (), **settings: Any,
) -> None:  # fmt: skip
    """A step, already counted, of an optimizer: columns are the tensors of the states by their names, unwritten those that are to be 0 first.
    RuntimeError for lists of several lengths."""
    if found_inf is not None and bool(found_inf):
        return
    for name, tensors in {"grad": grads, **columns}.items():
        if len(tensors) != len(params):
            raise RuntimeError(
                f"Expected {_LISTS.get(name, name + 's')}.size() == n_tensors to be true, but got false.  (Could this error message be improved?  "
                "If so, please report an enhancement request to PyTorch.)"
            )
    for t in unwritten:
        t.zero_()
    if grad_scale is not None:
        for grad in grads:
            grad.div_(grad_scale)
    states = [{name: tensors[i] for name, tensors in columns.items()} for i in range(len(params))]
    h: SimpleNamespace = settings_of({**settings, "fused": True})
    kind.update(h, [name for name in columns if name != "step"], params, grads, states, counted=True)


def adam(
    self: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, max_exp_avg_sqs: Tensors, state_steps: Tensors, *, lr: Any, beta1: float,
    beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool, grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None, decoupled_weight_decay: bool = False,
) -> None:  # fmt: skip
    """`torch._fused_adam_`: see `Adam`. Steps are counted before it is called."""
    columns = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, **({"max_exp_avg_sq": max_exp_avg_sqs} if amsgrad else {}), "step": state_steps}
    _step(
        Adam, self, grads, columns, grad_scale, found_inf, lr=lr, betas=(beta1, beta2), weight_decay=weight_decay, eps=eps, amsgrad=amsgrad,
        maximize=maximize, decoupled_weight_decay=decoupled_weight_decay,
    )  # fmt: skip


def adamw(*args: Any, **kwargs: Any) -> None:
    """`torch._fused_adamw_`: see `AdamW`."""
    adam(*args, **kwargs, decoupled_weight_decay=True)


def adagrad(
    self: Tensors, grads: Tensors, state_sums: Tensors, state_steps: Tensors, *, lr: Any, lr_decay: float, weight_decay: float, eps: float,
    maximize: bool, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
) -> None:  # fmt: skip
    """`torch._fused_adagrad_`: see `Adagrad`. Steps are counted before it is called."""
    _step(
        Adagrad, self, grads, {"sum": state_sums, "step": state_steps}, grad_scale, found_inf, lr=lr, lr_decay=lr_decay,
        weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip


def sgd(
    self: Tensors, grads: Tensors, momentum_buffer_list: Tensors, *, weight_decay: float, momentum: float, lr: Any, dampening: float, nesterov: bool,
    maximize: bool, is_first_step: bool, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
) -> None:  # fmt: skip
    """`torch._fused_sgd_`: see `SGD`. is_first_step: whether the velocities are yet to be written."""
    columns = {"momentum_buffer": momentum_buffer_list} if momentum else {}
    _step(
        SGD, self, grads, columns, grad_scale, found_inf, momentum_buffer_list if is_first_step and momentum else (), lr=lr, momentum=momentum,
        dampening=0.0 if is_first_step else dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
    )  # fmt: skip
