"""Records of what is in no tier and is not declared by itself: other names of functions, forms with indices, copies of views, conversions."""

from __future__ import annotations

from typing import Any

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Make, Record, Samples, each, given, pairs


def _assigned(x: Any, y: Any) -> Any:
    written = x.clone()
    written[1:] = y
    return written


def _signs(make: Make, *shape: int) -> Any:
    return make.bools(*shape) * 2.0 - 1


def _fractional(dims: int) -> Samples:
    numbers = {"_random_samples": tj.tensor([[[0.3, 0.8, 0.1][:dims], [0.9, 0.2, 0.6][:dims]]], dtype=tj.float64)}
    return lambda make: [(make.apart(1, 2, *(5, 4, 4)[:dims]), 2, 2, numbers)]


def _pooled(dims: int) -> Samples:
    places = tj.tensor([[0, 3, 1], [2, 1, 0]]).reshape(2, 3, *(1,) * (dims - 1))
    return lambda make: [(make(1, 2, 3, *(1,) * (dims - 1)), places.unsqueeze(0), 2)]


RECORDS = [
    # drawn at random
    Record("poisson", lambda make: [make(3, low=0.5)], dtypes=REAL, derivatives=None),
    Record("binomial", lambda make: [(make(3, low=2, high=5, gradient=False), make(3, low=0.2, high=0.8))], dtypes=REAL, derivatives=None),
    # written in place
    Record("__setitem__", pairs(((3, 2), (2, 2))), function=_assigned),
    Record("copy_", pairs(((3, 2), (3, 2))), function=lambda x, y: x.clone().copy_(y)),
    Record("fill_diagonal_", each((3, 3)), function=lambda x: x.clone().fill_diagonal_(2.0)),
    # views and copies
    Record("adjoint", each((2, 3), (2, 3, 4))),
    Record("detach", each((3,)), derivatives=0),
    Record("detach_copy", each((3,)), derivatives=None),
    Record("select_copy", given(((3, 2), 0, 1))),
    Record("slice_copy", given(((4, 2), 0, 1, 3))),
    Record("split_copy", given(((5, 2), 2))),
    Record("unsafe_split_with_sizes", given(((5, 2), [2, 3]))),
    Record("view_as_complex_copy", each((3, 2)), dtypes=REAL),
    Record("view_as_real_copy", each((3,)), dtypes=("complex128",)),
    # conversions
    Record("cpu", each((3,))),
    Record("type", lambda make: [(make(3), make.dtype)]),
    Record("type_as", lambda make: [(make(3), make(2, gradient=False))]),
    # matrices
    Record("chain_matmul", pairs(((2, 3), (3, 4), (4, 2)))),
    Record("inverse", lambda make: [make.matrix(3, 3)]),
    Record("slogdet", lambda make: [make.matrix(3, 3)], dtypes=REAL),
    Record("vander", each((3,)), derivatives=None),  # backward raises, as PyTorch's does: what it saves is written to
    # neural networks
    Record("nn.functional.sigmoid", each((2, 3))),
    Record("nn.functional.tanh", each((2, 3))),
    Record("nn.functional.gumbel_softmax", each((2, 3)), dtypes=REAL, derivatives=None),
    Record("nn.functional.dropout1d", given(((2, 3, 4), 0.5, False)), dtypes=REAL),
    Record("dropout", given(((2, 3), 0.5, False)), dtypes=REAL),
    Record("native_dropout", given(((2, 3), 0.5, False)), dtypes=REAL),
    Record("alpha_dropout", given(((2, 3), 0.5, False)), dtypes=REAL),
    Record("feature_dropout", given(((2, 3, 4), 0.5, False)), dtypes=REAL),
    Record("feature_alpha_dropout", given(((2, 3, 4), 0.5, False)), dtypes=REAL),
    Record("nn.functional.fold", given(((1, 8, 9), (4, 4), 2)), dtypes=REAL),
    Record("nn.functional.native_channel_shuffle", given(((1, 4, 2, 2), 2)), dtypes=REAL, derivatives=None),  # PyTorch has none
    Record("nn.functional.upsample", lambda make: [(make(1, 1, 3), 6)], dtypes=REAL),
    Record("nn.functional.lp_pool1d", lambda make: [(make(1, 2, 6, low=0.5), 2.0, 2)], dtypes=REAL),
    Record("nn.functional.lp_pool2d", lambda make: [(make(1, 2, 4, 4, low=0.5), 2.0, 2)], dtypes=REAL),
    Record("nn.functional.lp_pool3d", lambda make: [(make(1, 1, 4, 4, 4, low=0.5), 2.0, 2)], dtypes=REAL),
    Record("adaptive_max_pool1d", lambda make: [(make.apart(1, 2, 8), 4)], dtypes=REAL),
    Record("nn.functional.adaptive_max_pool2d_with_indices", lambda make: [(make.apart(1, 2, 4, 4), 2)], dtypes=REAL),
    Record("nn.functional.adaptive_max_pool3d_with_indices", lambda make: [(make.apart(1, 1, 4, 4, 4), 2)], dtypes=REAL),
    Record("max_pool1d_with_indices", lambda make: [(make.apart(1, 2, 8), 2)], dtypes=REAL),
    Record("nn.functional.max_pool2d_with_indices", lambda make: [(make.apart(1, 2, 4, 4), 2)], dtypes=REAL),
    Record("nn.functional.max_pool3d_with_indices", lambda make: [(make.apart(1, 1, 4, 4, 4), 2)], dtypes=REAL),
    Record("nn.functional.fractional_max_pool2d", _fractional(2), dtypes=REAL),
    Record("nn.functional.fractional_max_pool2d_with_indices", _fractional(2), dtypes=REAL),
    Record("nn.functional.fractional_max_pool3d", _fractional(3), dtypes=REAL),
    Record("nn.functional.fractional_max_pool3d_with_indices", _fractional(3), dtypes=REAL),
    Record("nn.functional.max_unpool1d", _pooled(1), dtypes=REAL),
    Record("nn.functional.max_unpool2d", _pooled(2), dtypes=REAL),
    Record("nn.functional.max_unpool3d", _pooled(3), dtypes=REAL),
    Record("batch_norm", lambda make: [(make(4, 3), make(3), make(3), None, None, True, 0.1, 1e-5, False)], dtypes=REAL),
    Record("group_norm", lambda make: [(make(2, 4, 3), 2, make(4), make(4))], dtypes=REAL),
    Record("layer_norm", lambda make: [(make(3, 4), (4,), make(4), make(4))], dtypes=REAL),
    Record("instance_norm", lambda make: [(make(2, 3, 4), make(3), make(3), None, None, True, 0.1, 1e-5, False)], dtypes=REAL),
    Record("convolution", lambda make: [(make(2, 4, 5), make(4, 3, 2), make(3), [2], [1], [1], True, [1], 1)], dtypes=REAL),
    Record("nn.functional.affine_grid", given(((1, 2, 3), (1, 1, 3, 3), True)), dtypes=REAL),
    Record("affine_grid_generator", given(((1, 2, 3), (1, 1, 3, 3), True)), dtypes=REAL),
    Record("grid_sampler", lambda make: [(make(1, 1, 3, 3), make(1, 2, 2, 2, low=0.1, high=0.4), 0, 0, True)], dtypes=REAL),
    Record("kl_div", lambda make: [(make(3, 2), make(3, 2, low=0.2))], dtypes=REAL),
    Record("cosine_embedding_loss", lambda make: [(make(3, 4), make(3, 4), _signs(make, 3))], dtypes=REAL),
    Record("hinge_embedding_loss", lambda make: [(make(3, 4), _signs(make, 3, 4))], dtypes=REAL),
    Record("margin_ranking_loss", lambda make: [(make(3), make(3), _signs(make, 3))], dtypes=REAL),
    Record("poisson_nll_loss", lambda make: [(make(3), make(3, low=0.5), True, False, 1e-8, 1)], dtypes=REAL),
    Record("triplet_margin_loss", pairs(((3, 4), (3, 4), (3, 4))), dtypes=REAL),
]
