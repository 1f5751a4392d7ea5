"""AdaptiveLogSoftmaxWithLoss (Grave et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.indexing import known_bounds
from torchgrad_jax.functions.overloads import where
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.nn.modules.container import ModuleList, Sequential
from torchgrad_jax.nn.modules.linear import Linear
from torchgrad_jax.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class Output(NamedTuple):
    """The log-probability of each target, and minus their mean."""

    output: Tensor
    loss: Tensor


Output.__name__ = "_ASMoutput"


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes, sorted by how frequent they are: the frequent ones, and one entry for each cluster of rarer ones, are in the head;
    within a cluster the input is first mapped to fewer features.

    cutoffs: where clusters begin, in increasing order. div_value: the cluster i (from 1) has in_features / div_value ** i features. head_bias:
    whether the head has a bias. head: a Linear; tail: of each cluster two Linears. ValueError where the cutoffs do not fit.

    All clusters are computed for all inputs, since XLA compiles anew for every other number of rows; PyTorch computes those that a target is in.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is between 1 and "
                "n_classes-1"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            features, size = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            maps = [Linear(n, m, bias=False, device=device, dtype=dtype) for n, m in ((in_features, features), (features, size))]
            self.tail.append(Sequential(*maps))

    def reset_parameters(self) -> None:
        """Draw weights anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> Output:
        """(N, in_features) and classes (N,), or both without N, to `output` (N,) and `loss` (). RuntimeError where they do not fit. Looks at
        target_."""
        batched = self._softmax_is_batched(input_, target_)
        input, target = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        self._softmax_check_classes(target)
        shortlist = self.cutoffs[0]
        head = F.log_softmax(self.head(input), dim=1)
        entry, within = target.clamp(max=shortlist - 1), None
        classes = np.asarray(target._concrete()) if target._content().readable else None
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            if classes is not None and not ((classes >= low) & (classes < high)).any():
                continue  # its weights have no gradient
            here = (target >= low) & (target < high)
            of_cluster = _chosen(F.log_softmax(self.tail[i](input), dim=1), (target - low).clamp(0, high - low - 1))
            entry = where(here, shortlist + i, entry)
            added = where(here, of_cluster, 0.0)
            within = added if within is None else within + added
        output = _chosen(head, entry) if within is None else _chosen(head, entry) + within
        if not batched:
            output = output.squeeze(0)
        return Output(output, (-output).mean())

    def _softmax_is_batched(self, input: Tensor, target: Tensor) -> bool:
        if target.dim() == 1:
            if input.shape[0] != target.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input.dim() != 2:
                raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with size {input.size()}")
        elif target.dim() == 0:
            if input.dim() != 1:
                raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input.size()}")
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        return target.dim() == 1

    def _softmax_check_classes(self, target: Tensor) -> None:
        bounds = known_bounds(target) if target.numel() else (0, 0)
        if bounds is None and target._content().readable:
            values = np.asarray(target._concrete())
            bounds = int(values.min()), int(values.max())
        if bounds is not None and (bounds[0] < 0 or bounds[1] >= self.n_classes):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{bounds[0]}, {bounds[1]}] were found. "
            )  # fmt: skip

    def log_prob(self, input: Tensor) -> Tensor:
        """(N, in_features) to the log-probabilities of all classes, (N, n_classes)."""
        head = F.log_softmax(self.head(input), dim=1)
        clusters = [F.log_softmax(self.tail[i](input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1) for i in range(self.n_clusters)]
        return cat([head[:, : self.shortlist_size], *clusters], 1)

    def predict(self, input: Tensor) -> Tensor:
        """(N, in_features) to the most probable classes, (N,)."""
        return call("argmax", self.log_prob(input), 1, False)


def _chosen(rows: Tensor, index: Tensor) -> Tensor:
    """The element of each row at its index."""
    return rows.gather(1, index.unsqueeze(1)).squeeze(1)
