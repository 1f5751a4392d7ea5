"""`torch.nn.functional`: sampling at the points of a grid."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.operators import grid as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["affine_grid", "grid_sample"]

_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _corners(align_corners: bool | None) -> bool:
    if align_corners is None:
        warn_user(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True "
            "if the old behavior is desired. See the documentation of grid_sample for details.",
            UserWarning,
        )
    return bool(align_corners)


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None) -> Tensor:
    """The values of (N, C, H, W) at the points of a grid (N, H', W', 2) as (N, C, H', W'); likewise with three spatial dimensions.

    Points (x, y) run from -1 to 1, with `align_corners` between the centres of the outermost pixels, else between their outer edges. `mode`:
    "bilinear", "nearest", or "bicubic" (images only). What lies outside is by `padding_mode` 0 ("zeros"), the nearest pixel ("border") or the
    mirrored image ("reflection").

    ValueError for unknown modes; RuntimeError where sizes or dtypes do not fit; NotImplementedError for dtypes other than floating point.
    """
    if mode not in _MODES:
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in _PADDINGS:
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'")
    return grid_sampler(input, grid, _MODES[mode], _PADDINGS[padding_mode], _corners(align_corners))


@public("torch")
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """`grid_sample` with its modes as numbers, in the order in which that names them."""
    expect_tensor("grid_sampler", input)
    expect_tensor("grid_sampler", grid, "grid", 2)
    name = f"grid_sampler_{3 if input._aval.ndim == 5 else 2}d"
    bound = registry[name].bind((ARRAY, ARRAY, Static(int(interpolation_mode)), Static(int(padding_mode)), Static(bool(align_corners))))
    return apply(bound, (input, grid))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid (N, H, W, 2) for `grid_sample` that affine maps (N, 2, 3) make, for a result of size (N, C, H, W); likewise (N, 3, 4) with three
    spatial dimensions.

    ValueError for an empty size, a wrong shape or dtype of `theta`; NotImplementedError for other numbers of dimensions.
    """
    corners = _corners(align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    sizes = tuple(operator.index(n) for n in size)
    if len(sizes) not in (4, 5):
        raise NotImplementedError(f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {size}.")
    dims = len(sizes) - 2
    if theta._aval.ndim != 3 or theta._aval.shape[-2:] != (dims, dims + 1):
        raise ValueError(f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {size}. Got {theta.size()}.")
    if corners and 1 in sizes[2:]:
        warn_user(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when align_corners=True. This is not an intended use case "
            "of affine_grid. See the documentation of affine_grid for details.",
            UserWarning,
        )
    if min(sizes) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return apply(registry["affine_grid_generator"].bind((ARRAY, Static(sizes), Static(corners))), (theta,))
