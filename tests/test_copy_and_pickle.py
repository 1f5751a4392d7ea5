"""`copy.copy`, `copy.deepcopy` and pickle of tensors against PyTorch: memory, history, attributes."""

from __future__ import annotations

import copy
import pickle

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import error_of, leaf, like_pytorch  # noqa: E402 - needs torch


def through_pickle(x):
    return pickle.loads(pickle.dumps(x))


class Tagged(tj.Tensor):
    """At module level, so that it can be pickled."""

    def new_empty(self, *args, **kwargs):
        return super().new_empty(*args, **kwargs).as_subclass(Tagged)


class TaggedTorch(torch.Tensor):
    def new_empty(self, *args, **kwargs):
        return super().new_empty(*args, **kwargs).as_subclass(TaggedTorch)


# ---------------------------------------------------------------------- deepcopy


@like_pytorch
def test_only_leaves_are_deepcopied(m):
    x = leaf(m, 1.0, 2.0)
    return error_of(lambda: copy.deepcopy(x * 2)), error_of(lambda: copy.deepcopy([x, x * 2])), copy.deepcopy((x * 2).detach()), copy.deepcopy(x)


@like_pytorch
def test_a_deepcopy_has_memory_gradient_and_attributes_of_its_own(m):
    x = leaf(m, 1.0, 2.0)
    x.grad, x.note = m.ones(2, dtype=m.float64), ["a"]
    y = copy.deepcopy(x)
    with m.no_grad():
        y.add_(1)
        y.grad.add_(1)
    y.note.append("b")
    return x, y, x.grad, y.grad, x.note, y.note, y.is_leaf, y.data_ptr() == x.data_ptr()


@like_pytorch
def test_hooks_are_not_deepcopied(m):
    x, seen = leaf(m, 1.0), []
    x.register_hook(lambda g: seen.append("hook"))
    y = copy.deepcopy(x)
    (y * 2).sum().backward()
    return seen, y.grad, x.grad


@like_pytorch
def test_a_tensor_met_twice_is_copied_once(m):
    a = m.ones(2)
    first, second = copy.deepcopy([a, a])
    memo = {}
    made = copy.deepcopy(a, memo)
    return first is second, first is a, memo[id(a)] is made, copy.deepcopy(a, memo) is made


@like_pytorch
def test_copies_of_what_shares_memory_share_memory(m):
    base = m.arange(6.0)
    made = copy.deepcopy([base, base[1:3], base.view(2, 3).t(), base.data, base.detach()[4]])
    made[0].add_(10)
    made[1].mul_(2)
    bases = [t._base for t in made]
    return made, base, bases, [t._is_view() for t in made], made[1].storage_offset(), made[2].stride(), made[3].data_ptr() == made[0].data_ptr()


@like_pytorch
def test_a_deepcopied_view_alone(m):
    base = m.arange(6.0)
    v = copy.deepcopy(base[1:3])
    v.add_(1)
    return v, base, v.storage_offset(), v._base, v.is_leaf


@like_pytorch
def test_a_view_of_a_leaf_is_no_leaf(m):
    x = leaf(m, 1.0, 2.0)
    return error_of(lambda: copy.deepcopy(x[0]))[0], copy.deepcopy(x.detach()[0])


@like_pytorch
def test_training_goes_on_from_a_deepcopy(m):
    w = leaf(m, 1.0, 2.0)
    twin = copy.deepcopy(w)
    for t in (w, twin):
        (t * t).sum().backward()
    (twin * 3).sum().backward()
    return w.grad, twin.grad


@like_pytorch
def test_a_subclass_says_by_new_empty_that_it_can_be_deepcopied(m):
    class Plain(m.Tensor):
        pass

    cls = TaggedTorch if m is torch else Tagged
    t = m.ones(2).as_subclass(cls).requires_grad_()
    t.tag = ["a"]
    t.sum().backward()
    made = copy.deepcopy(t)
    refused = error_of(lambda: copy.deepcopy(m.ones(2).as_subclass(Plain)))
    return refused, made.tag, made.tag is t.tag, made.grad, made.requires_grad, type(made) is cls


