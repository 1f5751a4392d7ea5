"""Views: memory and versions shared with the base, and gradients through writes to either.

Each program runs here and, where it is installed, in PyTorch, and must look the same: values, gradients, versions, bases, grad_fn names,
strides, and the class and text of what is raised.
"""

from __future__ import annotations

import pytest

from compat_suite.fuzz.programs import same


def test_inplace_on_view_rebases_base_history():
    same("""
        a = leaf(4)
        x = a * 1
        x[:2].mul_(10)
        x.sum().backward()
        assert a.grad.tolist() == [10, 10, 1, 1]
    """)


def test_view_knows_its_base_and_shares_its_version():
    same("""
        x = leaf(2, 3, requires_grad=False)
        v = x[1]
        w = v[1:]
        assert w._base is x
        w.add_(1)
        assert x._version == v._version == 1
    """)


def test_base_written_after_the_view_was_made_regenerates_its_grad_fn():
    same("""
        a = leaf(4)
        x = a * 1
        v = x[1:]
        x.mul_(3)
        assert v.grad_fn.name() == "AsStridedBackward0"
        v.sum().backward()
        assert a.grad.tolist() == [0, 3, 3, 3]
    """)


def test_write_to_a_view_of_a_view_is_seen_by_its_siblings():
    same("""
        a = leaf(2, 3)
        x = a * 1
        v = x.t()[1:]
        w = x[0]
        v[0].mul_(5)
        w.square().sum().backward()
    """)


def test_chain_of_every_view_operation_writes_back():
    same("""
        a = leaf(2, 2, 2)
        x = a * 1
        v = x.transpose(0, 2).permute(1, 2, 0).select(0, 1).unsqueeze(0).squeeze(0).narrow(1, 0, 1).view(2, 1).expand(2, 1).t().diagonal()
        v.mul_(7)
        (x * leaf(2, 2, 2, seed=1)).sum().backward()
    """)


def test_write_to_part_of_an_expanded_tensor_reaches_memory():
    same("""
        x = leaf(1, 2, requires_grad=False)
        x.expand(3, 2)[1].fill_(4)
        x.expand(3, 2)[2][1] = 5
        assert x.tolist() == [[4, 5]]
        a = leaf(1, 2)
        y = a * 1
        y.expand(3, 2)[2].mul_(3)
        y.sum().backward()
    """)


def test_write_through_expand_is_refused():
    same("""
        x = leaf(1, 3, requires_grad=False)
        x.expand(2, 3).add_(1)
        x.expand(2, 3).copy_(leaf(3))
    """)


def test_fill_and_zero_of_an_expanded_tensor_are_allowed():
    same("""
        x = leaf(1, 3, requires_grad=False)
        x.expand(2, 3).fill_(1)
        x.expand(2, 3).zero_()
    """)


def test_views_of_one_node_refuse_writes():
    same("""
        x = leaf(4) * 1
        a, b = x.split(2)
        a.add_(1)
        b[:1].add_(1)
        c, d, e, f = x.unbind()
        d.zero_()
    """)


def test_view_among_several_refuses_use_after_its_base_was_written():
    same("""
        x = leaf(4) * 1
        a, b = x.split(2)
        x.add_(1)
        a * 2
        y = a.detach()
    """)


def test_writes_without_grad_mode_to_views_of_one_node_are_allowed():
    same("""
        x = leaf(4) * 1
        a, b = x.split(2)
        with torch.no_grad(): a.add_(1)
        x.sum().backward()
    """)


def test_view_made_under_no_grad_refuses_writes_in_grad_mode():
    same("""
        x = leaf(4) * 1
        with torch.no_grad(): v = x[:2]
        v.add_(1)
        v[:1].add_(1)
    """)


def test_view_made_under_no_grad_refuses_use_after_its_base_was_written():
    same("""
        x = leaf(4) * 1
        with torch.no_grad(): v = x[:2]
        x.add_(1)
        v * 2
        with torch.no_grad(): w = v * 2
    """)


