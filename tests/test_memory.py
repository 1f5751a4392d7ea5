"""Operations that change a tensor itself: its layout (`transpose_`), its size (`resize_`), its memory (`set_`, `data`), its history (`detach_`).

Each program runs here and, where it is installed, in PyTorch, and must look the same: values, gradients, versions, bases, graphs, strides, and
the class and text of what is raised.
"""

from __future__ import annotations

import pytest

import torchgrad_jax as tj
from compat_suite.fuzz.programs import same

# ---------------------------------------------------------------------- layout


def test_transposing_in_place_makes_a_node_of_its_own():
    same("""
        a = leaf(2, 3)
        x = a * 1
        y = x.transpose_(0, 1)
        assert x is y and x._base is None and x._version == 1 and x.stride() == (1, 3)
        (x * leaf(3, 2, seed=1)).sum().backward()
        z = (a * 2).t_()
        w = (a * 2).swapaxes_(0, 1).swapdims_(0, 1)
    """)


def test_dimensions_of_size_1_come_and_go_in_place():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x.unsqueeze_(0).unsqueeze_(-1)
        x.squeeze_(0)
        y = (a * 2).unsqueeze_(1).squeeze_((1,))
        z = (a * 3).unsqueeze_(1).squeeze_()
        (x.squeeze_() * leaf(2, 3, seed=1)).sum().backward()
    """)


def test_views_follow_a_base_that_was_transposed_in_place():
    same("""
        a = leaf(2, 3)
        x = a * 1
        v = x[0]
        x.t_()
        w = x[0]
        v.mul_(3)
        w.mul_(5)
        (x * leaf(3, 2, seed=1)).sum().backward()
    """)


def test_view_transposed_in_place_stays_a_view():
    same("""
        a = leaf(2, 3)
        x = a * 1
        v = x[:1]
        v.t_()
        assert v._base is x and x.grad_fn.name() == "MulBackward0"
        (v * leaf(3, 1, seed=1)).sum().backward(retain_graph=True)
        v.mul_(2)
        (x * leaf(2, 3, seed=2)).sum().backward()
    """)


def test_leaves_and_their_views_refuse_another_layout():
    same("""
        x = leaf(2, 3)
        x.t_()
        x[:1].unsqueeze_(0)
        x.transpose_(0, 5)
        with torch.no_grad(): x.transpose_(0, 1)
        y = leaf(2, 3) * 1
        p, q = y.unbind()
        p.unsqueeze_(0)
        leaf(2, 2, 2, requires_grad=False).t_()
        leaf(2, 3, requires_grad=False).transpose_(0, 2)
    """)


def test_another_layout_counts_as_a_write():
    same("""
        x = leaf(2, 3)
        y = x * x
        with torch.no_grad(): x.t_()
        y.sum().backward()
    """)


def test_hooks_and_retained_gradients_stay_with_the_old_layout():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x.retain_grad()
        h = x.register_hook(hook("old"))
        x.t_()
        (x * leaf(3, 2, seed=1)).sum().backward()
    """)


def test_another_layout_under_no_grad_leaves_a_graph_that_refuses():
    x = tj.ones(2, 3, requires_grad=True) * 1
    with tj.no_grad():
        x.t_()
    assert x.shape == (3, 2)
    with pytest.raises(RuntimeError, match=r"got \[3, 2\] but expected shape compatible with \[2, 3\]"):
        x.sum().backward()


# ---------------------------------------------------------------------- size


def test_smaller_sizes_keep_the_memory():
    same("""
        x = leaf(2, 3, requires_grad=False)
        twin = x.detach()
        v = x[1]
        x.resize_(2, 2)
        x.add_(1)
        v.zero_()
        x.resize_as_(leaf(3))
        assert x._version == 4
    """)


def test_larger_sizes_keep_the_elements():
    x = tj.tensor([1.0, 2.0])
    assert x.resize_(2, 2)[0].tolist() == [1, 2] and x.shape == (2, 2) and x._version == 1


def test_what_was_given_larger_or_other_memory_can_be_written_to():
    same("""
        x = torch.ones(2)
        x.resize_(3).fill_(4.0)
        x[1:].copy_(torch.ones(2))
        y = x.view(3, 1)
        y.mul_(2)
        z = torch.zeros(2)
        z.set_(torch.ones(4))
        z.mul_(3)
        w = z[1:]
        w.add_(z[0])
        z.sub_(1)
        a = torch.ones(2)
        a.resize_(4).fill_(3.0)
        a.requires_grad_()
        b = a * 2
        b.add_(1)
        b.sum().backward()
    """)


def test_tensors_that_require_a_gradient_have_a_fixed_size():
    same("""
        x = leaf(4)
        x.resize_(2)
        (x * 1).resize_as_(x)
        x.data.resize_(-1)
        x.resize_()
        x.resize_as_(2)
    """)


# ---------------------------------------------------------------------- memory


