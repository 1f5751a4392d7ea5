"""What torchvision does when it is imported, in a program that `torchgrad-jax run` runs: a stand-in of its name, which does the same."""

import os
import subprocess
import sys

import pytest
from side_by_side import like_pytorch

import torchgrad_jax

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
""",
    "_meta.py": """
import torch, torchvision.extension
for name in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{name}")(lambda dets, scores, iou_threshold: dets.new_empty(1))
""",
    "ops/__init__.py": "from ._register_onnx_ops import _register_custom_op\n_register_custom_op()",
    "ops/_register_onnx_ops.py": """
import torch
def _register_custom_op():
    torch.onnx.register_custom_op_symbolic("torchvision::nms", None, 11)
""",
}
PROGRAM = """
import torchvision
from torch._dynamo.utils import is_compile_supported
print(torchvision.extension.found, is_compile_supported("cpu"))
"""


def test_is_imported_without_its_library(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "torchvision" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.path.dirname(os.path.dirname(torchgrad_jax.__file__))])}
    ended = subprocess.run([sys.executable, "-m", "torchgrad_jax.cli", "run", "program.py"], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert (ended.stdout, ended.returncode) == ("False True\n", 0), ended.stderr


def test_which_devices_are_compiled_for():
    def program(m):
        from importlib import import_module

        supported = import_module(f"{m.__name__}._dynamo.utils").is_compile_supported
        return [supported(kind) for kind in ("cpu", "cpu:0", "meta", "mps")]

    like_pytorch(program)()
