"""Instance normalization."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.batchnorm import _LazyNormBase, _NormBase
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """Each channel of each sample brought to mean 0 and variance 1, or by the running statistics, if there are any, outside training."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self) -> int:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """(N, num_features, *) or (num_features, *) to the same. ValueError for another number of dimensions or, if affine, of channels."""
        self._check_input_dim(input)
        unbatched = input.dim() == self._get_no_batch_dim()
        dim = 0 if unbatched else 1
        if input.size(dim) != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: {input.size(dim)}.")
            warn_user(
                f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in num_features, which is not "
                "used because affine=False"
            )
        if unbatched:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)

    def _apply_instance_norm(self, input: Tensor) -> Any:
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias, by_input, momentum, self.eps)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str], unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:  # fmt: skip
        """See Module. States of before version 2 may have statistics that the module would not have kept."""
        if local_metadata.get("version") is None and not self.track_running_stats:
            found = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if found:
                names, own = " and ".join(f'"{name}"' for name in found), type(self).__name__
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {names} for {own} with track_running_stats=False. If state_dict is a checkpoint saved "
                    f"before 0.4.0, this may be expected because {own} does not track running stats by default since 0.4.0. Please remove these keys "
                    f"from state_dict. If the running stats are actually needed, instead set track_running_stats=True in {own} to enable them. See "
                    f"the documentation of {own} for details."
                )
                for key in found:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


class _Spatial(_InstanceNorm):
    """dims: how many spatial dimensions there are."""

    _spatial_dims: int

    def _get_no_batch_dim(self) -> int:
        return self._spatial_dims + 1

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (self._spatial_dims + 1, self._spatial_dims + 2):
            raise ValueError(f"expected {self._spatial_dims + 1}D or {self._spatial_dims + 2}D input (got {input.dim()}D input)")


class InstanceNorm1d(_Spatial):
    """Instance normalization of (N, C, L) or (C, L)."""

    _spatial_dims = 1


class InstanceNorm2d(_Spatial):
    """Instance normalization of (N, C, H, W) or (C, H, W)."""

    _spatial_dims = 2


class InstanceNorm3d(_Spatial):
    """Instance normalization of (N, C, D, H, W) or (C, D, H, W)."""

    _spatial_dims = 3


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):  # type: ignore[misc] - it has no num_features
    """InstanceNorm1d whose num_features the first input tells."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):  # type: ignore[misc] - it has no num_features
    """InstanceNorm2d whose num_features the first input tells."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):  # type: ignore[misc] - it has no num_features
    """InstanceNorm3d whose num_features the first input tells."""

    cls_to_become = InstanceNorm3d
