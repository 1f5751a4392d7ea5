"""What is saved for backward may not be written to before backward, through views and twins, in PyTorch's words; and what PyTorch refuses to write at
all. Operator by operator: see `test_saved_by_operators.py`."""

import pytest

import torchgrad_jax as tj
from tests.side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

from compat_suite.fuzz.programs import same  # noqa: E402 - needs torch

MATRIX = [[1.0, 2.0, 0.5], [0.25, 3.0, 1.5], [2.0, 0.75, 1.25]]


@like_pytorch
def test_fmax_and_fmin_of_operands_of_different_shapes_are_differentiated(m):
    x, y = m.tensor(MATRIX, requires_grad=True), m.tensor([1.0, 1.0, 1.0], requires_grad=True)
    (m.fmax(x, y) + m.fmin(y, x)).sum().backward()
    return x.grad, y.grad


@pytest.mark.parametrize("write", [lambda y: y[:2].add_(2), lambda y: y[:2].zero_(), lambda y: y.__setitem__(0, 2), lambda y: y[:2].mul_(2)])
def test_a_second_backward_through_a_write_to_a_view_is_refused(write):
    def program(m):
        x = m.ones(3, requires_grad=True)
        y = x.clone()
        write(y)
        loss = y.sum()
        loss.backward()
        kept = x.grad.clone()
        return error_of(loss.backward), kept, x.grad

    like_pytorch(program)()


@like_pytorch
def test_a_second_backward_through_a_write_to_a_view_runs_where_the_graph_is_retained(m):
    x = m.ones(3, requires_grad=True)
    y = x.clone()
    y[0] = 2
    loss = y.sum()
    for _ in range(3):
        loss.backward(retain_graph=True)
    return x.grad


@like_pytorch
def test_a_gradient_is_not_added_to_an_expanded_one(m):
    x = m.ones(3, requires_grad=True)
    x.grad = m.ones(1).expand(3)
    return error_of((x * 2).sum().backward)


COMPLEX_WITHOUT_DERIVATIVE = [
    lambda m, z: m.nan_to_num(z), lambda m, z: m.nn.functional.silu(z), lambda m, z: m.nn.functional.embedding(m.tensor([0]), z),
    lambda m, z: m.scatter_reduce(z, 0, m.tensor([[0, 1]]), z.detach(), "sum"), lambda m, z: m.select_scatter(z, z[0].detach(), 0, 1),
    lambda m, z: m.slice_scatter(z, z.detach()), lambda m, z: z.detach().clone().nan_to_num_(), lambda m, z: m.nan_to_num(z.detach()),
]  # fmt: skip


@pytest.mark.parametrize("call", COMPLEX_WITHOUT_DERIVATIVE)
def test_complex_results_without_a_derivative_are_refused_at_the_call(call):
    like_pytorch(lambda m: call(m, m.tensor([[1 + 2j, 2.0], [0.5j, 1.0]], requires_grad=True)))()


VALUES = [
    lambda m: 1.5, lambda m: 1.5j, lambda m: 2**40, lambda m: m.tensor(1.5, dtype=m.float64), lambda m: m.tensor([1.5], dtype=m.float64),
    lambda m: m.tensor([1.5, 2], dtype=m.float64), lambda m: m.tensor([2, 3]), lambda m: m.tensor([1.0, 2.0, 3.0]), lambda m: None,
]  # fmt: skip
PLACES = [
    lambda m: 0, lambda m: slice(0, 2), lambda m: m.tensor([0, 1]), lambda m: [0, 1], lambda m: m.tensor([True, True, False]),
    lambda m: m.tensor(1), lambda m: (m.tensor([True, True, False]),), lambda m: m.tensor(True),
]  # fmt: skip


@pytest.mark.operators
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", ["float32", "int32", "complex64", "bool", "float16"])
def test_only_values_of_its_own_dtype_are_written_at_index_tensors(dtype, place):
    def program(m):
        found = []
        for value in VALUES:
            x = m.ones(3, dtype=getattr(m, dtype))
            found.append((error_of(lambda x=x, value=value: x.__setitem__(place(m), value(m))), x))
        return found

    like_pytorch(program)()


