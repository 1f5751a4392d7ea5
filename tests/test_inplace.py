"""In-place writes: what they do to the graph, what they refuse, and what backward says of saved tensors written since.

Each program runs here and, where it is installed, in PyTorch, and must look the same: values, gradients, versions, bases, grad_fn names,
strides, and the class and text of what is raised.
"""

from __future__ import annotations

import gc
import weakref

import pytest

import torchgrad_jax
from compat_suite.fuzz.programs import Run, lines, same


def test_writing_to_a_leaf_is_refused():
    same("""
        x = leaf(4)
        x.add_(1)
        x[0] = 1
        x[:] = 1
        x[1:][0] = 1
        assert x._version == 0
    """)


def test_writing_to_a_view_of_a_leaf_is_refused():
    same("""
        x = leaf(4)
        x[:2].mul_(2)
        v = leaf(4, requires_grad=False)[:2].requires_grad_()
        v.mul_(2)
    """)


def test_leaf_refusals_come_before_shape_errors():
    same("""
        x = leaf(4)
        x.add_(leaf(3))
        x.copy_(leaf(3))
        x.eq_(torch.ones(7))
    """)


def test_writing_to_a_leaf_under_no_grad_counts():
    same("""
        x = leaf(4)
        with torch.no_grad(): x.add_(1)
        x[:2].sum().backward()
    """)


def test_saved_tensor_written_since_names_its_writer():
    same("""
        a = leaf(4)
        x = a * 1
        y = x * x
        x.add_(1)
        y.sum().backward()
        z = a * 2
        y = z * z
        z[:1].zero_()
        y.sum().backward()
    """)


def test_saved_result_written_since_names_its_own_node():
    same("""
        x = leaf(4)
        y = x.exp()
        y.mul_(2)
        y.sum().backward()
    """)


def test_saved_leaf_written_since_has_no_writer():
    same("""
        x = leaf(4)
        y = x * x
        with torch.no_grad(): x.add_(1)
        y.sum().backward()
    """)


def test_saved_view_written_since():
    same("""
        x = leaf(4) * 1
        v = x[1:]
        y = v * v
        x.mul_(2)
        y.sum().backward()
    """)


def test_old_content_saved_by_the_write_itself_stays():
    same("""
        x = leaf(4) * 1
        x.sin_()
        x.sin_()
        x.sum().backward()
    """)


def test_tensor_times_itself_in_place_cannot_be_differentiated():
    same("""
        x = leaf(4) * 1
        x.mul_(x)
        x.sum().backward()
    """)


def test_write_of_a_tensor_that_requires_grad_makes_the_target_part_of_the_graph():
    same("""
        x = leaf(4, requires_grad=False)
        p = leaf(2, seed=1)
        x[1:3].mul_(p)
        x.square().sum().backward()
    """)


