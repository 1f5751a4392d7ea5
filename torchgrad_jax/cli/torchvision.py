"""What torchvision needs of its library of C++, which needs PyTorch's: it does without but for shapes that it registers at its import, and for
`torchvision.ops.nms`, which the models that detect things end in."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from torchgrad_jax.functions.creation import from_numpy


def extension(_module: ModuleType) -> None:
    """torchvision does without its library, and says so where an operator of it is called; but it registers shapes for these regardless."""
    library = sys.modules["torch"].library
    for name in ("nms", "qnms"):
        library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("torchvision::nms", "default", nms)


def onnx(module: ModuleType) -> None:
    """How an export to ONNX is to write torchvision's operators needs no saying where there is no such export."""
    vars(module)["_register_custom_op"] = lambda: None


def boxes(module: ModuleType) -> None:
    """`nms` is there, without the library."""
    vars(module)["_assert_has_ops"] = lambda: None


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """The indices (k,) of boxes that are kept, by falling score: those that no kept one of a higher score covers by more than `iou_threshold`, which
    is the area of both over that of either. dets: (n, 4), the corners x1, y1, x2, y2; scores: (n,). RuntimeError for other shapes."""
    if dets.dim() != 2:
        raise RuntimeError(f"boxes should be a 2d tensor, got {dets.dim()}D")
    if dets.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    if scores.dim() != 1:
        raise RuntimeError(f"scores should be a 1d tensor, got {scores.dim()}D")
    if len(scores) != len(dets):
        raise RuntimeError(f"boxes and scores should have same number of elements in dimension 0, got {len(dets)} and {len(scores)}")
    corners = dets.detach().cpu().numpy()
    low, high = corners[:, :2], corners[:, 2:]
    area = (high - low).prod(1)
    left, kept = np.argsort(-scores.detach().cpu().numpy(), kind="stable"), []
    while left.size:
        first, left = left[0], left[1:]
        kept.append(first)
        both = np.maximum(np.minimum(high[first], high[left]) - np.maximum(low[first], low[left]), 0).prod(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            left = left[~(both / (area[first] + area[left] - both) > iou_threshold)]
    return from_numpy(np.array(kept, np.int64)).to(dets.device)