SHAPES = [(), (1,), (2,), (2, 3), (1, 1)]


@pytest.mark.operators
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_reduce", "index_select"])
@pytest.mark.filterwarnings("ignore")
def test_an_index_must_fit_the_tensor_and_the_source(name, shape):
    def attempt(m, source, count):
        index = m.zeros(count, dtype=m.int64)
        x, more = m.ones(shape), {"index_select": (), "index_reduce": (m.ones(source), "prod")}.get(name, (m.ones(source),))
        found = []
        raised = error_of(lambda: found.append(getattr(x, name)(0, index, *more).tolist()))
        return raised, found

    for source in SHAPES:
        for count in ((), (0,), (1,), (2,)):
            assert attempt(tj, source, count) == attempt(torch, source, count), (source, count)


# ---------------------------------------------------------------------- gradients of gradients


GRADIENTS = ["x.sin()", "x * x", "x * 2", "x.exp()", "x.pow(2)", "x.square()", "x.pow(3)", "x / (x + 1)", "x.sigmoid()", "x.log()", "x.pow(0.5)"]


@pytest.mark.parametrize("origin", ["y", "y.view(2)", "y * 1"])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_gradient_goes_on_counting_the_versions_of_what_it_is_made_of(gradient, origin):
    same(f"""
        y = leaf(2, seed=2)
        x = {origin}
        g = second(*grad(({gradient}).sum(), x, create_graph=True))
        with torch.no_grad(): y.sub_(1)
        h = second(*grad((g * g).sum(), y, retain_graph=True, allow_unused=True))
    """)


PIECEWISE = [
    "x.relu()", "f.hardtanh(x)", "f.leaky_relu(x)", "f.threshold(x, 0.25, 0.5)", "f.hardshrink(x)", "f.softshrink(x)", "f.relu6(x)",
    "f.prelu(x, leaf(1, requires_grad=False))", "f.mse_loss(x, leaf(2, requires_grad=False), reduction='none')",
]  # fmt: skip


@pytest.mark.parametrize("written", ["x", "y"])
@pytest.mark.parametrize("made", PIECEWISE)
def test_a_gradient_tells_what_it_has_saved_before_it_gives_zeros(made, written):
    same(f"""
        f = torch.nn.functional
        x = leaf(2, seed=2) * 1
        y = {made}
        h = y.grad_fn.register_prehook(prehook(1)), x.grad_fn.register_prehook(prehook(2))
        g = second(*grad(y.sum(), x, create_graph=True))
        {written}.mul_(2)
        g.sum().backward() if g.requires_grad else None
    """)


@pytest.mark.parametrize("made", ["x.relu()", "x.tanh()", "x.sigmoid()", "x.softmax(0)", "x.cumprod(0)"])
def test_a_gradient_goes_on_naming_the_node_of_a_result(made):
    same(f"""
        x = leaf(2, seed=2) * 1
        y = {made}
        v = leaf(2, seed=3)
        g = second(*grad(y, x, v, create_graph=True))
        y.mul_(2)
        g.sum().backward()
    """)


def test_errors_are_told_in_order_where_gradients_are_differentiated():
    same("""
        x = leaf(2, 3)
        y = torch.pow(x[:, :], x)
        with torch.no_grad(): x -= 0.1
        y.sum().backward(create_graph=True)
    """)


def test_gradients_of_gradients_lead_to_a_power():
    same("""
        x = leaf(2, seed=1)
        y = leaf(2, seed=4)
        z = x.square().pow(y)
        a, b = second(*grad(z.sum(), [x, y], create_graph=True))
        (a + b).sum().backward()
        c = second(*grad(x.square().pow(leaf(2, requires_grad=False)).sum(), x, create_graph=True))
        c.sum().backward()
    """)


def test_an_empty_vector_joined_has_a_gradient_without_a_graph():
    same("""
        x = leaf(2)[0:0]
        y = leaf(2)
        g = second(*grad(torch.cat([x, x], -1).sin().sum(), x, create_graph=True))
        a, b = second(*grad(torch.cat([x, y]).sin().sum(), [x, y], create_graph=True))
    """)


