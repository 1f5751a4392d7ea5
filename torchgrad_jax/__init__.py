"""PyTorch's autograd programming model on XLA: ``import torchgrad_jax as torch``."""

import gc as _gc
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from torchgrad_jax import distributions, func, nn, optim, profiler, serialization, testing  # noqa: F401

# Nothing that an import makes is garbage: looking for some takes a fifth of its time.
_collects = _gc.isenabled()
_gc.disable()

from torchgrad_jax import _typed  # noqa: E402

_typed.use()

from torchgrad_jax.runtime.compiling import compile_cache as _compile_cache  # noqa: E402

_compile_cache.use()

from torchgrad_jax.runtime import lazy as _lazy  # noqa: E402

nn = _lazy.subpackage(__name__, "nn")
# Who asks for functions alone need not wait for all modules.
vars(nn).update(_lazy.submodules(nn.__name__, ("functional",)), utils=_lazy.subpackage(nn.__name__, "utils"))
func = _lazy.subpackage(__name__, "func")
optim = _lazy.subpackage(__name__, "optim")
profiler = _lazy.subpackage(__name__, "profiler")
distributions = _lazy.subpackage(__name__, "distributions")
serialization = _lazy.submodules(__name__, ("serialization",))["serialization"]

from torchgrad_jax.namespace import api as _api  # noqa: E402

globals().update(_api.public())

from torchgrad_jax import (  # noqa: E402, F401
    _C,
    __future__,
    _vmap_internals,
    autograd,
    explain,
    fft,
    jit,
    linalg,
    overrides,
    random,
    runtime,
    sparse,
    special,
    storage,
    utils,
)
from torchgrad_jax import interop as _interop  # noqa: E402
from torchgrad_jax._C import DeviceObjType, ScriptObject, StreamObjType, TensorType  # noqa: E402, F401
from torchgrad_jax._ops import Tag, ops  # noqa: E402, F401
from torchgrad_jax.autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_enabled  # noqa: E402, F401
from torchgrad_jax.autograd.autocast_mode import (  # noqa: E402, F401
    autocast,
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_cpu_dtype,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    get_autocast_ipu_dtype,
    get_autocast_xla_dtype,
    is_autocast_cache_enabled,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
    is_autocast_ipu_enabled,
    is_autocast_xla_enabled,
    set_autocast_cache_enabled,
    set_autocast_cpu_dtype,
    set_autocast_cpu_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
    set_autocast_gpu_dtype,
    set_autocast_ipu_dtype,
    set_autocast_ipu_enabled,
    set_autocast_xla_dtype,
    set_autocast_xla_enabled,
)
from torchgrad_jax.autograd.grad_mode import (  # noqa: E402, F401
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from torchgrad_jax.autograd.grad_scaler import GradScaler  # noqa: E402, F401
from torchgrad_jax.calling.overrides import DisableTorchFunction, DisableTorchFunctionSubclass  # noqa: E402, F401
from torchgrad_jax.calling.overrides import guard_methods as _guard_methods  # noqa: E402
from torchgrad_jax.determinism import (  # noqa: E402, F401
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode,
    use_deterministic_algorithms,
)
from torchgrad_jax.distributions.names import MODULES as _modules_of_distributions  # noqa: E402
from torchgrad_jax.func.branching import cond, while_loop  # noqa: E402, F401
from torchgrad_jax.func.vmapping import vmap  # noqa: E402, F401
from torchgrad_jax.futures import PlainFuture as Future  # noqa: E402, F401
from torchgrad_jax.lifting import basis as _basis  # noqa: E402, F401 - puts its functions where autograd finds them
from torchgrad_jax.lifting.from_jax import from_jax  # noqa: E402, F401
from torchgrad_jax.lifting.jitting import compile  # noqa: E402, F401
from torchgrad_jax.lifting.replaced import watch as _watch  # noqa: E402
from torchgrad_jax.lifting.to_jax import to_jax  # noqa: E402, F401
from torchgrad_jax.namespace import imported as _imported  # noqa: E402
from torchgrad_jax.namespace.methods import install_inplace_operators as _install_inplace_operators  # noqa: E402
from torchgrad_jax.runtime.observing.streams import Event, Stream  # noqa: E402, F401
from torchgrad_jax.runtime.passing_through import decorator as _disable_dynamo  # noqa: E402, F401
from torchgrad_jax.runtime.recovery import AcceleratorError, OutOfMemoryError  # noqa: E402, F401
from torchgrad_jax.runtime.settings import (  # noqa: E402, F401
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
)
from torchgrad_jax.runtime.user_code import is_warn_always_enabled, set_warn_always  # noqa: E402, F401

globals().update(_lazy.submodules(__name__, (
    "__config__", "_dynamo", "_inductor", "_jit_internal", "_subclasses", "_tensor_str", "_utils", "accelerator", "amp", "backends", "compiler",
    "cpu", "cuda", "export", "functional", "hub", "library", "masked", "mps", "multiprocessing", "quasirandom", "return_types", "signal", "testing",
    "torch_version", "types", "version", "viz", "xpu",
)))  # fmt: skip
globals().update({_name: _lazy.subpackage(__name__, _name) for _name in ("distributed", "fx", "onnx")})
_lazy.further_names(f"{__name__}.distributions", {name: ours for name, (ours, _) in _modules_of_distributions.items()})
for _name, _source in (("profiler", "names"), ("profiler_util", "util"), ("profiler_legacy", "legacy")):
    _lazy.module_elsewhere(f"{__name__}.autograd", _name, f"profiler/autograd_{_source}.py")
_lazy.module_elsewhere(f"{__name__}.utils", "flop_counter", "profiler/flop_counter.py")
_lazy.module_elsewhere(f"{__name__}.jit", "annotations", "namespace/jit_annotations.py")
_lazy.module_elsewhere(__name__, "_functorch", "func/private.py")
_lazy.module_elsewhere(__name__, "_logging", "_inductor/logging.py")


setattr(ops, "profiler", _lazy.submodules(f"{__name__}.profiler", ("operators",))["operators"])  # noqa: B010 - it finds its own by itself
_interop.register()
_guard_methods()
_install_inplace_operators()
# PyTorch's modules see the package itself under this name, and programs use it: of `autograd` it is no name of its own.
torch = _sys.modules[__name__]
setattr(autograd, "torch", torch)  # noqa: B010

_watch(torch, _api.Tensor, special, linalg, fft)
_lazy.when_loaded(nn.functional, _watch)
_imported.settle()
if _collects:
    _gc.enable()


def load_ipython_extension(shell: object) -> None:
    """``%load_ext torchgrad_jax``: `import torch` means torchgrad_jax in this session, and its frames are left out of tracebacks."""
    from torchgrad_jax.cli import alias, tracebacks, workers

    alias.install()
    workers.follow()
    tracebacks.install_in(shell)


__version__ = "0.1.0"