def test_set_takes_over_the_memory_of_another_tensor():
    same("""
        x = leaf(4, requires_grad=False)
        y = leaf(2, 3, seed=1, requires_grad=False)
        x.set_(y)
        y.zero_()
        x.set_(y[1])
        x.add_(1)
        x.set_(leaf(2, dtype="float32", requires_grad=False))
        x.set_()
        leaf(4).set_(y)
    """)


def test_setting_data_keeps_history_and_version():
    same("""
        a = leaf(4)
        x = a * 1
        x.add_(1)
        v = x[:2]
        x.data = leaf(4, seed=5)
        assert x._version == 1 and x.grad_fn.name() == "AddBackward0"
        x.square().sum().backward()
    """)


def test_setting_data_shares_the_memory():
    same("""
        x = leaf(4)
        y = leaf(4, seed=1, requires_grad=False)
        x.data = y
        y.mul_(2)
        with torch.no_grad(): x.add_(1)
        assert (x._version, y._version) == (1, 1)
        x.data = y[1:]
        y.zero_()
    """)


def test_gradients_use_the_data_set_since_but_results_their_own():
    same("""
        w = leaf(3)
        y = w * w
        w.data = leaf(3, seed=4)
        y.sum().backward()
        u = leaf(3, seed=2)
        z = u.exp()
        z.data = leaf(3, seed=4)
        z.sum().backward()
    """)


def test_set_data_reaches_what_a_gradient_has_saved_whether_data_was_asked_for_or_not():
    for before in ("", "t = x.data", "x.data.add_(1)"):
        for after in ("", "y.data.mul_(3)"):
            same(f"""
                a = leaf(3)
                x = a * 1
                {before}
                y = second(*grad(x.sin().sum(), x, create_graph=True))
                x.data = y
                {after}
                g = second(*grad(y.square().sum(), a))
            """)


def test_other_tensors_of_the_old_memory_keep_it_when_data_is_set():
    same("""
        x = leaf(3)
        w = leaf(3, seed=1)
        d = x.detach()
        y = d * w
        x.data = leaf(3, seed=4)
        y.sum().backward()
    """)


def test_data_of_another_shape_and_dtype():
    same("""
        x = leaf(4)
        x.data = leaf(2, 3, seed=1, dtype="float32")
        x.square().sum().backward()
        assert x.grad.shape == (2, 3) and x.grad.dtype == torch.float32
    """)


def test_what_cannot_be_data_is_refused():
    same("""
        x = leaf(4)
        x.data = torch.tensor([1, 2])
        x.data = None
        x.data = 2.0
        del x.data
        y = leaf(4, requires_grad=False)
        y.data = torch.tensor([1, 2])
        assert y.dtype == torch.int64
    """)


# ---------------------------------------------------------------------- history


def test_detaching_in_place_ends_the_history():
    same("""
        a = leaf(4)
        x = a * 1
        v = x[:2]
        v.detach_()
        x.detach_()
        y = a.detach()[1:]
        y.detach_()
        a.detach_()
        assert not a.requires_grad
    """)


def test_what_was_saved_of_a_tensor_detached_since_is_refused():
    same("""
        a = leaf(3)
        b = a.clone()
        c = b.sin()
        twin = b.detach()
        d = twin * a
        b.detach_()
        c.sum().backward()
        d.sum().backward()
        e = a.exp()
        e.detach_()
        b.requires_grad_()
        (b * b).sum().backward()
    """)


def test_same_size_is_no_write():
    same("""
        x = leaf(4, requires_grad=False)
        x.resize_(4)
        x.resize_as_(x)
        x.resize_(2, 2)
        x.set_(x)
        x.set_()
    """)


def test_data_may_be_set_to_the_tensor_itself_or_to_what_it_was():
    same("""
        x = leaf(3)
        d = x.detach()
        y = x * x
        x.data = x
        y.sum().backward(retain_graph=True)
        x.data = leaf(3, seed=2)
        x.data = d
        x.data = x[:]
        y.sum().backward()
    """)


def test_what_a_node_kept_of_its_result_is_outdated_by_writes_to_the_data_set_since():
    same("""
        a = leaf(2, 2)
        x = a.tanh()
        x.data = a
        x.mul_(2)
        x.sum().backward()
    """)


def test_an_outdated_operand_is_told_by_the_layout_it_was_given_since():
    same("""
        x = leaf(2, 2).exp()
        y = x.sin()
        x.squeeze_(-2)
        y.sum().backward()
        x.sum().backward()
    """)


def test_a_gradient_is_retained_once_whatever_has_become_of_the_view():
    same("""
        x, y = leaf(2, 3).split([1, 1], 0)
        y.retain_grad()
        with torch.no_grad(): y.mul_(2)
        y.retain_grad()
        x.retain_grad()
    """)


def test_a_view_without_a_grad_fn_retains_no_gradient():
    same("""
        x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
        v = x[:1]
        x.mul_(w)
        v.retain_grad()
        y = leaf(3)
        with torch.no_grad(): u = y[:1]
        y.detach().mul_(2)
        u.retain_grad()
    """)
