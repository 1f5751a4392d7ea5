"""Names of PyTorch's that packages use though few programs do: numbers that could be symbols, helpers of optimizers, questions about tensors."""

from importlib import import_module

import pytest
from side_by_side import caught, like_pytorch, tj, torch

pytestmark = pytest.mark.operators

SYMBOLIC = [
    "sym_int(3.7)", "sym_int(-3.7)", "sym_int('a')", "sym_float(3)", "sym_float(True)", "sym_float('a')", "sym_max(1, 2.0)", "sym_max(2, 1.5)",
    "sym_max(True, 2)", "sym_max('a', 2)", "sym_min(1, 2.0)", "sym_min(True, True)", "sym_not(1)", "sym_sqrt(4)", "sym_sqrt(-1)",
    "sym_ite(True, 1, 2)", "sym_ite(1, 1, 2)", "sym_ite(True, 1, 2.0)", "sym_sum([1, 2.5])", "sym_sum(())", "sym_sum(3, 4)",
]  # fmt: skip


@pytest.mark.parametrize("call", SYMBOLIC)
def test_functions_of_symbols_take_numbers(call):
    assert caught(lambda: eval(f"m.{call}", {"m": tj})) == caught(lambda: eval(f"m.{call}", {"m": torch}))


def test_no_number_is_a_symbol():
    for name in ("SymInt", "SymFloat", "SymBool"):
        kind = getattr(tj, name)
        assert isinstance(kind, type) and not any(isinstance(n, kind) for n in (3, 3.0, True, *tj.ones(2, 3).shape))
        with pytest.raises(NotImplementedError, match=f"torch.{name} is not available in torchgrad_jax"):
            kind(3)


@like_pytorch
def test_overloads_for_torchscript_are_the_functions(m):
    def f(x): ...

    return m.jit._overload(f) is f, m.jit._overload_method(f) is f


def test_functions_are_in_torch_functional_too():
    for name in import_module("torchgrad_jax.functional").__all__:
        assert getattr(tj.functional, name) is getattr(tj, name) and name in torch.functional.__all__


@pytest.mark.parametrize("with_indices", [False, True])
def test_tensors_are_grouped_by_device_and_dtype(with_indices):
    def grouped(m):
        helpers = import_module(f"{m.__name__}.utils._foreach_utils")
        a, b, c = m.ones(2), m.ones(2, dtype=m.float64), m.zeros(3)
        groups = helpers._group_tensors_by_device_and_dtype([[a, b, c], [a + 1, b + 1, None], []], with_indices)
        told = {str(key): ([[None if t is None else t.tolist() for t in part] for part in parts], at) for key, (parts, at) in groups.items()}
        with pytest.raises(RuntimeError) as error:
            helpers._group_tensors_by_device_and_dtype([[None, a]])
        return told, str(error.value), helpers._device_has_foreach_support(a.device), helpers._has_foreach_support([a], a.device)

    assert grouped(tj) == grouped(torch)


@like_pytorch
def test_questions_about_back_ends(m):
    x = m.ones(2)
    return [x.is_xla, x.is_ipu, x.is_maia, x.is_mtia, x.is_vulkan, x.is_sparse_csr]


@like_pytorch
def test_whether_a_function_is_transformed(m):
    asked = m._C._are_functorch_transforms_active
    seen = [asked()]
    m.func.vmap(lambda x: seen.append(asked()) or x)(m.ones(2))
    m.func.grad(lambda x: seen.append(asked()) or x)(m.ones(()))
    return seen, asked()


@like_pytorch
def test_questions_of_sparse_tensors_are_answered_for_dense_ones(m):
    x = m.ones(2, 3, requires_grad=True)
    wide = x.to_dense(m.float64)
    names = ("coalesce", "is_coalesced", "indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices")
    told = [caught(getattr(x, name)) for name in names]
    return x.to_dense() is x, x.to_dense(masked_grad=True) is x, wide.sum(), wide.grad_fn.name(), x.sparse_dim(), x.dense_dim(), told


@like_pytorch
def test_helpers_of_multivariate_normals(m):
    helpers = import_module("torchgrad_jax" if m is tj else "torch").distributions.multivariate_normal
    precision = m.tensor([[2.0, 0.5], [0.5, 1]], dtype=m.float64)
    factor, x = helpers._precision_to_scale_tril(precision), m.arange(12.0, dtype=m.float64).view(2, 3, 2)
    return factor, helpers._batch_mv(factor, x), helpers._batch_mahalanobis(factor, x), helpers._batch_mahalanobis(factor.expand(3, 2, 2), x)


@like_pytorch
def test_gradients_of_softmax_by_themselves(m):
    """Backwards written by hand ask for them; they are differentiable themselves."""
    m.manual_seed(0)
    found = []
    for name in ("softmax", "log_softmax"):
        gradient, x = getattr(m, f"_{name}_backward_data"), m.randn(3, 4, dtype=m.float64)
        for dim in (0, -1):
            g, output = m.randn_like(x).requires_grad_(), getattr(m, f"_{name}")(x, dim, False).requires_grad_()
            made = gradient(grad_output=g, output=output, dim=dim, input_dtype=x.dtype)
            half = gradient(g.half(), output.half(), dim, m.float32)
            found += [made.detach(), made.grad_fn.name(), str(half.dtype), *m.autograd.grad(made.pow(2).sum(), (g, output))]
    return found, caught(lambda: m._softmax_backward_data(x, x[:2], 1, x.dtype))