def test_view_made_under_no_grad_requires_grad_but_keeps_none():
    same("""
        x = leaf(4)
        with torch.no_grad(): v = x[:2]
        assert v.requires_grad and v.is_leaf
        (v * 2).sum().backward()
    """)


def test_view_follows_requires_grad_of_its_base():
    same("""
        x = leaf(4, requires_grad=False)
        v = x[:2]
        x.requires_grad_()
        assert v.requires_grad
        x.requires_grad_(False)
        assert not v.requires_grad
        v.requires_grad_()
        v.square().sum().backward()
    """)


def test_detach_shares_memory_and_version_and_is_no_view():
    same("""
        x = leaf(4) * 1
        d = x.detach()
        assert d._base is None
        d.zero_()
        assert x._version == 1
    """)


def test_write_to_a_detached_twin_makes_backward_fail():
    same("""
        a = leaf(4)
        x = a * 1
        y = x * x
        x.detach().add_(1)
        y.sum().backward()
    """)


def test_views_of_a_detached_twin_have_it_as_their_base():
    same("""
        x = leaf(2, 3) * 1
        d = x[1].detach()
        v = d[1:]
        assert v._base is d
        p = leaf(2, seed=3)
        v.mul_(p)
        d.sum().backward()
    """)


def test_detached_views_are_views_no_more_but_see_writes():
    same("""
        x = leaf(4, requires_grad=False)
        d = x[1:].detach()
        x.mul_(2)
        d[0] = 9
    """)


def test_data_counts_versions_for_itself():
    same("""
        x = leaf(4)
        d = x.data
        d.add_(1)
        assert (x._version, d._version) == (0, 1)
        with torch.no_grad(): x.mul_(2)
        assert (x._version, d._version) == (1, 1)
        e = x[1:].data
        e.zero_()
        v = d.view(2, 2)
        with torch.no_grad(): x.fill_(3)
    """)


def test_gradients_use_what_was_written_through_data():
    same("""
        w = leaf(3)
        out = w.sigmoid()
        out.data.zero_()
        out.sum().backward()
        assert w.grad.tolist() == [0, 0, 0]
        u = leaf(3)
        y = u * u
        u.data.mul_(2)
        y.sum().backward()
    """)


def test_detach_in_place_is_refused_for_views():
    same("""
        x = leaf(4) * 1
        x[:2].detach_()
        x.detach_()
    """)


def test_strides_and_offsets_are_pytorchs():
    same("""
        x = leaf(2, 3, requires_grad=False)
        a = x.t()
        b = x[1, 1:]
        c = x[:, ::2]
        d = x.unsqueeze(1)
        e = x[:, :1].view(2, 1, 1)
        f = x.expand(1, 2, 3)
        g = x.diagonal(1)
        h = x.unfold(1, 2, 1)
        i = x[1:1].t()
        j = x[:, 0].expand(3, 2)
        k = x.as_strided((2, 2), (1, 2), 1)
    """)


def test_data_ptr_is_that_of_the_memory():
    same("""
        x = leaf(2, 3, requires_grad=False)
        assert x.view(6).data_ptr() == x.data_ptr() == x.detach().data_ptr()
        assert x[1].data_ptr() - x.data_ptr() == 3 * x.element_size()
        assert x.clone().data_ptr() != x.data_ptr()
    """)


def test_view_of_incompatible_strides_is_refused():
    same("""
        x = leaf(2, 3)
        x.t().view(6)
        x.view(4)
        x.view(-1, -1)
        x.view(4, -1)
        y = x.t().reshape(6)
        assert y._base is None
    """)


def test_reshape_is_a_view_where_strides_allow():
    same("""
        x = leaf(2, 3, requires_grad=False)
        y = x.reshape(3, 2)
        z = x[:, :2].reshape(2, 1, 2)
        assert y._base is z._base is x
        z.zero_()
    """)


def test_zero_dim_tensors_have_views():
    same("""
        x = leaf() * 1
        a, b, c, d, e, f = x.transpose(0, 0), x.permute(()), x.movedim(0, -1), x.unfold(0, 1, 1), x.squeeze(), x.t()
        d.mul_(3)
        x.backward()
    """)