def test_copy_broadcasts_and_converts():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x.copy_(leaf(3, seed=1, dtype="float32"))
        x.sum().backward()
    """)


def test_copy_that_does_not_fit_is_refused():
    same("""
        x = leaf(2, 3, requires_grad=False)
        x.copy_(leaf(2))
        x.copy_(leaf(1, 2, 3))
        x.copy_(leaf(2, 2, 3))
    """)


def test_result_that_does_not_fit_is_refused():
    same("""
        x = leaf(2, requires_grad=False)
        x.add_(leaf(3, 2, requires_grad=False))
        x.add_(leaf(3, requires_grad=False))
        i = torch.tensor([1, 2])
        i.add_(0.5)
        i.mul_(x)
        i.div_(2)
        assert x._version == i._version == 0
    """)


def test_other_dtypes_are_converted():
    same("""
        x = leaf(2, dtype="float32", requires_grad=False)
        x.add_(leaf(2, requires_grad=False))
        x.mul_(torch.tensor([2, 3]))
        x.sub_(True)
    """)


def test_fill_takes_numbers_and_0_dim_tensors():
    same("""
        x = leaf(3) * 1
        w = leaf(seed=2)
        x.fill_(2.5)
        x.fill_(w)
        x.fill_(leaf(3))
        x.sum().backward()
    """)


def test_zero_cuts_the_gradient_off():
    same("""
        a = leaf(3)
        x = a * 1
        x.zero_()
        x.sum().backward()
    """)


def test_masked_fill_cuts_the_gradient_off_where_it_writes():
    same("""
        a = leaf(4)
        x = a * 1
        x.masked_fill_(x > 0, 5.0)
        x.square().sum().backward()
    """)


def test_memory_read_under_other_indices_is_refused():
    same("""
        x = leaf(4, requires_grad=False)
        x[1:].add_(x[:-1])
        x[1:].copy_(x[:-1])
        x.view(2, 2).add_(x.view(2, 2).t())
        x.mul_(x[:1])
        x[:2].add_(x[2:])
        x.add_(x[:])
    """)


def test_version_counts_every_write():
    same("""
        x = leaf(4, requires_grad=False)
        x.add_(1).mul_(2)
        x[0] = 1
        x[:] = x
        x.copy_(x)
        x[x > 0] = 1
    """)


def test_backward_twice_after_a_write_to_a_view():
    same("""
        a = leaf(4)
        x = a * 1
        x[:2].mul_(x[2:])
        y = x.square().sum()
        y.backward(retain_graph=True)
        y.backward()
        y.backward()
    """)


def test_augmented_assignment_keeps_the_tensor():
    same("""
        a = leaf(4)
        x = a * 1
        y = x
        x += 1
        assert x is y
        x[1:] *= 3
        x.sum().backward()
    """)


def test_retained_gradient_is_that_of_the_content_at_the_time():
    same("""
        a = leaf(4)
        x = a * 1
        x.retain_grad()
        y = x * 3
        x.mul_(2)
        (x.sum() + y.sum()).backward()
    """)


def test_detach_in_place_ends_the_graph():
    same("""
        a = leaf(4)
        x = a * 2
        x.detach_()
        assert x.is_leaf
        x.requires_grad_()
        x.sum().backward()
    """)


def test_refusals_of_views_of_one_node_come_before_those_of_outdated_views():
    same("""
        x = leaf(4)
        a, b, c, d = x.unbind()
        with torch.no_grad(): d.mul_(2)
        d[...] = 0.5
        d.mul_(d)
    """)


FREED = """
    a = leaf(4)
    x = a * 1
    v = x[1:]
    v.mul_(a[:3])
    v.grad_fn, x[0], x.detach().sum()
    x[torch.tensor([0, 1])] = 2
    x.data.add_(1)
    y = v.sin().sum() + x.square().sum()
    y.backward(retain_graph=True)