@like_pytorch
def test_versions_of_copies(m):
    x = m.ones(2)
    y = copy.deepcopy(x)
    before = y._version
    y.add_(1)
    return before, y._version, x._version, copy.copy(x)._version, through_pickle(x)._version


@like_pytorch
def test_a_write_after_saving_a_copy_is_noticed(m):
    w = copy.deepcopy(m.ones(2, requires_grad=True))
    y = w * w
    with m.no_grad():
        w.add_(1)
    return error_of(lambda: y.sum().backward())


# ---------------------------------------------------------------------- copy.copy


@like_pytorch
def test_a_shallow_copy_is_a_leaf_on_the_same_memory(m):
    x = leaf(m, 1.0, 2.0)
    x.grad, x.note = m.ones(2, dtype=m.float64), ["a"]
    y = copy.copy(x)
    with m.no_grad():
        y.add_(1)
    made = copy.copy(x * 2)
    return x, y is x, y.data_ptr() == x.data_ptr(), y.requires_grad, y.grad, y.note is x.note, x._version, made.is_leaf, made


@like_pytorch
def test_a_shallow_copy_of_a_view(m):
    base = m.arange(6.0)
    made = copy.copy(base.view(2, 3)[1])
    made.mul_(2)
    return base, made._is_view(), made.storage_offset()


@like_pytorch
def test_what_is_being_transformed_is_not_copied(m):
    transforms = [lambda f: m.func.vmap(f)(m.ones(2, 3)), lambda f: m.func.grad(lambda x: f(x).sum())(m.ones(2))]
    return [(error_of(lambda t=t, f=f: t(f)) or ["none"])[0] for t in transforms for f in (copy.copy, copy.deepcopy, through_pickle)]


# ---------------------------------------------------------------------- pickle


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_every_dtype_is_pickled(dtype):
    @like_pytorch
    def program(m):
        return [through_pickle(t) for t in (m.tensor([0, 1, 2], dtype=getattr(m, dtype)), m.zeros(0, 3, dtype=getattr(m, dtype)))]

    program()


@like_pytorch
def test_pickling_keeps_requires_grad_and_attributes_but_no_history(m):
    x = leaf(m, 1.0, 2.0)
    x.grad, x.note = m.ones(2, dtype=m.float64), "a"
    made, result = through_pickle(x), through_pickle(x * 2)
    return made, made.grad, made.note, result, result.is_leaf


@like_pytorch
def test_a_pickled_view_keeps_its_strides(m):
    base = m.arange(6.0)
    made = [through_pickle(t) for t in (base[1:3], base.view(2, 3).t(), base[::2], base[:1].expand(3))]
    return made, [t.stride() for t in made], [t.storage_offset() for t in made], [t._is_view() for t in made]


@like_pytorch
def test_tensors_in_one_pickle(m):
    base = m.arange(4.0)
    view = base[1:3]
    a, b, c = through_pickle([base, view, view])
    a.add_(10)
    return a, b, b is c


def named(g):
    return g


@like_pytorch
def test_pickling_warns_of_hooks(m):
    x, y = leaf(m, 1.0), leaf(m, 1.0) * 2
    x.register_hook(named)
    y.register_hook(named)
    return through_pickle(x), through_pickle(y), not through_pickle(x)._backward_hooks


def quiet(g):
    return g


quiet.__torch_unserializable__ = True


@like_pytorch
def test_hooks_that_are_meant_to_be_lost_are_lost_quietly(m):
    x = leaf(m, 1.0)
    x.register_hook(quiet)
    return through_pickle(x)


def test_a_subclass_is_pickled():
    t = tj.ones(2).as_subclass(Tagged)
    t.tag = [1]
    made = through_pickle(t)
    assert type(made) is Tagged and made.tag == [1] and made.tag is not t.tag and made.tolist() == [1.0, 1.0]


def test_what_describes_tensors_is_pickled_and_copied():
    for x in (tj.float32, tj.bfloat16, tj.device("cpu"), tj.Size([1, 2])):
        assert through_pickle(x) == x and copy.deepcopy(x) == x
    assert through_pickle(tj.float32) is tj.float32 and copy.deepcopy(tj.bfloat16) is tj.bfloat16
