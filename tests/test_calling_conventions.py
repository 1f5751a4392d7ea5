"""Calls by PyTorch's names, in PyTorch's old forms, and with arguments that it refuses: the same results, the same errors."""

from __future__ import annotations

import inspect
import pydoc
import types

import numpy as np
import pytest

import torchgrad_jax as tj
from tests.side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

REFUSED = [
    "m.sum()", "m.sum('x')", "m.sum([1, 2], foo=m.float32)", "a.sum('x')", "m.sin()", "m.sin(a, 3)", "m.sin(a, foo=3)", "a.sin(1)", "a.sin(x=1)",
    "m.gather()", "m.gather(a, 0)", "m.gather(a, 1.5, a)", "m.gather(a, True, a)", "m.mm(a, 3)", "m.mm(a, a, a)", "m.mv(a, vec=a, input=a)",
    "m.mv(a, a, x=a)", "m.cumsum(a, 0, 0, 0)", "m.bincount(a, a, 1, 1)", "m.zeros('x')", "m.zeros(2, 'x')", "m.zeros([2], 2)", "m.zeros('x', 2)",
    "m.amax(a, ['x'])", "m.amax(a, [1, 'x'])", "m.amax(a, 1.5)", "a.permute('x', 1)", "a.view('x')", "m.cat(a)", "m.cat([1])", "m.cat([a, 1])",
    "m.allclose(a, a, rtol='x')", "m.allclose(a, a, equal_nan=1)", "m.sum(a, dtype='x')", "m.add(a, None)", "m.atan2(a, 1)",
    "m.linalg.det('x')", "m.special.expit('x')", "m.nn.functional.gelu('x')", "m.Tensor.sin()", "m.Tensor.sin(3)", "a.gather(dim=0)",
    "m.mean(np.float32(1.5), 1j, m.device('cpu'))", "m.addmm(a, a, a, beta='x')", "m.clone(a, memory_format=1)", "m.sin(a, out=1)",
    "m.matmul(a, [a])", "m.topk(a, 1, out=a)", "m.squeeze(a, 1.5)",
]  # fmt: skip
TAKEN = [
    "m.sum(a, axis=0, keepdims=True)", "m.sin(x=a)", "m.add(x1=a, x2=a)", "m.add(a=a, other=a)", "m.sum(input=a, dim=(0, 1))", "a.sum(axis=1)",
    "m.softmax(a, axis=1)", "m.max(a, axis=1).values", "m.split(a, split_size_or_sections=2)", "a.split(split_size=2)",
    "m.tensordot(a, a, dims=1)", "m.tensordot(a=a, b=a, dims=([0], [1]))", "m.gather(input=a, dim=0, index=m.zeros(1, 1, dtype=m.int64))",
    "m.atan2(input=a, other=a)", "m.where(condition=a > 2, input=a, other=a)", "m.cumsum(a, dim=m.tensor(1))", "m.sum(a, m.tensor(1))",
    "m.nn.functional.conv2d(x=a.reshape(1, 1, 3, 3), weight=m.ones(1, 1, 1, 1))", "m.amax(a, dim=m.tensor([1]))",
    "m.concat(tensors=[a, a], axis=1)", "m.swapaxes(a, axis0=0, axis1=1)", "m.full(size=(2,), fill_value=3.0)", "m.zeros(size=(2,))",
    "m.add(np.float32(1.5), a)", "m.add(2, a)", "m.abs_(input=a)", "m.clamp_max_(input=a, max=2)", "m.round_(input=a, decimals=1)", "a.to(tensor=a)",
    "m.special.xlogy(input=a, other=a)", "m.gcd_(input=a.long(), other=a.long())",
]  # fmt: skip
OLD = [
    "m.add(a, 2, a)", "m.sub(a, 2, a)", "m.addcmul(a, 2., a, a)", "m.addcdiv(a, 2., a, a + 1)", "m.addmm(2, a, 3, a, a)", "m.addmm(2, a, a, a)",
    "m.addmv(2, a[0], 3, a, a[1])", "m.addr(2, a, 3, a[0], a[1])", "a.add(2, a)", "a.clone().add_(2, a)", "a.addmm(2, 3, a, a)",
    "m.baddbmm(2, a[None], 3, a[None], a[None])", "a.clone().addcmul_(2, a, a)",
]  # fmt: skip


def evaluated(m, call):
    return eval(call, {"m": m, "np": np, "a": m.arange(9.0).reshape(3, 3)})


@pytest.mark.parametrize("call", REFUSED)
def test_wrong_arguments_are_answered_in_pytorchs_words(call):
    ours, theirs = (error_of(lambda m=m: evaluated(m, call)) for m in (tj, torch))
    assert theirs is not None
    assert ours is not None, f"accepted; PyTorch: {theirs}"
    # Python says now the one and now the other of a method without arguments.
    assert (ours[0], ours[1].splitlines()[0]) == (theirs[0], theirs[1].replace("TensorBase.sin() takes", "Tensor.sin() takes").splitlines()[0])


@pytest.mark.parametrize("call", TAKEN)
def test_names_of_parameters_are_pytorchs_and_numpys(call):
    like_pytorch(lambda m: evaluated(m, call))()


