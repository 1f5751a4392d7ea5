"""Views whose elements overlap: `expand`, `unfold`, `as_strided`. What may be written to them, what is then in memory, and the gradients.

Each program runs here and, where it is installed, in PyTorch, and must look the same.
"""

from __future__ import annotations

import pytest

import torchgrad_jax as tj
from compat_suite.fuzz.programs import same


def test_a_part_of_overlapping_windows_is_written_to_its_place():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x.unfold(1, 2, 1)[:, 0].mul_(2)
        x.as_strided((3,), (0,))[1].mul_(2)
        x.as_strided((3, 2), (1, 1))[1].data.mul_(2)
        x.square().sum().backward()
        assert a.grad[0].tolist() != [0, 0, 0]
    """)


def test_masks_and_indices_write_to_expanded_tensors():
    same("""
        x = leaf(1, 3, requires_grad=False)
        y = x.expand(2, 3)
        y.masked_fill_(torch.tensor([[True, False, False], [False, True, False]]), 7.0)
        assert y.tolist()[0][:2] == y.tolist()[1][:2] == [7, 7]
        y[y < 5] = 4.0
        y[torch.tensor([0])] = leaf(3, seed=1, requires_grad=False)
        y[torch.tensor([0])] *= 2
        y.index_fill_(1, torch.tensor([2]), 9.0)
        y.index_put_((torch.tensor([0, 1]),), torch.ones(2, 3, dtype=torch.float64), accumulate=True)
    """)


def test_adding_at_indices_to_an_expanded_tensor_leaves_infinities():
    same("""
        x = torch.tensor([[math.inf], [-math.inf], [math.nan], [math.inf], [1.0]], dtype=torch.float64)
        y = x.expand(5, 3)
        added = torch.tensor([[-1.5, 2.0], [1.0, math.inf], [1.0, 1.0], [math.inf, 1.0], [math.inf, 1.0]], dtype=torch.float64)
        y.index_put_((torch.arange(5)[:, None], torch.tensor([1, 0])), added, accumulate=True)
        print(x.tolist())
    """)


def test_writes_by_mask_or_index_to_expanded_tensors_are_warned_of():
    x = tj.zeros(1, 3).expand(2, 3)
    with pytest.warns(UserWarning, match=r"^Use of masked_fill_ on expanded tensors is deprecated\. .* e\.g\. tensor\[mask\] = scalar$"):
        x.masked_fill_(x == 0, 1)
    with pytest.warns(UserWarning, match=r"^Use of index_put_ on expanded tensors is deprecated\. .* e\.g\. tensor\[indices\] = tensor$"):
        x[tj.tensor([0])] = 1
    with pytest.warns(UserWarning, match=r"^Use of index_fill_ on expanded tensors is deprecated\. "):
        x.index_fill_(0, tj.tensor([0]), 1)


def test_other_writes_to_expanded_tensors_are_refused():
    same("""
        x = leaf(1, 3, requires_grad=False)
        y = x.expand(2, 3)
        y.mul_(2)
        y.copy_(leaf(2, 3))
        torch.mul(y, 2, out=y)
        torch.mul(x, 2, out=y)
        y.scatter_(0, torch.tensor([[0]]), 2.0)
        y.masked_scatter_(y == 0, torch.ones(6, dtype=torch.float64))
        assert y._version == 0
    """)


def test_what_writes_elsewhere_than_it_reads_refuses_its_own_tensor():
    same("""
        x, i, j = leaf(3, 3, requires_grad=False), torch.tensor([[2, 1, 0]]), torch.tensor([2, 1, 0])
        x.index_add_(1, j, x)
        x.index_copy_(0, j, x[:])
        x.index_reduce_(0, j, x, 'amax')
        x.scatter_(1, i, x)
        x.scatter_add_(1, i, x[:])
        x.scatter_reduce_(1, i, x, 'amax')
        x.put_(i, x[:1])
        x.index_put_((j,), x)
        x[j] = x
        x[:0].index_add_(1, j, x[:0])
        assert x._version == 1
    """)


def test_a_number_of_the_tensor_that_is_filled():
    same("""
        x = leaf(3, 3, requires_grad=False)
        x.masked_fill_(x > 0, x[0, 1])
        x.index_fill_(1, torch.tensor([2, 0]), x[1, 0])
        x.fill_(x[2, 2])
        assert x._version == 3
    """)


def test_numbers_as_indices_of_a_tensor_without_dimensions():
    same("""
        x = leaf(seed=1, requires_grad=False)
        y = x[0]
        y = x[3]
        x[-1] = 2.0
        x[0] = 2.0
    """)


def test_an_expanded_tensor_may_be_copied_to_itself():
    same("""
        x = leaf(1, 3, requires_grad=False)
        y = x.expand(2, 3)
        y.copy_(y)
        y[:] = y
        y[:] = y.detach()
        y[:] = x
        assert y._version == 4
    """)


def test_the_gradient_of_a_write_to_an_expanded_tensor_is_refused():
    same("""
        w = leaf(1, 3)
        x = w * 2
        y = x.expand(2, 3)
        y.fill_(3.0)
        x.sum().backward()
        v = leaf(1, 3, requires_grad=False)
        v.expand(2, 3)[torch.tensor([0])] = w[0]
        v.sum().backward()
        assert w.grad.tolist() == [[1, 1, 1]]
    """)


def test_a_pass_that_ends_at_a_write_to_an_expanded_tensor_is_not_refused():
    same("""
        a = leaf(2, seed=2)
        x = a * 1
        y = x.expand(2, 2)
        y[y > 0.1] = 0.25
        y.square().sum().backward(inputs=[x, y], retain_graph=True)
        g = grad(y.square().sum(), [x], retain_graph=True)
        y.square().sum().backward(inputs=[a])
    """)


def test_the_layout_of_an_expanded_tensor_may_be_changed():
    same("""
        x = leaf(1, 3, requires_grad=False).expand(2, 3).unsqueeze(-1)
        x.t_()
        x.transpose_(0, 7)
        x.transpose_(0, 1)
        assert x.shape == (3, 2, 1)
    """)


def test_as_strided_of_a_view_reads_memory_outside_of_it():
    same("""
        x = leaf(4, requires_grad=False)
        v = x[2:]
        s = v.as_strided((2,), (2,), 0)
        d = x[2:].detach().as_strided((2,), (2,), 0)
        s.mul_(2)
        d.mul_(2)
        assert s._base is x and s.storage_offset() == 0 and v.as_strided((2,), (1,)).storage_offset() == 2
    """)


def test_as_strided_of_a_view_passes_on_the_gradient_of_what_is_in_the_view():
    same("""
        x = leaf(2, 3)
        v = (x * 1)[:, 1:]
        s = v.as_strided((2, 2), (1, 2), 0)
        assert s.grad_fn.next_functions[0][0].name() == "SliceBackward0"
        (s * leaf(2, 2, seed=1)).sum().backward()
        assert x.grad[0, 0] == 0
    """)


def test_as_strided_of_a_view_has_no_gradient_without_the_views_history():
    same("""
        x = leaf(4)
        with torch.no_grad(): v = x[1:]
        s = v.as_strided((2,), (1,))
        assert s.requires_grad and s.grad_fn.next_functions == ((None, 0),)
        s.sum().backward()
        assert x.grad is None
    """)


def test_as_strided_of_a_detached_view_has_the_gradient_of_what_is_in_that():
    same("""
        a = leaf(6, requires_grad=False)
        x = a.narrow(0, 1, 2).detach().requires_grad_()
        s = x.as_strided((2, 2), (1, 2), 0)
        t = x[1:].as_strided((2, 2), (1, 2), 0)
        u = x.as_strided((2,), (1,), 4)
        assert s._base is x and t._base is x and t.grad_fn.next_functions[0][0].name() == "SliceBackward0"
        ((s + 2 * t) * leaf(2, 2, seed=1)).sum().backward()
        (u * u).sum().backward()
        y = leaf(2, 3, requires_grad=False).t()[1:].detach().requires_grad_()
        (y.as_strided((2, 2), (1, 2), 0) * leaf(2, 2, seed=1)).sum().backward()
        z = leaf(1, 2, requires_grad=False)[:, 1:].expand(3, 1).detach().requires_grad_()
        (z.as_strided((2, 2), (1, 0), 0) * leaf(2, 2, seed=1)).sum().backward()
    """)


def test_writes_reach_what_as_strided_has_of_a_detached_view():
    same("""
        w = leaf(seed=2)
        x = leaf(6, requires_grad=False).narrow(0, 1, 2).detach()
        s = x.as_strided((2, 2), (1, 2), 0)
        t = s[0]
        x.mul_(w)
        assert t.requires_grad
        (s * leaf(2, 2, seed=1)).sum().backward(retain_graph=True)
        t.sum().backward()
    """)


def test_a_write_outside_of_the_base_has_no_backward():
    same("""
        w = leaf(seed=2)
        x = leaf(6, requires_grad=False).narrow(0, 1, 2).detach()
        x.as_strided((2, 2), (1, 2), 0).mul_(w)
        x.sum().backward()
        y = leaf(6, requires_grad=False).narrow(0, 1, 2).detach()
        y.as_strided((2, 2), (1, 2), 1).mul_(w)
        y.sum().backward()
    """)


def test_a_view_of_what_became_smaller_keeps_its_memory():
    same("""
        w = leaf(seed=2)
        x = leaf(6, requires_grad=False)
        v = x[2:5]
        x.resize_(3)
        x.mul_(w)
        (v * leaf(3, seed=1)).sum().backward(retain_graph=True)
        v.mul_(2)
    """)


def test_as_strided_of_overlapping_elements_shares_the_gradient_among_them():
    same("""
        x = leaf(2, 3)
        (x.expand(2, 2, 3).as_strided((2, 2), (1, 2)) * leaf(2, 2, seed=1)).sum().backward()
        (x.unfold(1, 2, 1).as_strided((2, 2), (1, 2)) * leaf(2, 2, seed=1)).sum().backward()
    """)


def test_as_strided_of_a_view_of_a_transposed_tensor_goes_by_its_memory():
    same("""
        a = leaf(2, 3)
        x = a * 1
        x.t_()
        s = x[0:2].as_strided((2,), (1,))
        s.mul_(3)
        (s * s).sum().backward()
    """)


def test_as_strided_of_a_view_keeps_to_the_views_memory_after_data_was_set():
    same("""
        x = leaf(4, seed=1)
        v = x.view(4)
        x.data = leaf(4, seed=2, requires_grad=False)
        s = v.as_strided((2, 2), (1, 2))
    """)


def test_as_strided_refuses_what_is_not_in_memory():
    same("""
        x = leaf(4)
        x.as_strided((9,), (1,))
        x[1:].as_strided((4,), (1,))
        x.as_strided((2,), (1, 1))
        x.as_strided((2,), (-1,))
        s = x.as_strided((0,), (1,))
    """)


def test_an_element_written_twice_passes_its_gradient_to_both_values():
    same("""
        x, v = leaf(4), leaf(3, seed=2)
        y = x * 1
        y[torch.tensor([0, 0, 1])] = v
        y[torch.tensor([2, 2])] *= 2
        (y * leaf(4, seed=5)).sum().backward()
    """)


def test_a_write_to_what_was_expanded_to_nothing():
    same("""
        x = leaf(1)
        y = x * 1
        v = y.expand(0)
        v.tanh_()
        y.square().sum().backward()
        x.grad
    """)