def test_writes_to_nothing_count():
    same("""
        a = leaf(3)
        x = a * 1
        v = x.narrow(0, 3, 0)
        v.tanh_()
        w = x[:0].exp()
        x[1:1] *= 0.5
        x.sum().backward()
        w.sum().backward()
    """)


# ---------------------------------------------------------------------- views


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("operation", ["v.sin()", "v.exp()", "v * v", "v / v", "v.pow(v)", "v.masked_select(v > 0)", "v + v", "v @ v", "v[1:].sin()"])
def test_a_view_without_a_history_is_refused_when_it_is_out_of_date(operation, mode):
    same(f"""
        x = leaf(4, seed=1)
        with torch.{mode}(): v = x.view(4)
        y = {operation}
        with torch.no_grad(): x.add_(1)
        y.sum().backward()
    """)


@pytest.mark.parametrize("operation", ["v.sin()", "v * v"])
def test_a_view_older_than_the_flag_of_its_base(operation):
    same(f"""
        x = leaf(4, requires_grad=False)
        v = x.view(4)
        x.requires_grad_()
        y = {operation}
        with torch.no_grad(): x.add_(1)
        y.sum().backward()
    """)


@pytest.mark.parametrize("views", ["x.unbind(-1)", "x.split(1, -1)", "x.split([1, 1, 1], -1)", "x.chunk(3, -1)"])
@pytest.mark.parametrize("result", ["a.sin() * b", "a.view(2).sin()", "b.detach().sin() * a[0]"])
def test_one_of_several_views_is_refused_by_its_node(views, result):
    same(f"""
        x = leaf(2, 3)
        a, b, c = {views}
        y = {result}
        with torch.no_grad(): x.add_(1)
        y.sum().backward()
    """)


@pytest.mark.parametrize("before", ["y.unsqueeze_(1)", "y.t_()", "y.t_().t_()", "y.unsqueeze_(0).squeeze_(0)"])
@pytest.mark.parametrize("after", ["y.transpose_(0, 1)", "y.unsqueeze_(0)", "y.mul_(2)"])
def test_messages_tell_the_present_sizes_of_what_was_changed_before_it_was_kept(before, after):
    same(f"""
        x = leaf(2, 3)
        y = x.exp()
        {before}
        z = y * y.sum()
        {after}
        z.sum().backward()
    """)


@pytest.mark.parametrize("view", ["y[...]", "y.view(6)", "y[:1]", "y.t()", "y.t().t_()", "y.unsqueeze(0).squeeze_(0)"])
@pytest.mark.parametrize("made", ["x.detach() * 2", "x * 2"])
@pytest.mark.parametrize("write", ["y.copy_(x)", "y.mul_(x)", "y[:1].mul_(x[:1])", "v.mul_(x.sum())", "y.copy_(x.detach())"])
def test_messages_name_the_node_that_a_view_has_after_a_write(view, made, write):
    same(f"""
        x = leaf(2, 3)
        y = {made}
        v = {view}
        z = v * x.sum()
        {write}
        z.sum().backward()
    """)


def test_messages_name_the_node_of_a_view_that_was_itself_written_to_before():
    same("""
        a = leaf(1, 3)
        x = a.detach()
        v = x.view(3, 1)
        v.masked_fill_(v > 0, 0.5)
        y = a @ v
        v[-3, 1:] = y
        v.sum().backward()
        b = leaf(3) * 1
        w = b[1:]
        w.mul_(2)
        z = w.sin()
        b.mul_(2)
        b.detach_()
        z.sum().backward()
    """)


@pytest.mark.parametrize("change", ["unsqueeze_(1)", "unsqueeze_(0).unsqueeze_(0)", "squeeze_()", "t_()", "transpose_(0, 1).add_(1)"])
@pytest.mark.parametrize("made", ["y.sin()", "y.sin() + y.exp()", "y[0].sin()", "y * x"])
def test_messages_tell_the_present_sizes_of_what_is_kept(made, change):
    same(f"""
        x = leaf(1, 3)
        y = x.exp()
        z = {made}
        y.{change}
        z.sum().backward()
        y.sum().backward()
    """)


def test_messages_about_indices_and_booleans():
    same("""
        x = leaf(2, 3)
        a, i = x.max(-1)
        i.unsqueeze_(1)
        a.sum().backward()
        b = leaf(2, dtype='bool')
        y = leaf(2) * b
        b.logical_not_()
        y.sum().backward()
    """)


