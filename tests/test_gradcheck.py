"""gradcheck and gradgradcheck of right functions: what is accepted, in which order the function is called, what is left behind."""

from __future__ import annotations

import warnings
from importlib import import_module

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from side_by_side import leaf, like_pytorch

import torchgrad_jax as tj
from torchgrad_jax.autograd import gradcheck, gradgradcheck
from torchgrad_jax.autograd.gradcheck import GradcheckError, get_numerical_jacobian
from torchgrad_jax.runtime.counters import counters

torch = pytest.importorskip("torch")

MODES = pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])


def complex_leaf(*values):
    return tj.tensor(list(values), dtype=tj.complex128, requires_grad=True)


RIGHT = {
    "elementwise": (lambda x: x.sin() * x, (leaf(tj, 1.0, 2.0),)),
    "two inputs": (lambda x, y: x * y.exp(), (leaf(tj, 1.0, 2.0), leaf(tj, 0.3, 0.4))),
    "an unused input": (lambda x, y: x * 2, (leaf(tj, 1.0, 2.0), leaf(tj, 3.0))),
    "an input that requires no grad": (lambda x, y: x * y, (leaf(tj, 1.0, 2.0), tj.tensor([3.0, 4.0]))),
    "an argument that is no tensor": (lambda x, n: x**n, (leaf(tj, 1.0, 2.0), 3)),
    "several outputs": (lambda x: (x * 2, x.exp().sum()), (leaf(tj, 1.0, 2.0),)),
    "an integer output": (lambda x: (x * 2, x.argmax()), (leaf(tj, 1.0, 2.0),)),
    "an output without a graph": (lambda x: (x * x, x.detach() * 2), (leaf(tj, 1.0, 2.0),)),
    "a 0-dim input": (lambda x: x * x, (tj.tensor(2.0, dtype=tj.float64, requires_grad=True),)),
    "an empty input": (lambda x, y: (x * 2, y * 2), (leaf(tj), leaf(tj, 1.0))),
    "an input that is no leaf": (lambda x: x * x, (leaf(tj, 1.0, 2.0) * 3,)),
    "a view": (lambda x: x * x, (tj.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tj.float64, requires_grad=True).t(),)),
    "the input itself": (lambda x: x, (leaf(tj, 1.0, 2.0),)),
    "a write in place": (lambda x: x.clone().mul_(x), (leaf(tj, 1.0, 2.0),)),
    "complex to complex": (lambda z: z * z + z.conj(), (complex_leaf(1 + 1j, 2 - 1j),)),
    "complex to real": (lambda z: z.abs(), (complex_leaf(1 + 1j, 2 - 1j),)),
    "real to complex": (lambda x: x * (2 + 1j), (leaf(tj, 1.0, 2.0),)),
    "real and complex": (lambda x, z: (x * z.real, x * z), (leaf(tj, 1.0, 2.0), complex_leaf(1 + 1j, 2 - 1j))),
}


@MODES
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_derivative_is_accepted(name, fast_mode):
    func, inputs = RIGHT[name]
    assert gradcheck(func, inputs, fast_mode=fast_mode, check_batched_grad=True, check_grad_dtypes=True) is True


@MODES
@pytest.mark.parametrize("name", [n for n in RIGHT if n != "the input itself"])
def test_a_right_second_derivative_is_accepted(name, fast_mode):
    func, inputs = RIGHT[name]
    tj.manual_seed(0)
    assert gradgradcheck(func, inputs, fast_mode=fast_mode, check_batched_grad=True) is True


@MODES
@given(values=hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=3), elements=st.floats(-2, 2)))
@settings(max_examples=8)
def test_every_shape_is_accepted(fast_mode, values):
    x = tj.tensor(values, requires_grad=True)
    assert gradcheck(lambda t: (t * t).sum(-1).exp(), (x,), fast_mode=fast_mode)


@MODES
def test_a_function_without_a_graph_must_be_constant(fast_mode):
    assert gradcheck(lambda x: tj.ones(2), (leaf(tj, 1.0, 2.0),), fast_mode=fast_mode)
    assert not gradcheck(lambda x: x.detach() * 2, (leaf(tj, 1.0, 2.0),), fast_mode=fast_mode, raise_exception=False)