@pytest.mark.filterwarnings("ignore:This overload of")
@pytest.mark.parametrize("call", OLD)
def test_old_forms_mean_what_they_meant(call):
    assert evaluated(tj, call).tolist() == evaluated(torch, call).tolist()


def test_an_old_form_warns_once_with_the_new_one(monkeypatch):
    monkeypatch.setattr("torchgrad_jax.runtime.user_code._warned", set())
    a = tj.ones(2, 2)
    with pytest.warns(UserWarning, match=r"of addbmm is deprecated:\n\taddbmm\(Number beta, Tensor input, Tensor batch1, Tensor batch2"):
        tj.addbmm(2, a, a[None], a[None])


def test_a_call_that_was_refused_is_refused_again():
    a = tj.ones(2, 2)
    for _ in range(2):
        with pytest.raises(TypeError, match="must be tuple of ints"):
            a.amax(1.5)


def test_an_odd_element_is_found_though_lists_were_taken_before():
    a = tj.ones(2, 2)
    a.amax([0, 1])
    with pytest.raises(TypeError, match="found element of type str at pos 0"):
        a.amax(["x"])


@pytest.mark.parametrize("call", [
    "a.to(int)", "a.to(dtype=float)", "a.sum(dtype=float)", "m.zeros(3, dtype=int)", "m.finfo(float)", "m.iinfo(int)", "m.finfo(complex).bits",
    "m.full((2,), 1, dtype=bool)", "a.new_zeros(3, dtype=int)", "m.zeros_like(a, dtype=bool)", "m.promote_types(int, float)",
    "m.cumsum(a, 0, dtype=int)",
    "m.softmax(a, 0, dtype=float)", "m.tensor([1], dtype=complex)", "m.can_cast(float, int)",
])  # fmt: skip
def test_pythons_types_stand_for_dtypes(call):
    assert str(evaluated(tj, call)) == str(evaluated(torch, call))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"])
def test_operators_leave_what_is_no_number_to_the_other_side(name):
    class Other:
        def __getattr__(self, name):
            raise AttributeError(name)

    a = tj.ones(2, dtype=tj.int64)
    for dunder in (f"__i{name}__", f"__{name}__"):
        assert getattr(a, dunder)("x") is NotImplemented
        assert getattr(a, dunder)(None) is NotImplemented
        assert getattr(a, dunder)(Other()) is NotImplemented


@pytest.mark.parametrize("call", ["a.new(3).shape", "a.new(2, 3).shape", "a.new([1, 2])", "a.new(a)", "a.new().shape", "a.int().new([1]).dtype"])
def test_new_makes_tensors_of_the_same_kind(call):
    assert str(evaluated(tj, call)) == str(evaluated(torch, call))


def test_numbers_beyond_float32_are_infinite_without_a_warning():
    assert tj.tensor(1e40).item() == tj.tensor([1e40, 1.0])[0].item() == float("inf")


def test_signatures_show_pytorchs_parameters():
    def shown(function):
        return str(inspect.signature(function))

    assert shown(tj.sum) == "(input, dim=None, keepdim=False, *, dtype=None, out=None)"
    assert shown(tj.Tensor.sum) == "(self, dim=None, keepdim=False, *, dtype=None)"
    assert shown(tj.ones(2).sum) == "(dim=None, keepdim=False, *, dtype=None)"
    assert shown(tj.sin) == "(input, *, out=None)"
    assert shown(tj.Tensor.view) == "(self, *size)"
    assert shown(tj.nn.functional.mse_loss) == "(input, target, size_average=None, reduce=None, reduction='mean', weight=None)"
    assert "sum(input, dim=None" in pydoc.plain(pydoc.render_doc(tj.sum))


@pytest.mark.parametrize("namespace", [tj, tj.Tensor, tj.nn.functional, tj.linalg, tj.special, tj.fft], ids=lambda n: n.__name__)
def test_every_public_function_has_a_signature(namespace):
    for name in dir(namespace):
        function = getattr(namespace, name)
        if isinstance(function, types.FunctionType):
            assert "object object" not in str(inspect.signature(function)), name


@pytest.mark.parametrize("base", ["object", "Module"])
def test_functions_as_attributes_of_a_class_are_no_methods(base):
    """``activation = torch.tanh`` in a class body: PyTorch's functions are not bound, but for those that it has written in Python."""

    def found(m):
        class Net(m.nn.Module if base == "Module" else object):
            activation, make, join, total, project, added, in_python = m.tanh, m.zeros, m.cat, m.sum, m.nn.functional.linear, m.add, m.einsum

        class Derived(Net):
            pass

        x, net = m.arange(6.0).reshape(2, 3), Derived()
        results = [net.activation(x), net.make(2, 3), net.join([x, x]), net.total(x, 0), net.project(x, x), net.added(x, x), net.activation(x)]
        values = [[round(x, 5) for x in t.flatten().tolist()] for t in results]
        return values, error_of(lambda: net.in_python("ij->i", x)) is None, error_of(lambda: m.tanh(object(), x))

    assert found(tj) == found(torch)