def test_view_arguments_out_of_range_are_refused():
    same("""
        x = leaf(2, 3)
        x.select(2, 0)
        x.select(0, 2)
        x.narrow(0, 1, 2)
        x.transpose(0, 2)
        x.permute(0)
        x.permute(0, 0)
        x.expand(3, 3)
        x.expand(3)
        x.expand(-1, 2, 3)
        x.movedim((0, 0), (0, 1))
        x.unfold(0, 3, 1)
        x.diagonal(0, 0, 0)
        x.squeeze(2)
        x.split(0)
        x.split([1, 2])
        x.chunk(0)
        leaf(2, 2, 2).t()
        leaf().narrow(0, 0, 1)
    """)


def test_hooks_of_regenerated_views_run():
    same("""
        a = leaf(4)
        x = a * 1
        v = x[:2]
        v.mul_(2)
        v.register_hook(hook("v", 10.0))
        x.register_hook(hook("x"))
        (v.sum() + x.sum()).backward()
    """)


def test_double_backward_through_writes_to_views():
    same("""
        a = leaf(4)
        x = a * a
        x[1:3].mul_(a[:2])
        g = second(*grad(x.square().sum(), a, create_graph=True))
        g.square().sum().backward()
    """)


def test_full_slice_is_a_slice_by_itself_and_an_alias_among_others():
    same("""
        x = leaf(4, 2)
        a, b, c, d = x[:], x[:, :], x[...], x[0:4]
    """)


def test_backward_twice_through_views_alone_needs_nothing_retained():
    same("""
        x = leaf(4)
        v = x[1:].view(3, 1)[0]
        v.sum().backward()
        v.sum().backward()
    """)


def test_a_view_made_under_no_grad_may_be_compared_after_its_base_was_written_but_not_extend_a_graph():
    same("""
        x = leaf(2, 2)
        with torch.no_grad(): v = x.transpose(0, 0)
        with torch.no_grad(): x.zero_()
        y = v > 0
        z = v * 2
    """)


def test_parts_of_complex_tensors_are_views():
    same("""
        a = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128, requires_grad=True)
        x = a * 1
        r, i, p = x.real, x.imag, torch.view_as_real(x)
        assert r._base is i._base is p._base is x
        r.mul_(3)
        x.imag[1:].add_(leaf(1))
        y = torch.view_as_complex(p)
        q = x[1:].imag
        (x.real.sum() + 2 * x.imag.square().sum()).backward()
    """)


def test_pairs_are_seen_as_complex_numbers_without_a_copy():
    same("""
        a = leaf(2, 2)
        x = a * 1
        z = torch.view_as_complex(x)
        z.mul_(2j)
        (x * leaf(2, 2, seed=1)).sum().backward()
        torch.view_as_complex(x.t())
        torch.view_as_complex(leaf(3))
        torch.view_as_complex(leaf())
        torch.view_as_complex(leaf(6)[1:3])
        torch.view_as_complex(torch.tensor([1, 2]))
        torch.view_as_real(x)
        x.imag
        assert x.real is x
    """)


def test_only_inputs_that_can_have_a_gradient_are_next_functions():
    same("""
        a = leaf(2, 3)
        x = a[1]
        y = a[:, 1:]
        z = a[[0, 1]]
        u = a.clamp(min=0.0)
        v = a * 2
        w = 2 - a
        p = a ** 2
        q = a.masked_fill(a > 0, 1.0)
        b = a * 1
        b[a > 0] = 0.5
        c = a * 1
        c[[0, 1]] = leaf(3)
    """)


def test_no_edge_leads_to_a_leaf_from_its_views_made_under_no_grad():
    same("""
        x = leaf(4)
        with torch.no_grad(): v = x[:2]
        w = v * 2
        u = v[1:]
    """)


def test_bounds_beyond_a_dimension_are_all_of_it():
    same("""
        x = leaf(3, 2)
        a, b, c, d, e = x[:9, :], x[0:3, :], x[-3:, :], x[0:9], x[:, 0:5:1]
    """)


