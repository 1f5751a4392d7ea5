"""`torch.func`: transforms of functions of tensors."""

from torchgrad_jax.func.forward import jvp, linearize
from torchgrad_jax.func.functionalizing import debug_unwrap, functionalize
from torchgrad_jax.func.jacobians import hessian, jacfwd, jacrev
from torchgrad_jax.func.modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from torchgrad_jax.func.rearranging import rearrange
from torchgrad_jax.func.reverse import grad, grad_and_value, vjp
from torchgrad_jax.func.vmapping import vmap

__all__ = [
    "grad", "grad_and_value", "vmap", "replace_all_batch_norm_modules_", "functionalize", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "rearrange", "vjp", "functional_call", "stack_module_state", "debug_unwrap",
]  # fmt: skip
