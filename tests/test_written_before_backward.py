"""What an operation saves for backward may not be written to before backward: the same refusals as PyTorch's, operator by operator. And what
PyTorch refuses to write at all."""

import pytest

import torchgrad_jax as tj
from tests.side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

MATRIX = [[1.0, 2.0, 0.5], [0.25, 3.0, 1.5], [2.0, 0.75, 1.25]]
PICTURE = [[[[float(i * 4 + j) for j in range(4)] for i in range(4)]]]
# By name: a function of the library, the tensors that require a gradient, and one that does not.
OPERATIONS = {
    "avg_pool1d": lambda m, x, y: m.nn.functional.avg_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda m, x, y: m.nn.functional.adaptive_avg_pool1d(x, 2),
    "cholesky_solve": lambda m, x, y: m.cholesky_solve(x, y),
    "complex": lambda m, x, y: m.view_as_real(m.complex(x, y)),
    "cumprod": lambda m, x, y: x.cumprod(0),
    "cumsum": lambda m, x, y: x.cumsum(0),
    "div_floor": lambda m, x, y: m.div(x, y, rounding_mode="floor"),
    "fmax": lambda m, x, y: m.fmax(x, y[0]),
    "fmin": lambda m, x, y: m.fmin(x[0], y),
    "gather": lambda m, x, y: m.gather(x, 0, m.tensor([[0, 1, 2]])),
    "householder_product": lambda m, x, y: m.linalg.householder_product(x, y[0]),
    "i0e": lambda m, x, y: m.special.i0e(x),
    "i1": lambda m, x, y: m.special.i1(x),
    "i1e": lambda m, x, y: m.special.i1e(x),
    "layer_norm": lambda m, x, y: m.nn.functional.layer_norm(x, (3,), y[0], x[0]),
    "logcumsumexp": lambda m, x, y: x.logcumsumexp(0),
    "masked_select": lambda m, x, y: m.masked_select(x, m.tensor([True, False, True])),
    "pdist": lambda m, x, y: m.pdist(x),
    "polar": lambda m, x, y: m.view_as_real(m.polar(x, y)),
    "prod": lambda m, x, y: x.prod(),
    "prod_dim": lambda m, x, y: x.prod(1),
    "reflection_pad": lambda m, x, y: m.nn.functional.pad(x, (1, 1), "reflect"),
    "replication_pad": lambda m, x, y: m.nn.functional.pad(x, (1, 1), "replicate"),
    "scatter": lambda m, x, y: m.scatter(x, 0, m.tensor([[0, 1, 2]] * 3), y),
    "scatter_add": lambda m, x, y: m.scatter_add(x, 0, m.tensor([[0, 1, 2]] * 3), y),
    "sgn": lambda m, x, y: x.sgn(),
    "take": lambda m, x, y: m.take(x, m.tensor([0, 4])),
    "take_along_dim": lambda m, x, y: m.take_along_dim(x, m.tensor([[0, 1, 2]]), 0),
    "triangular_solve": lambda m, x, y: m.triangular_solve(x, y)[0],
}


def _written(m, operation, which):
    operands = [m.tensor(MATRIX, requires_grad=True).clone(), m.tensor(MATRIX, requires_grad=True).clone()]
    result = operation(m, *operands)
    with m.no_grad():
        (*operands, result)[which].add_(0)
    return error_of(lambda: result.sum().backward())


@pytest.mark.parametrize("which", [0, 1, 2], ids=["self", "other", "result"])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_write_to_what_is_saved_is_told_by_backward(name, which):
    ours, theirs = (_written(m, OPERATIONS[name], which) for m in (tj, torch))
    assert (ours and ours[0]) == (theirs and theirs[0]), (ours, theirs)


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