@pytest.mark.parametrize("part", ["x", "x[:2]", "x.view(x.shape)", "x.unbind(0)[0]"])
@pytest.mark.parametrize("made", ["a.chunk(2, -1)[0]", "a[:, :2]", "a.unbind(0)[0][None]", "a.detach()"])
def test_a_view_of_a_leaf_that_is_a_view_is_refused_as_that_was_made(made, part):
    same(f"""
        a = leaf(2, 3, requires_grad=False)
        x = {made}
        with torch.no_grad(): y = {made}
        x.requires_grad_()
        y.requires_grad_()
        z = ({part}).sin()
        x, y = y, x
        w = ({part}).sin()
        a.mul_(2)
        z.sum().backward()
        w.sum().backward()
    """)


def test_a_leaf_that_was_written_to_by_way_of_a_twin_has_no_node():
    same("""
        x = leaf(2, seed=1)
        t = x.detach()
        y = x.sin()
        t.sub_(leaf(2))
        y.sum().backward()
    """)


@pytest.mark.parametrize("views", ["x.split(9)", "x[:1].unbind(0)", "x.split([2])", "x.chunk(1)", "x.tensor_split(1)"])
def test_the_only_one_of_several_views_is_refused_too(views):
    same(f"""
        x = leaf(2)
        a, = {views}
        y = a.sin()
        z = a.view(-1).exp() * a.view(-1)
        with torch.no_grad(): x.add_(1)
        y.sum().backward()
        z.sum().backward()
    """)


@pytest.mark.parametrize("saved, written", [("twin", "y.abs_()"), ("twin", "y[0].mul_(2)"), ("y", "twin.mul_(x)"), ("twin[:1]", "y.mul_(x)"),
                                            ("y", "y.mul_(x).exp_()"),
                                            ("plain", "plain.mul_(x).add_(x)"), ("plain", "plain[0].mul_(x[0])")])  # fmt: skip
def test_a_twin_without_history_keeps_its_node_where_the_other_is_written_to(saved, written):
    same(f"""
        x = leaf(2)
        y = x.exp()
        twin = y.detach()
        plain = leaf(2, seed=1, requires_grad=False)
        z = {saved} * x
        {written}
        z.sum().backward()
    """)


UNSAVED = ["v.scatter_add(0, i, v)", "v * v", "v * 2.5", "v + v", "v.sum()", "torch.cat([v, v])[:4]", "torch.addcmul(v, v, v)"]
SAVED = ["v.exp()", "v * x", "v / v", "v ** 2", "v ** v", "v.gather(0, i)", "v[i]", "v.masked_fill(v > 1, 1.0)", "v.clamp(0, 1)", "v.prod()",
         "v.softmax(0)", "torch.lerp(v, v, v)", "v.scatter_add(0, i, x)"]  # fmt: skip


@pytest.mark.parametrize("result", UNSAVED + SAVED)
def test_a_second_pass_below_a_view_without_history_misses_what_was_saved_for_it(result):
    same(f"""
        x = leaf(4)
        i = torch.zeros(4, dtype=torch.int64)
        y = x * 2
        with torch.no_grad(): v = y.view(4)
        z = {result}
        (x * 1 + z).sum().backward()
        (x * 1 + z).sum().backward()
    """)


@pytest.mark.parametrize("write", ["x[:] = y", "x.mul_(y)", "x.mul_(y.detach())", "x.mul_(w)"])
@pytest.mark.parametrize("call", ["y.backward()", "(y + x.sum()).backward()", "torch.autograd.grad(y, w, allow_unused=True)"])
def test_a_leaf_that_a_write_has_given_a_history_takes_no_gradient(write, call):
    same(f"""
        x = leaf(2)
        w = leaf(2, seed=1)
        y = x.sum()
        x.requires_grad_(False)
        {write}
        {call}
        x.grad, w.grad
    """)