"""


def test_graphs_of_views_and_writes_are_freed_without_the_collector():
    run = Run(torchgrad_jax)
    gc.collect()
    gc.disable()
    try:
        for line in lines(FREED):
            assert run.do(line) is None
        tensors = [weakref.ref(run.space[name]) for name in "xvy"]
        nodes = [weakref.ref(run.space[name].grad_fn) for name in "xvy"]
        storages = [weakref.ref(run.space[name]._storage) for name in "xv"]
        run.do("del x, v, y")
        assert [r() for r in tensors + nodes + storages] == [None] * 8
    finally:
        gc.enable()


def test_view_of_a_tensor_that_began_to_require_grad_is_a_leaf_until_its_grad_fn_is_asked_for():
    same("""
        x = leaf(4, requires_grad=False)
        v, w = x[:], x[1:]
        v.mul_(leaf(seed=3))
        v.mul_(2)
        assert w.requires_grad
        w.mul_(2)
        w.grad_fn
        w.mul_(2)
        x.sum().backward()
    """)


def test_masks_without_dimensions_write_all_or_nothing():
    same("""
        x = leaf(requires_grad=False)
        x[x > 9] = 2
        x[x < 9] = 3
        y = leaf(2, 3) * 1
        y[torch.tensor(True)] = 1.5
        y[torch.tensor(False)] = 2.5
        y.sum().backward()
    """)


def test_out_of_tensors_with_history_is_refused_before_shapes_are_looked_at():
    same("""
        x = leaf(2, 3)
        torch.mul(x, leaf(4, requires_grad=False), out=x)
        torch.add(x, leaf(4, requires_grad=False), out=leaf(2, requires_grad=False))
        torch.div(leaf(2, requires_grad=False), leaf(4), rounding_mode="floor", out=leaf(2, requires_grad=False))
        torch.pow(x, 2, out=x)
        torch.exp(leaf(3, requires_grad=False), out=x)
    """)


def test_out_counts_as_a_write():
    same("""
        x = leaf(3, requires_grad=False)
        torch.exp(x, out=x)
        torch.add(x, 1, out=x)
        v = x[1:]
        torch.mul(v, v, out=v)
        assert x._version == 3
    """)


def test_masked_fill_refuses_what_does_not_fit():
    same("""
        x = leaf(4, requires_grad=False)
        m = x > 0
        x.masked_fill_(torch.tensor([True, False]), 3.0)
        x.masked_fill_(torch.tensor([[True, False, True, True]] * 2), 3.0)
        x.masked_fill_(torch.tensor([1, 0, 0, 0]), 3.0)
        x.masked_fill_(m, leaf(2))
        x.masked_fill_(m, 2j)
        x.masked_fill(torch.tensor([True, False]), 3.0)
        x.masked_fill(m, torch.tensor(2j))
        leaf(4).masked_fill_(torch.tensor([True, False]), 3.0)
    """)


def test_retained_gradients_follow_views_when_their_grad_fn_is_made_anew():
    same("""
        a = leaf(2)
        x = a * 1
        v, w = x[0], x[0]
        y = w * 3
        v.retain_grad()
        w.retain_grad()
        x.retain_grad()
        v.mul_(2)
        y.backward(retain_graph=True)
        (3 * v).backward(retain_graph=True)
        (5 * w).backward(retain_graph=True)
        y.backward(retain_graph=True)
        x.sum().backward()
    """)


def test_nothing_overlaps_in_an_empty_part_of_an_expanded_tensor():
    same("""
        x = leaf(1, 3, requires_grad=False).expand((2, -1, -1))
        x[:, 1:, None, 0] = -1.5
        x[:, 1:].add_(1)
    """)


def test_what_was_saved_of_a_view_made_anew_is_named_as_a_strided_view():
    same("""
        a = leaf(2, 3)
        x = a.square()
        v = x[:, 1]
        v.mul_(2)
        v.mul_(v)
        v.sum().backward()
        assert a.grad is None
    """)


def test_comparisons_in_place_give_zero_gradients():
    same("""
        x1 = leaf(4)
        x2 = leaf(1)
        x3 = x1 * 1
        x3.gt_(0.5)
        x4 = x1 * 1
        x4[:2].le_(x2)
        x5 = x1 * 1
        x5.eq_(x2)
        (x3 + x4 + x5).sum().backward()
        x6 = torch.zeros(4, dtype=torch.int64)
        x6.ne_(3)
        x1.lt_(1)
        x1[:2].ge_(1)
        x7 = x1 * 1
        x8 = x7 * x7
        x7.lt_(x7)
        x8.sum().backward()
        x9 = x1 * 1
        x9[1:].ge_(x9[:3])
    """)


def test_logic_in_place_goes_unnoticed():
    same("""
        x1 = leaf(4)
        x2 = x1 * 1
        x2[:2].logical_not_()
        x3 = x1 * 1
        x3.logical_and_(x1)
        x1.logical_xor_(x2)
        x1[1:].logical_or_(x3[1:])
        (x2 * x3).sum().backward()
    """)


def test_results_without_a_gradient_have_no_output_number():
    same("""
        x1 = leaf(2, 3)
        x2, x3 = x1.sort(1)
        x4, x5 = x1.max(0)
        x6, x7 = x1.cummax(0)
    """)


def test_a_graph_with_a_write_to_a_view_is_run_once():
    same("""
        x = leaf(4)
        y = x.clone()
        y[0] = 2
        y.sum().backward()
        y.sum().backward()
        y = x.clone()
        y[1:] = x[0]
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        y.sum().backward()
    """)


WRITES = [
    "copy_({0})",
    "fill_({0})",
    "__setitem__(0, {0})",
    "__setitem__(..., {0})",
    "__setitem__(torch.tensor([0]), {0})",
    "__setitem__(torch.tensor([True, False]), {0})",
    "masked_fill_(torch.tensor([True, False]), {0})",
    "index_fill_(0, torch.tensor([0]), {0})",
]


@pytest.mark.parametrize("number", ["2**63 - 1", "2**63", "2**64 - 1", "2**64", "-2**63", "-2**63 - 1", "300", "-1"])
@pytest.mark.parametrize("write", WRITES)
def test_numbers_that_a_dtype_does_not_hold(write, number):
    kinds = ["float32", "int64", "uint8", "int8", "bool", "complex64"]
    same([f"x = torch.zeros(2, dtype=torch.{kind}); x.{write.format(number)}" for kind in kinds])


@pytest.mark.parametrize("part", ["[:, :1]", "[0]", "[...]"])
def test_a_part_takes_what_is_computed_in_another_dtype(part):
    """The gradient comes in the target's dtype, the operation's own is the wider one."""
    same(f"""
        for kinds in (("float32", "float64"), ("float16", "float32")):
            for called in ("add_", "sub_", "mul_", "div_", "copy_"):
                x, y = leaf(2, 3, dtype=kinds[0], requires_grad=False), leaf(2, 3, seed=1, dtype=kinds[1])
                getattr(x{part}, called)(y{part})
                x.square().sum().backward()
    """)
