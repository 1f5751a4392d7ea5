"""What torchvision and torchaudio do when they are imported, in a program that `torchgrad-jax run` runs: stand-ins of their names do the same."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from side_by_side import like_pytorch

import torchgrad_jax
from torchgrad_jax.cli.torchvision import nms

pytestmark = pytest.mark.operators

FILES = {
    "__init__.py": "from torchvision import _meta, ops",
    "extension.py": """
import torch
try:
    torch.ops.load_library("/torchvision/_C.so")
    found = True
except (ImportError, OSError):
    found = False
def _assert_has_ops():
    if not found:
        raise RuntimeError("Couldn't load custom C++ ops")
""",
    "_meta.py": """
import torch, torchvision.extension
for name in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{name}")(lambda dets, scores, iou_threshold: dets.new_empty(1))
""",
    "ops/boxes.py": """
import torch
from torchvision.extension import _assert_has_ops
def nms(boxes, scores, iou_threshold):
    _assert_has_ops()
    return torch.ops.torchvision.nms(boxes, scores, iou_threshold)
""",
    "ops/__init__.py": "from .boxes import nms\nfrom ._register_onnx_ops import _register_custom_op\n_register_custom_op()",
    "ops/_register_onnx_ops.py": """
import torch
def _register_custom_op():
    torch.onnx.register_custom_op_symbolic("torchvision::nms", None, 11)
""",
}
PROGRAM = """
import torch, torchvision
from torch._dynamo.utils import is_compile_supported
print(torchvision.extension.found, is_compile_supported("cpu"))
print(torchvision.ops.nms(torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]]), torch.tensor([0.5, 0.9, 0.1]), 0.5))
"""
AUDIO_FILES = {
    "__init__.py": "from torchaudio._extension import found",
    "_extension/__init__.py": """
from .utils import _load_lib
found = _load_lib("_torchaudio")
""",
    "_extension/utils.py": """
import torch
def _load_lib(lib):
    torch.ops.load_library(f"/torchaudio/lib/{lib}.so")
    return True
""",
}


@pytest.mark.parametrize(
    ("package", "files", "program", "printed"),
    [
        ("torchvision", FILES, PROGRAM, "False True\ntensor([1, 2])\n"),
        ("torchaudio", AUDIO_FILES, "import torchaudio\nprint(torchaudio.found)", "False\n"),
    ],
)
def test_is_imported_without_its_library(package, files, program, printed, tmp_path):
    for name, text in files.items():
        path = tmp_path / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "program.py").write_text(program)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.path.dirname(os.path.dirname(torchgrad_jax.__file__))])}
    ended = subprocess.run([sys.executable, "-m", "torchgrad_jax.cli", "run", "program.py"], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert (ended.stdout, ended.returncode) == (printed, 0), ended.stderr


def test_which_devices_are_compiled_for():
    def program(m):
        from importlib import import_module

        supported = import_module(f"{m.__name__}._dynamo.utils").is_compile_supported
        return [supported(kind) for kind in ("cpu", "cpu:0", "meta", "mps")]

    like_pytorch(program)()


CORNERS_AND_SIZES = some.tuples(*[some.integers(0, 6)] * 2, *[some.integers(1, 5)] * 2)


def covers(a, b):
    """The share of two boxes' area that is both's."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


@given(some.lists(CORNERS_AND_SIZES, max_size=12), some.sampled_from([0.2, 0.5, 0.9]), some.randoms())
def test_boxes_that_a_better_one_covers_are_left_out(found, threshold, chance):
    boxes = [(x, y, x + w, y + h) for x, y, w, h in found]
    scores = [chance.randrange(5) / 4 for _ in boxes]
    kept = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        if all(covers(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    given = torchgrad_jax.tensor(np.array(boxes, np.float64).reshape(-1, 4))
    assert nms(given, torchgrad_jax.tensor(scores), threshold).tolist() == kept


@pytest.mark.parametrize("boxes, scores, said", [
    ((3,), (3,), "boxes should be a 2d tensor, got 1D"), ((3, 5), (3,), "boxes should have 4 elements in dimension 1, got 5"),
    ((3, 4), (3, 1), "scores should be a 1d tensor, got 2D"), ((3, 4), (2,), "same number of elements in dimension 0, got 3 and 2"),
])  # fmt: skip
def test_boxes_of_other_shapes_are_refused(boxes, scores, said):
    with pytest.raises(RuntimeError, match=said):
        nms(torchgrad_jax.zeros(boxes), torchgrad_jax.zeros(scores), 0.5)


def test_the_processor_is_told_by_pytorchs_names():
    like_pytorch(lambda m: m.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512"))()