@pytest.mark.parametrize("write", ["v.add_(w)", "x.add_(w)", "x[:1].mul_(w[:1])", "x.add_(1)", "with torch.no_grad(): x.add_(w)"])
@pytest.mark.parametrize("view", ["x[...]", "x[:1]", "x.detach()", "x"])
@pytest.mark.parametrize("call", ["v.requires_grad_(False)", "v.requires_grad_()", "v.requires_grad = False", "v.requires_grad = True"])
def test_the_flag_of_a_view_that_a_write_has_given_a_history_stays(write, view, call):
    same(f"""
        w = leaf(3)
        x = leaf(3, seed=1, requires_grad=False)
        v = {view}
        {write if view == "x[...]" or not write.startswith("v") else "x.mul_(w)"}
        {call}
        v.requires_grad, x.requires_grad
    """)


@pytest.mark.parametrize("write", ["t.mul_(2)", "x.detach().mul_(2)", "with torch.no_grad(): x.mul_(2)", "v.detach().mul_(2)", "t"])
@pytest.mark.parametrize("view", ["x[1:]", "x.split([1, 3])[1]", "x.view(4)"])
@pytest.mark.parametrize("mode", ["no_grad", "enable_grad"])
def test_a_view_that_is_a_leaf_is_looked_at_when_its_gradient_comes(write, view, mode):
    same(f"""
        x = leaf(4, requires_grad={mode == "no_grad"})
        with torch.{mode}(): v = {view}
        t = x.detach()
        v.requires_grad_()
        y = torch.cat([v, v]) * 2
        {write}
        y.sum().backward()
        v.grad, x.grad
    """)


@pytest.mark.parametrize("cut", ["x.detach_()", "x.requires_grad_(False)"])
@pytest.mark.parametrize("write", ["x.div_(w)", "x[:1].mul_(w[:1])", "x.mul_(w.detach())"])
def test_what_was_a_leaf_is_named_after_the_node_it_has_now(cut, write):
    same(f"""
        x = leaf(2)
        w = x + x
        y = x * x
        {cut}
        {write}
        y.sum().backward()
    """)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("call", ["torch.pow(v, v)", "torch.pow(v, 2 * v.detach())", "torch.pow(2.0, v)", "v.exp()", "v / v"])
def test_results_are_saved_wherever_gradients_go(mode, call):
    same(f"""
        x = leaf(4)
        with torch.{mode}(): v = x.narrow(0, 1, 2)
        y = {call}
        y.neg_()
        y.sum().backward()
        x.grad
    """)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_view_among_several_is_told_by_its_number(number):
    same(f"""
        x = leaf(2, 3) * 1
        parts = x.unbind(-1)
        y = parts[{number}] * parts[{number}]
        x.masked_fill_(x > 0, 0.25)
        y.sum().backward()
    """)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "enable_grad"])
@pytest.mark.parametrize("write", ["x.mul_(w[0, 0])", "x.detach().mul_(2)", "x.mul_(2)", "x[0].mul_(w[0, 0])"])
def test_a_view_without_history_is_told_as_such_once_its_base_has_one(mode, write):
    same(f"""
        x = leaf(2, 3, requires_grad=False)
        w = leaf(1, 2, seed=1)
        with torch.{mode}(): v = x[:, :]
        y = w @ v
        {write}
        y.sum().backward()
    """)


@pytest.mark.parametrize("made", ["leaf({shape}, seed=1, requires_grad=False)", "leaf(2, {shape}, seed=1, requires_grad=False)[1]"])
@pytest.mark.parametrize("shape", ["2", "1"])
@pytest.mark.parametrize("between", ["x", "x.add_(x)", "x.t()", "x.requires_grad_(False)", "x = x * 1"])
@pytest.mark.parametrize("call", ["x * w", "torch.pow(x * x, w)", "w @ x", "torch.addcmul(w, x, w)", "x.detach() * w", "w.tanh() * x + x.sin()"])
def test_what_requires_a_gradient_only_since_it_was_used_takes_part_in_second_order(made, shape, between, call):
    same(f"""
        w = leaf({shape})
        x = {made.format(shape=shape)}
        {between if "requires" not in between else "x"}
        y = ({call}).sum()
        x.requires_grad_()
        {between if "requires" in between else "x"}
        g = second(*grad(y, w, create_graph=True))
        g.sum().backward()
        x.grad, w.grad
    """)