def recorded(m, fast_mode, **options):
    """The contents that the function and its backward see, in order."""
    seen = []

    class Square(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(x.tolist())
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(False)
            return x * x

        @staticmethod
        def backward(ctx, g):
            seen.append("missing" if g is None else g.tolist())
            return None if g is None else 2 * g * ctx.saved_tensors[0]

    m.autograd.gradcheck(Square.apply, (leaf(m, 1.0, 2.0),), fast_mode=fast_mode, **options)
    return seen


@like_pytorch
def test_elements_are_moved_one_by_one(m):
    return recorded(m, False)


@like_pytorch
def test_fast_mode_moves_all_elements_along_the_same_random_direction_as_pytorch(m):
    return recorded(m, True)


@like_pytorch
def test_gradients_may_be_left_defined(m):
    return recorded(m, False, check_undefined_grad=False)


@like_pytorch
def test_random_output_gradients_of_gradgradcheck_are_drawn_as_in_pytorch(m):
    found = []

    def func(x):
        y = x * x
        y.register_hook(lambda g: found.append([g.tolist(), g.is_contiguous()]) if not found else None)
        return y

    m.manual_seed(0)
    assert m.autograd.gradgradcheck(func, (leaf(m, 1.0, 2.0),), gen_non_contig_grad_outputs=True)
    return found, m.rand(2)


@like_pytorch
def test_given_output_gradients_are_inputs_of_gradgradcheck(m):
    x, g = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    return m.autograd.gradgradcheck(lambda t: t * t, (x,), g), m.autograd.gradgradcheck(lambda t: t * t, (x,), g.detach())


@MODES
def test_the_inputs_are_left_as_they_were(fast_mode):
    x = leaf(tj, 1.0, 2.0)
    part = x.detach()
    assert gradcheck(lambda t: t * t, (x,), fast_mode=fast_mode)
    assert [x.tolist(), part.tolist(), x._version, x.grad] == [[1.0, 2.0], [1.0, 2.0], 0, None]


def test_a_perturbation_is_seen_through_every_view_of_the_memory():
    x = leaf(tj, 1.0, 2.0)
    alias = x.detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        (found,) = get_numerical_jacobian(lambda inputs: alias[:1] * 3, (x,))
    np.testing.assert_allclose(found.numpy(), [[3.0], [0.0]], atol=1e-8)


def test_a_function_that_fails_while_it_is_perturbed_leaves_the_input_whole():
    x, calls = leaf(tj, 1.0, 2.0), []

    def func(t):
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("stop")
        return t * 2

    with pytest.raises(KeyError):
        gradcheck(func, (x,))
    assert x.tolist() == [1.0, 2.0]


def test_perturbations_share_one_program():
    x = tj.rand(5, 4, dtype=tj.float64, requires_grad=True)

    def check():
        assert gradcheck(lambda t: (t.sin() * t).sum(1), (x,), check_undefined_grad=False)

    for _ in range(3):
        check()
    counters.reset()
    check()
    assert counters.compiled == counters.compiled_ops == 0


def test_the_function_hides_the_module_of_its_name():
    assert tj.autograd.gradcheck is gradcheck
    assert functions(tj).__all__ and set(functions(tj).__all__) == set(functions(torch).__all__)
    assert issubclass(GradcheckError, RuntimeError)


# ---------------------------------------------------------------------- Jacobians


def functions(m):
    """The module `gradcheck`, which the function of the same name hides."""
    return import_module(f"{m.__name__}.autograd.gradcheck")


@like_pytorch
def test_numerical_jacobian(m):
    x, y = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    get = functions(m).get_numerical_jacobian
    return get(lambda i: (i[0] * i[1], i[0].sum()), (x, y)), get(lambda i: i[0] * i[1], (x, y), target=y, eps=1e-6)


@like_pytorch
def test_numerical_jacobian_with_respect_to_one_input(m):
    z = m.tensor([1 + 1j, 2.0], dtype=m.complex128, requires_grad=True)
    x = leaf(m, 1.0, 2.0)
    get = functions(m).get_numerical_jacobian_wrt_specific_input
    of_complex = get(lambda a, b: (a * b.abs(), b.real), 1, (x, z), (x * z.abs(), z.real), 1e-6)
    return [m.view_as_real(j) for j in (*of_complex, *get(lambda a: (a * 1j,), 0, (x,), (x * 1j,), 1e-6, is_forward_ad=True))]


@like_pytorch
def test_analytical_jacobian(m):
    x, y = leaf(m, 1.0, 2.0), leaf(m, 3.0, 4.0)
    return functions(m).get_analytical_jacobian((x, y, 3, x.detach()), x * x * 2)


@pytest.mark.parametrize("name", ["get_numerical_jacobian", "get_analytical_jacobian"])
@pytest.mark.parametrize("wrong", ["complex", "grad_out"])
def test_jacobians_of_complex_outputs_and_other_gradients_are_refused(name, wrong):
    @like_pytorch
    def program(m):
        x = leaf(m, 1.0, 2.0)
        out = x * 1j if wrong == "complex" else x
        options = {"grad_out": 2.0} if wrong == "grad_out" else {}
        get = getattr(functions(m), name)
        return get(lambda i: out, (x,), **options) if name == "get_numerical_jacobian" else get((x,), out, **options)

    program()
