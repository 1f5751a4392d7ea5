"""The level of reverse mode: its tensors have a graph of their own."""

from __future__ import annotations

from collections.abc import Sequence

from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.core.node import Edge
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.level import Level
from torchgrad_jax.runtime.recorder import Recorder, per_thread


class GradLevel(Level):
    """The level of reverse mode: its graph is its own, and each of its operations is recorded outside too, where that is asked for."""

    __slots__ = ()
    own_grad_mode = True
    refuses_hooks = "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your use case."

    def opened(self, rec: Recorder) -> None:
        """See Level: what is made inside is differentiated wherever it stands."""
        rec.grad_enabled = True

    def wrap(self, t: Tensor) -> Tensor:
        """What the function is given for `t`."""
        return self.argument(self.lift(t), t)

    def require_grad(self, t: Tensor) -> Tensor:
        """Let gradients for `t`, of this level, be recorded. RuntimeError for other dtypes than floating point and complex ones."""
        t.requires_grad = True
        return t

    def pull(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """See `along`. outputs, inputs: tensors of this level."""
        roots = [(y._edge(), g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        return self.along([edge for edge, _ in roots], [x._edge() for x in inputs], [g for _, g in roots])

    def along(self, outputs: Sequence[Edge], inputs: Sequence[Edge], cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of `inputs`, given those of `outputs`: None for what is not reached.

        outputs, inputs: edges of tensors of this level, be it left. cotangents and the results: of where this is called, which may be inside of
        levels that were opened since.
        """
        if not self.open:
            try:
                with self:
                    return self.along(outputs, inputs, cotangents)
            finally:
                self.outside = None  # type: ignore[assignment] - an interrupt may have come before it was left
        outside, recording = self.outside, per_thread.recorder.grad_enabled
        outside.records = True
        try:
            found = run_backward(
                list(outputs),
                [g if self.owns(g) else self.lift(g) for g in cotangents],
                retain_graph=True,
                create_graph=False,
                captures=list(inputs),
                accumulate=False,
            )
        finally:
            outside.records = False
            per_thread.recorder.grad_enabled = recording
        return [None if g is None else self.unwrap(g) for g in found]


def grad_level() -> GradLevel:
    """Opens a level of reverse mode for a block."""
    return GradLevel()
