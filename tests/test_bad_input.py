"""Bad input against PyTorch: the class and text of the error, raised at the call, after which everything goes on as before."""

from __future__ import annotations

import pickle
import traceback
import warnings

import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import execution_mode

torch = pytest.importorskip("torch")

A = "a = m.arange(6.0).reshape(2, 3)"
# name: (statements that prepare, the statement that is wrong). `m` is the library, `F` its nn.functional.
CASES = {
    # shapes
    "mul": (A, "a * m.ones(2, 4)"),
    "add": (A, "m.add(a, m.ones(4))"),
    "add_three_dims": (A, "a + m.ones(5, 2, 4)"),
    "compare": (A, "a < m.ones(4)"),
    "where": (A, "m.where(a > 0, a, m.ones(7))"),
    "matmul": (A, "a @ a"),
    "matmul_vector": (A, "a @ m.ones(2)"),
    "matmul_vectors": ("", "m.ones(2) @ m.ones(3)"),
    "matmul_scalar": (A, "a @ m.tensor(1.0)"),
    "matmul_batches": ("", "m.ones(2, 3, 4) @ m.ones(3, 4, 5)"),
    "mm": (A, "m.mm(a, a)"),
    "pdist": (A, "m.pdist(a[None])"),
    "mm_dims": (A, "m.mm(a, m.ones(3))"),
    "bmm": ("", "m.bmm(m.ones(2, 3, 4), m.ones(2, 3, 4))"),
    "bmm_dims": (A, "m.bmm(a, a)"),
    "mv": (A, "m.mv(a, m.ones(2))"),
    "dot": ("", "m.dot(m.ones(2), m.ones(3))"),
    "dot_dims": (A, "m.dot(a, a)"),
    "cat": (A, "m.cat([a, m.ones(2, 4)], 0)"),
    "cat_dims": (A, "m.cat([a, m.ones(2, 3, 1)])"),
    "cat_empty_list": ("", "m.cat([])"),
    "stack": (A, "m.stack([a, m.ones(3, 2)])"),
    "stack_empty_list": ("", "m.stack([])"),
    "view": (A, "a.view(4, 2)"),
    "view_of_noncontiguous": (A, "a.t().view(6)"),
    "view_two_unknown": (A, "a.view(-1, -1)"),
    "view_negative": (A, "a.view(-2, 3)"),
    "reshape": (A, "a.reshape(5)"),
    "reshape_unknown": (A, "a.reshape(-1, 4)"),
    "expand": (A, "a.expand(2, 4)"),
    "expand_fewer": (A, "a.expand(3)"),
    "expand_fewer_bool": (A, "(a > 0).expand(3)"),
    "expand_fewer_long": (A, "a.long().expand(3)"),
    "assign_fewer_bool": (A, "m.zeros(4, dtype=m.bool)[...] = a > 0"),
    "permute_number": (A, "a.permute(0)"),
    "permute_repeated": (A, "a.permute(0, 0)"),
    "linear": (A, "F.linear(a, m.ones(4, 2))"),
    "inplace_broadcast": (A, "m.ones(3).add_(a)"),
    "copy_": (A, "a.copy_(m.ones(4))"),
    "setitem": (A, "a[0] = m.ones(4)"),
    # arguments that cannot be honoured
    "svd_driver": (A, "m.linalg.svd(a, driver='gesvd')"),
    "svdvals_driver": (A, "m.linalg.svdvals(a, driver='gesvd')"),
    "output_size_counts": (A, "m.repeat_interleave(a[0], m.tensor([1, 2, 1]), output_size=5)"),
    "output_size_number": (A, "m.repeat_interleave(a[0], 2, output_size=5)"),
    "output_size_alone": (A, "m.repeat_interleave(m.tensor([1, 2]), output_size=5)"),
    "resize_preserve": (A, "a.resize_(3, 2, memory_format=m.preserve_format)"),
    "resize_format": (A, "a.resize_(3, 2, memory_format=1)"),
    "resize_as_rank": (A, "m.ones(3).resize_as_(a, memory_format=m.channels_last)"),
    # dtypes
    "matmul_dtype": (A, "a @ m.ones(3, 2, dtype=m.float64)"),
    "matmul_int": (A, "a @ m.ones(3, 2, dtype=m.int64)"),
    "linear_dtype": (A, "F.linear(a, m.ones(4, 3, dtype=m.float64))"),
    "inplace_float_into_int": ("a = m.arange(3)", "a.add_(1.5)"),
    "inplace_tensor_into_int": ("a = m.arange(3)", "a.mul_(m.ones(3))"),
    "inplace_div_int": ("a = m.arange(3)", "a.div_(2)"),
    "sub_bool": ("a = m.tensor([True, False])", "a - a"),
    "neg_bool": ("a = m.tensor([True, False])", "-a"),
    "rsub_bool": ("a = m.tensor([True, False])", "1 - a"),
    "mean_int": ("a = m.arange(3)", "a.mean()"),
    "bitwise_float": (A, "a & a"),
    "invert_float": (A, "~a"),
    "pow_negative_int": ("a = m.arange(3)", "a ** -1"),
    "softmax_int": ("a = m.arange(3)", "m.softmax(a, 0)"),
    "softmax_int_scalar": ("a = m.tensor(3)", "m.softmax(a, 0)"),
    "floor_bool": (A, "(a > 0).floor()"),
    "clamp_inplace_bool": (A, "(a > 0).clamp_(min=0.5)"),
    "clamp_inplace_long": (A, "a.long().clamp_(0.5, 1)"),
    "clamp_inplace_tensor_long": (A, "a.long().clamp_(m.tensor([0.5]))"),
    "clamp_min_inplace_int": (A, "a.int().clamp_min_(0.5)"),
    "copy_leaf_number": ("a = m.ones(2, requires_grad=True)", "a.copy_(2)"),
    "copy_list": (A, "a.copy_([1.0])"),
    "masked_select_dtype": (A, "m.masked_select(a, a)"),
    "where_condition": (A, "m.where(a, a, a)"),
    "gather_index_dtype": (A, "a.gather(0, a)"),
    "index_float": (A, "a[m.tensor([0.0])]"),
    "out_dtype": (A, "m.add(a, a, out=m.zeros(2, 3, dtype=m.int64))"),
    # dims and indices
    "sum_dim": (A, "a.sum(2)"),
    "sum_dim_negative": (A, "a.sum(-3)"),
    "sum_dims_repeated": (A, "a.sum((0, 0))"),
    "softmax_dim": (A, "m.softmax(a, 5)"),
    "transpose_dim": (A, "a.transpose(0, 2)"),
    "unsqueeze_dim": (A, "a.unsqueeze(4)"),
    "squeeze_dim": (A, "a.squeeze(2)"),
    "cat_dim": (A, "m.cat([a, a], 2)"),
    "stack_dim": (A, "m.stack([a, a], 4)"),
    "size_dim": (A, "a.size(2)"),
    "argmax_dim": (A, "a.argmax(3)"),
    "select": (A, "a.select(0, 2)"),
    "narrow": (A, "a.narrow(0, 1, 5)"),
    "index": (A, "a[2]"),
    "index_second": (A, "a[0, -4]"),
    "index_too_many": (A, "a[0, 0, 0]"),
    "index_tensor": (A, "a[m.tensor([0, 2])]"),
    "index_list": (A, "a[[5]]"),
    "index_mask": (A, "a[m.tensor([True, False, True])]"),
    "index_string": (A, "a['x']"),
    "index_negative_step": (A, "a[::-1]"),
    "index_of_scalar": ("", "m.tensor(1.0)[0]"),
    "split_size": (A, "a.split([1, 2], 0)"),
    "chunk_zero": (A, "a.chunk(0)"),
    "max_empty": ("", "m.zeros(0).max()"),
    "argmax_empty": ("", "m.zeros(0).argmax()"),
    "argmax_empty_bool": ("", "m.zeros(0, dtype=m.bool).argmax(0)"),
    # kinds of arguments
    "add_text": (A, "m.add(a, 'x')"),
    "plus_text": (A, "a + 'x'"),
    "times_none": (A, "a * None"),
    "matmul_number": (A, "a @ 3"),
    "exp_number": ("", "m.exp(3)"),
    "exp_none": ("", "m.exp(None)"),
    "sum_dim_text": (A, "m.sum(a, dim='x')"),
    "unknown_keyword": (A, "m.exp(a, wrong=1)"),
    "missing_argument": (A, "m.mul(a)"),
    "too_many_arguments": (A, "m.exp(a, 1, 2)"),
    "method_too_many_arguments": (A, "a.exp(1)"),
    "cat_of_numbers": ("", "m.cat([1, 2])"),
    "cat_of_tensor": (A, "m.cat(a)"),
    "transpose_text": (A, "a.transpose('x', 0)"),
    "no_such_attribute": (A, "a.no_such_thing"),
    "zeros_float_size": ("", "m.zeros(2.5)"),
    "zeros_negative": ("", "m.zeros(-1)"),
    "zeros_dtype": ("", "m.zeros(2, dtype='float32')"),
    "ones_keyword": ("", "m.ones(2, wrong=1)"),
    "len_of_scalar": ("", "len(m.tensor(1.0))"),
    "iterate_scalar": ("", "list(m.tensor(1.0))"),
    # to Python
    "bool_of_many": (A, "bool(a)"),
    "bool_of_none": ("", "bool(m.zeros(0))"),
    "if_compare": (A, "1 if a > 0 else 2"),
    "item_of_many": (A, "a.item()"),
    "item_of_none": ("", "m.zeros(0).item()"),
    "float_of_many": (A, "float(a)"),
    "int_of_many": (A, "int(a)"),
    "index_of_float": (A, "[1, 2][m.tensor(1.0)]"),
    "index_of_many": (A, "[1, 2][a]"),
    "numpy_requires_grad": ("a = m.ones(2, requires_grad=True)", "a.numpy()"),
    "numpy_of_result": ("a = m.ones(2, requires_grad=True)", "(a * 2).numpy()"),
    "asarray_requires_grad": ("a = m.ones(2, requires_grad=True)", "np.asarray(a)"),
    # from Python
    "ragged": ("", "m.tensor([[1, 2], [3]])"),
    "ragged_deep": ("", "m.tensor([[[1], [2]], [[3], [4, 5]]])"),
    "ragged_number": ("", "m.tensor([[1, 2], 3])"),
    "ragged_list": ("", "m.tensor([1, [2, 3]])"),
    "text": ("", "m.tensor('abc')"),
    "texts": ("", "m.tensor(['a', 'b'])"),
    "none": ("", "m.tensor(None)"),
    "object": ("", "m.tensor(object())"),
    "dict": ("", "m.tensor({})"),
    "list_with_none": ("", "m.tensor([1, None])"),
    "huge_int": ("", "m.tensor(2 ** 70)"),
    "nothing": ("", "m.tensor()"),
    "tensor_keyword": ("", "m.tensor(1, wrong=2)"),
    "int8_overflow": ("", "m.tensor([300], dtype=m.int8)"),
    "uint8_overflow": ("", "m.tensor(300, dtype=m.uint8)"),
    "huge_int_in_list": ("", "m.tensor([2 ** 70, 1])"),
    "beyond_int64": ("", "m.tensor([2 ** 63, 1])"),
    "list_of_text_and_numbers": ("", "m.tensor([1, 'a'])"),
    "bytes": ("", "m.tensor(b'ab')"),
    "zeros_nothing": ("", "m.zeros()"),
    "zeros_bool_size": ("", "m.zeros(True)"),
    "zeros_float_in_size": ("", "m.zeros((2, 2.5))"),
    "full_size": ("", "m.full(2.5, 1)"),
    "full_text": ("", "m.full((2,), 'x')"),
    "new_zeros_size": (A, "a.new_zeros(2.5)"),
    "new_ones_keyword": (A, "a.new_ones(2, wrong=1)"),
    "zeros_like_number": ("", "m.zeros_like(3)"),
    "zeros_like_keyword": (A, "m.zeros_like(a, wrong=1)"),
    "ones_dtype": ("", "m.ones(2, dtype='x')"),
    "eye_negative": ("", "m.eye(-1)"),
    "eye_float": ("", "m.eye(2.5)"),
    "arange_nan": ("", "m.arange(float('nan'))"),
    "float_of_complex": ("", "float(m.tensor(1j))"),
    "int_of_none": ("", "int(m.zeros(0))"),
    "type_number": ("a = m.ones(2)", "a.type(3)"),
    "argument_twice": (A, "m.exp(a, input=a)"),
    "from_numpy_list": ("", "m.from_numpy([1, 2])"),
    "object_array": ("", "m.tensor(np.array([object()]))"),
    "arange_zero_step": ("", "m.arange(0, 3, 0)"),
    "arange_wrong_way": ("", "m.arange(3, 0)"),
    "linspace_negative": ("", "m.linspace(0, 1, -1)"),
    # autograd
    "backward_of_many": ("a = m.ones(2, requires_grad=True)", "(a * 2).backward()"),
    "backward_without_graph": (A, "a.sum().backward()"),
    "backward_of_detached": ("a = m.ones(2, requires_grad=True)", "a.detach().sum().backward()"),
    "backward_twice": ("a = m.ones(2, requires_grad=True)\ny = a.exp().sum()\ny.backward()", "y.backward()"),
    "backward_shape": ("a = m.ones(2, requires_grad=True)", "(a * 2).backward(m.ones(3))"),
    "backward_number": ("a = m.ones(2, requires_grad=True)", "(a * 2).backward(1.0)"),
    "backward_few_gradients": ("a = m.ones(2, requires_grad=True)", "m.autograd.backward([a * 2, a * 2], [m.ones(2)])"),
    "backward_number_as_tensor": ("", "m.autograd.backward(3)"),
    "grad_of_number": ("a = m.ones(2, requires_grad=True)", "m.autograd.grad(3, a)"),
    "grad_input_number": ("a = m.ones(2, requires_grad=True)", "m.autograd.grad(a.sum(), 3)"),
    "grad_of_no_inputs": ("a = m.ones(2, requires_grad=True)", "m.autograd.grad(a.sum(), [])"),
    "backward_list_with_number": ("", "m.autograd.backward([3])"),
    "backward_inputs_number": ("a = m.ones(2, requires_grad=True)", "a.sum().backward(inputs=3)"),
    "backward_inputs_list": ("a = m.ones(2, requires_grad=True)", "a.sum().backward(inputs=[3])"),
    "backward_keyword": ("a = m.ones(2, requires_grad=True)", "a.sum().backward(wrong=1)"),
    "grad_of_nothing": ("a = m.ones(2, requires_grad=True)", "m.autograd.grad([], a)"),
    "backward_inputs_without_grad": ("a = m.ones(2, requires_grad=True)", "a.sum().backward(inputs=[m.ones(2)])"),
    "inplace_leaf": ("a = m.ones(2, requires_grad=True)", "a.add_(1)"),
    "inplace_leaf_operator": ("a = m.ones(2, requires_grad=True)", "a *= 2"),
    "inplace_leaf_view": ("a = m.ones(2, requires_grad=True)", "a[:1].add_(1)"),
    "inplace_leaf_setitem": ("a = m.ones(2, requires_grad=True)", "a[0] = 1.0"),
    "inplace_expanded": ("a = m.ones(1)", "a.expand(3).add_(1)"),
    "inplace_of_unbind": ("a = m.ones(2, requires_grad=True) * 1", "a.unbind()[0].add_(1)"),
    "inplace_view_of_no_grad": ("b = m.ones(2, requires_grad=True) * 1\nwith m.no_grad(): a = b[:1]", "a.add_(1)"),
    "requires_grad_int": ("", "m.ones(2, dtype=m.int64, requires_grad=True)"),
    "requires_grad_int_tensor": ("", "m.tensor([1, 2], requires_grad=True)"),
    "requires_grad_int_later": ("a = m.arange(3)", "a.requires_grad_()"),
    "requires_grad_int_setter": ("a = m.arange(3)", "a.requires_grad = True"),
    "requires_grad_off_non_leaf": ("a = m.ones(2, requires_grad=True) * 2", "a.requires_grad = False"),
    "requires_grad_text": ("a = m.ones(2)", "a.requires_grad = 'yes'"),
    "requires_grad_number": ("a = m.ones(2)", "a.requires_grad_(2.5)"),
    "grad_shape": ("a = m.ones(2, requires_grad=True)", "a.grad = m.ones(3)"),
    "grad_dtype": ("a = m.ones(2, requires_grad=True)", "a.grad = m.ones(2, dtype=m.float64)"),
    "grad_type": ("a = m.ones(2, requires_grad=True)", "a.grad = 3"),
    "grad_itself": ("a = m.ones(2, requires_grad=True)", "a.grad = a"),
    "grad_fn_set": ("a = m.ones(2, requires_grad=True)", "a.grad_fn = None"),
    "is_leaf_set": ("a = m.ones(2, requires_grad=True)", "a.is_leaf = False"),
    "shape_set": ("a = m.ones(2)", "a.shape = (1, 2)"),
    "out_requires_grad": ("a = m.ones(2, requires_grad=True)", "m.add(a, a, out=m.zeros(2))"),
    "detach_view": ("a = (m.ones(2, requires_grad=True) * 1)[:1]", "a.detach_()"),
    "deepcopy_non_leaf": ("import copy\na = m.ones(2, requires_grad=True) * 1", "copy.deepcopy(a)"),
    "variable_of_number": ("", "m.autograd.Variable(3)"),
    "data_of_number": ("a = m.ones(2)", "a.data = 3"),
    "save_wrong_dtype_name": ("a = m.ones(2)", "a.to('no such device')"),
    "to_keyword": ("a = m.ones(2)", "a.to(wrong=1)"),
    "type_name": ("a = m.ones(2)", "a.type('torch.NoTensor')"),
}

