"""`torch.utils`: what programs use beside tensors and gradients."""

from torchgrad_jax.runtime import lazy
from torchgrad_jax.utils import _pytree, dlpack
from torchgrad_jax.utils.swapping import swap_tensors

_modules = lazy.submodules(
    __name__,
    ("_contextlib", "_foreach_utils", "benchmark", "checkpoint", "collect_env", "cpp_extension", "deterministic", "hooks", "model_zoo", "weak"),
)
benchmark, checkpoint, deterministic, hooks = _modules["benchmark"], _modules["checkpoint"], _modules["deterministic"], _modules["hooks"]
_foreach_utils, collect_env, cpp_extension, model_zoo = (
    _modules["_foreach_utils"],
    _modules["collect_env"],
    _modules["cpp_extension"],
    _modules["model_zoo"],
)
_contextlib, weak = _modules["_contextlib"], _modules["weak"]
data = lazy.subpackage(__name__, "data")

__all__ = [
    "_contextlib",
    "_foreach_utils",
    "_pytree",
    "benchmark",
    "checkpoint",
    "collect_env",
    "cpp_extension",
    "data",
    "deterministic",
    "dlpack",
    "hooks",
    "model_zoo",
    "swap_tensors",
    "weak",
]