def test_assignment_to_an_expanded_tensor_is_refused_but_for_single_elements():
    same("""
        x = leaf(requires_grad=False).expand(2)
        x[...] = 1
        x[:] = 1
        x[None] = 1
        x[0:2] = 1
        x.fill_(torch.tensor(1.0))
        x[1] = 3
        x.add_(1)
    """)


def test_assigned_tensors_are_seen_without_leading_ones_and_expanded():
    same("""
        x = leaf(2, 3) * 1
        x[:] = leaf(2, 1, seed=1)
        y = leaf(2, 3) * 1
        y[:] = leaf(1, 2, 3, seed=1)
        z = leaf(2, 3) * 1
        z[1] = leaf(1, 1, seed=1)
    """)


def test_a_view_without_history_is_no_root_of_a_backward_pass():
    same("""
        x = leaf(4)
        with torch.no_grad(): v = x[1]
        assert v.requires_grad and v.is_leaf
        v.backward()
        grad(v, x)
        v.square().backward()
        assert x.grad is None
    """)


def test_operations_without_gradients_read_views_that_autograd_has_lost():
    same("""
        x = leaf(1, 3)
        a, b = x.chunk(2, 1)
        with torch.no_grad(): a[:] = 0.5
        m = b > 0
        n = b.isnan()
        b[b > 0] = 0.5
        c = b + 1
        b.requires_grad_(False)
        d = b.diagonal(0, 0, 5)
        e = b.unfold(0, 9, 1)
    """)


@pytest.mark.parametrize("call", ["t()", "permute(0)", "permute(0, 0, 1)", "select(0, 9)", "diagonal(0, 1, 1)"])
def test_a_lost_view_says_so_before_its_dimensions_are_counted(call):
    same(f"""
        x = leaf(2, 1, 2)
        a, = x.split(9)
        with torch.no_grad(): x.add_(1)
        a.{call}
    """)


def test_flags_of_a_lost_view_without_history_may_be_set():
    same("""
        x = leaf(3)
        with torch.no_grad(): v = x[1:]
        with torch.no_grad(): x.mul_(2)
        v.requires_grad_(False)
        v.requires_grad_(True)
    """)


def test_an_empty_part_written_to_leaves_no_graph_of_the_gradient():
    same("""
        x = leaf(2, 2)
        y = x.clone()
        v = y.narrow(0, 0, 0)
        v.mul_(2)
        v.square().sum().backward(create_graph=True)
    """)


def test_a_leaf_is_refused_before_an_outdated_operand():
    same("""
        x = leaf(2)
        a, b = (leaf(2, 2) * 1).unbind()
        with torch.no_grad(): a.mul_(2)
        x.div_(b)
        (x * 1).div_(b)
        b.div_(x)
    """)


def test_a_write_to_no_elements_writes_nothing():
    same("""
        x, y = leaf(seed=1, requires_grad=False), leaf(3, requires_grad=False)
        a, b = x.expand(0), y[:0]
        a.neg_()
        b.add_(1)
        w = leaf(2) * 1
        v = w.narrow(0, 0, 0)
        v.mul_(3)
        w.sum().backward()
    """)


def test_a_view_of_what_requires_no_gradient_any_more_may_be_written_to():
    same("""
        x = leaf(2, 2)
        with torch.no_grad(): v, w = x.unbind(0)
        y = v.view(-1)
        x.detach_()
        v.clamp_(min=0.0)
        w.mul_(2)
        y.add_(1)
    """)


@pytest.mark.parametrize("size, stride", [((2,), (2,)), ((2, 2), (1, 2)), ((3,), (0,)), ((2, 2), (1, 1)), ((1, 3), (7, 1)), ((), ())])
def test_gradients_by_strides_keep_the_sign_of_zeros(size, stride):
    same(f"""
        x = leaf(4)
        y = (x * torch.tensor([-0.0, 1.0, -1.0, 0.0])).as_strided({size}, {stride}, 0)
        y.sum().backward()
        g = grad((x * 1).as_strided({size}, {stride}, 0), x, torch.full({size}, -0.0))[0]
        1 / g, 1 / x.grad
    """)