# Errors whose text is ours to choose, and why PyTorch's does not fit.
OUR_TEXT: dict[str, str] = {
    "grad_fn_set": "PyTorch names its C++ base class",
    "is_leaf_set": "PyTorch names its C++ base class",
    "shape_set": "PyTorch names its C++ base class",
    "method_too_many_arguments": "PyTorch's method is its C++ base class's",
}


def attempt(m, prepare, wrong):
    """What `wrong` raises, and the source line of its innermost frame outside the library."""
    names = {"m": m, "np": np, "F": m.nn.functional}
    exec(prepare, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(wrong, "user.py", "exec"), names)
        except Exception as error:
            return error, names
    return None, names


def first_line(error):
    """The text without C++ frames and without the list of overloads, which PyTorch appends where a call fits none of them."""
    text = str(error).partition("\nException raised from")[0]
    return text.partition(" - got (")[0] if "invalid combination of arguments" in text else text.partition("\n")[0]


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_pytorchs_and_names_the_users_line(name):
    theirs, _ = attempt(torch, *CASES[name])
    assert theirs is not None, "PyTorch accepts this"
    pending = tj.ones(3) * 2
    ours, names = attempt(tj, *CASES[name])
    assert ours is not None, f"accepted; PyTorch: {type(theirs).__name__}: {theirs}"
    assert any(frame.filename == "user.py" for frame in traceback.extract_tb(ours.__traceback__))
    assert pending.tolist() == [2.0] * 3
    if "a" in names and CASES[name][0] == A:
        assert names["a"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert type(ours).__name__ == type(theirs).__name__, f"ours: {ours!r}\ntheirs: {theirs!r}"
    if name not in OUR_TEXT:
        assert first_line(ours) == first_line(theirs)


@pytest.mark.parametrize("name", ["mul", "matmul", "sum_dim", "inplace_broadcast", "inplace_leaf", "index_tensor", "backward_of_many"])
def test_a_refused_call_leaves_a_training_loop_as_it_was(name):
    def train(interrupt):
        w = tj.tensor([1.0, -2.0, 0.5], requires_grad=True)
        for _ in range(4):
            h = (w * w).exp()
            if interrupt:
                attempt(tj, *CASES[name])
            h.sum().backward()
            with tj.no_grad():
                w -= 0.01 * w.grad
            w.grad = None
        return w.tolist()

    np.testing.assert_allclose(train(True), train(False), rtol=1e-5)


def test_a_refused_write_leaves_the_version_and_the_graph():
    w = tj.ones(3, requires_grad=True)
    h = w * 2
    node, version = h.grad_fn, h._version
    with pytest.raises(RuntimeError):
        h.add_(tj.ones(2, 3))
    assert h.grad_fn is node and h._version == version
    h.sum().backward()
    assert w.grad.tolist() == [2.0] * 3


def test_an_index_found_wrong_only_in_the_program_is_raised_at_the_look_with_the_users_line():
    x = tj.arange(3.0)
    with execution_mode("fused"):  # else the index is at hand, and the error raised at the call
        index = tj.tensor([0, 1]) * 3
        found = x[index]
        with pytest.raises(IndexError, match="out of bounds") as caught:
            found.tolist()
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert tj.ones(2).tolist() == [1.0, 1.0]
    assert caught.value.__notes__ and __file__ in caught.value.__notes__[0] or any(f.path == __file__ for f in caught.traceback)


FACTORIES = [
    "m.zeros(3", "m.ones(3", "m.full((3,), 1.0", "m.empty(3", "m.zeros_like(x", "m.ones_like(x", "m.full_like(x, 1.0", "m.empty_like(x",
    "x.new_zeros(3", "x.new_ones(3", "x.new_full((3,), 1.0", "x.new_empty(3", "x.new_tensor([1.0]", "m.tensor([1.0]", "m.arange(3", "m.eye(3",
    "m.linspace(0, 1, 3", "m.logspace(0, 1, 3", "m.empty_strided((3,), (1,)", "m.tril_indices(2, 2", "m.rand(3", "m.randn(3", "m.randint(3, (2,)",
    "m.randperm(3", "m.normal(0.0, 1.0, (2,)", "m.rand_like(x", "m.randn_like(x", "m.randint_like(x, 3",
]  # fmt: skip
OPTIONS = [
    "pin_memory=True", "pin_memory=1", "layout='a'", "layout=m.strided", "requires_grad=1", "device=1.5", "out=x", "bad=1",
    "memory_format=m.contiguous_format",
]  # fmt: skip


def test_a_factory_honours_what_it_is_asked_for_or_refuses_it():
    """PyTorch has one text for options that do not fit for some factories, and a list of signatures for others."""
    wrong = []
    for call in (f"{factory}, {option})" for factory in FACTORIES for option in OPTIONS):
        ours, theirs = (attempt(m, "x = m.ones(3)", call)[0] for m in (tj, torch))
        kinds = [None if error is None else type(error).__name__ for error in (ours, theirs)]
        listed = theirs is not None and "invalid combination" in str(theirs)
        if kinds[0] != kinds[1] or (theirs is not None and not listed and str(ours) != first_line(theirs)):
            wrong.append((call, ours, theirs))
    assert not wrong, wrong


def test_factories_make_strided_tensors_only():
    sparse = tj.layout("sparse_coo")
    for make in (tj.zeros, tj.rand, tj.tensor([1.0]).new_zeros, tj.eye, lambda n, layout: tj.zeros_like(tj.ones(n), layout=layout)):
        with pytest.raises(RuntimeError, match="makes strided tensors so, not torch.sparse_coo"):
            make(3, layout=sparse)
    assert pickle.loads(pickle.dumps(tj.sparse_coo)) is tj.sparse_coo  # which `sparse`, of the same name, is not taken for
