"""What an operation saves for backward may not be written to before backward: the same refusals as PyTorch's, operator by operator."""

import pytest

import torchgrad_jax as tj
from tests.side_by_side import error_of

torch = pytest.importorskip("torch")

MATRIX = [[1.0, 2.0, 0.5], [0.25, 3.0, 1.5], [2.0, 0.75, 1.25]]
PICTURE = [[[[float(i * 4 + j) for j in range(4)] for i in range(4)]]]
# By name: a function of the library, the tensors that require a gradient, and one that does not.
OPERATIONS = {
    "addcdiv_self": lambda m, x, y: m.addcdiv(x, y, m.tensor(MATRIX)),
    "addcdiv": lambda m, x, y: m.addcdiv(m.tensor(MATRIX), x, y),
    "addcmul": lambda m, x, y: m.addcmul(m.tensor(MATRIX), x, y),
    "atan2": lambda m, x, y: m.atan2(x, y),
    "avg_pool1d": lambda m, x, y: m.nn.functional.avg_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda m, x, y: m.nn.functional.adaptive_avg_pool1d(x, 2),
    "cholesky_solve": lambda m, x, y: m.cholesky_solve(x, y),
    "complex": lambda m, x, y: m.view_as_real(m.complex(x, y)),
    "cumprod": lambda m, x, y: x.cumprod(0),
    "cumsum": lambda m, x, y: x.cumsum(0),
    "div_floor": lambda m, x, y: m.div(x, y, rounding_mode="floor"),
    "fmax": lambda m, x, y: m.fmax(x, y[0]),
    "fmin": lambda m, x, y: m.fmin(x[0], y),
    "attention": lambda m, x, y: m.nn.functional.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None]),
    "bag_of_largest": lambda m, x, y: m.nn.functional.embedding_bag(m.tensor([[0, 2]]), x, mode="max"),
    "bag_of_means": lambda m, x, y: m.nn.functional.embedding_bag(m.tensor([[0, 2]]), x, mode="mean"),
    "bag_of_weights": lambda m, x, y: m.nn.functional.embedding_bag(m.tensor([[0, 2]]), x, mode="sum", per_sample_weights=y[:1, :2]),
    "grid_sample_nearest": lambda m, x, y: m.nn.functional.grid_sample(x[None, None], y[None, :, :2, None].mT, "nearest"),
    "lstsq_residuals": lambda m, x, y: m.linalg.lstsq(x[:, :2], y, driver="gelsd")[1],
    "lu_solve": lambda m, x, y: m.linalg.lu_solve(x, m.tensor([2, 2, 3], dtype=m.int32), y),
    "ormqr": lambda m, x, y: m.ormqr(x, y[0], y),
    "rrelu": lambda m, x, y: m.nn.functional.rrelu(x, training=True),
    "take_along_dim_flat": lambda m, x, y: m.take_along_dim(x, m.tensor([[0, 1, 2]])),
    "gather": lambda m, x, y: m.gather(x, 0, m.tensor([[0, 1, 2]])),
    "householder_product": lambda m, x, y: m.linalg.householder_product(x, y[0]),
    "i0e": lambda m, x, y: m.special.i0e(x),
    "i1": lambda m, x, y: m.special.i1(x),
    "i1e": lambda m, x, y: m.special.i1e(x),
    "layer_norm_bias": lambda m, x, y: m.nn.functional.layer_norm(x, (3,), None, y[0]),
    "lerp": lambda m, x, y: m.lerp(x, y, 0.25),
    "lerp_tensor": lambda m, x, y: m.lerp(x, y, m.tensor(MATRIX)),
    "max_pool1d": lambda m, x, y: m.nn.functional.max_pool1d(x, 2),
    "pow": lambda m, x, y: x.pow(y),
    "pow_base": lambda m, x, y: x.pow(m.tensor(MATRIX)),
    "pow_exponent": lambda m, x, y: m.tensor(MATRIX).pow(x),
    "pow_number": lambda m, x, y: 2.0**x,
    "layer_norm": lambda m, x, y: m.nn.functional.layer_norm(x, (3,), y[0], x[0]),
    "logcumsumexp": lambda m, x, y: x.logcumsumexp(0),
    "masked_select": lambda m, x, y: m.masked_select(x, m.tensor([True, False, True])),
    "pdist": lambda m, x, y: m.pdist(x),
    "polar": lambda m, x, y: m.view_as_real(m.polar(x, y)),
    "prod": lambda m, x, y: x.prod(),
    "prod_dim": lambda m, x, y: x.prod(1),
    "constant_pad": lambda m, x, y: m.nn.functional.pad(x, (1, 1)),
    "circular_pad": lambda m, x, y: m.nn.functional.pad(x, (1, 1), "circular"),
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


@pytest.mark.operators
@pytest.mark.parametrize("which", [0, 1, 2], ids=["self", "other", "result"])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_write_to_what_is_saved_is_told_by_backward(name, which):
    ours, theirs = (_written(m, OPERATIONS[name], which) for m in (tj, torch))
    assert (ours and ours[0]) == (theirs and theirs[0]), (ours, theirs)


# Functions of three tensors, of which one alone needs a gradient while another, or the result, is written to.
ALONE = {
    "addcdiv": lambda m, x, y, z: m.addcdiv(x, y, z),
    "attention": lambda m, x, y, z: m.nn.functional.scaled_dot_product_attention(x[None, None], y[None, None], z[None, None]),
    "cholesky_solve": lambda m, x, y, z: m.cholesky_solve(x, y) + z,
    "complex": lambda m, x, y, z: m.view_as_real(m.complex(x, y)),
    "copysign": lambda m, x, y, z: m.copysign(x, y),
    "div_floor": lambda m, x, y, z: m.div(x, y, rounding_mode="floor"),
    "householder_product": lambda m, x, y, z: m.linalg.householder_product(x, y[0]),
    "index_add": lambda m, x, y, z: m.index_add(x, 0, m.tensor([0, 2]), y[:2]),
    "index_copy": lambda m, x, y, z: m.index_copy(x, 0, m.tensor([0, 2]), y[:2]),
    "ldexp": lambda m, x, y, z: m.ldexp(x, y),
    "lerp": lambda m, x, y, z: m.lerp(x, y, z),
    "lu_solve": lambda m, x, y, z: m.linalg.lu_solve(x, m.tensor([2, 2, 3], dtype=m.int32), y),
    "nextafter": lambda m, x, y, z: m.nextafter(x, y),
    "ormqr": lambda m, x, y, z: m.ormqr(x, y[0], z),
    "polar": lambda m, x, y, z: m.view_as_real(m.polar(x, y)),
    "solve_triangular": lambda m, x, y, z: m.linalg.solve_triangular(x, y, upper=True),
    "triangular_solve": lambda m, x, y, z: m.triangular_solve(x, y)[0],
}


def _written_where_one_needs_a_gradient(m, name, needing, written):
    operands = [m.tensor(MATRIX), m.tensor(MATRIX), m.tensor(MATRIX)]
    operands[needing].requires_grad_()
    result = ALONE[name](m, *operands)
    with m.no_grad():
        (*operands, result)[written].add_(0)
    return error_of(lambda: result.sum().backward())


@pytest.mark.operators
@pytest.mark.parametrize("written", [0, 1, 2, 3])
@pytest.mark.parametrize("needing", [0, 1, 2])
@pytest.mark.parametrize("name", ALONE)
@pytest.mark.filterwarnings("ignore")
def test_what_is_saved_depends_on_what_needs_a_gradient_as_in_pytorch(name, needing, written):
    ours, theirs = (_written_where_one_needs_a_gradient(m, name, needing, written) for m in (tj, torch))
    assert (ours and ours[0]) == (theirs and theirs[0]), (ours, theirs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "complex128", "float64"])
def test_the_message_names_the_type_as_pytorch_does(dtype):
    def program(m):
        x = m.ones(2, dtype=getattr(m, dtype), requires_grad=True)
        y = x.exp()
        y.mul_(2)
        return error_of(y.sum().abs().backward)

    assert program(tj) == program(torch)


@pytest.mark.parametrize("needing", [0, 1])
def test_nextafter_is_followed_by_way_of_what_it_begins_with(needing):
    def program(m):
        operands = [m.ones(2), m.tensor([1.0, 2.0])]
        operands[needing].requires_grad_()
        m.nextafter(*operands).sum().backward()
        return operands[needing].grad.tolist()

    assert program(tj) == program(torch)


# What is written to here needs no gradient: by name, what it is, and the function of it and of a tensor that needs one.
NEEDING_NONE = {
    "convolution_weight": (lambda m: m.ones(2, 3, 1), lambda m, t, x: m.nn.functional.conv1d(m.ones(1, 3, 4), t, x[0, :2])),
    "convolution_input": (lambda m: m.ones(1, 3, 4), lambda m, t, x: m.nn.functional.conv1d(t, m.ones(2, 3, 1), x[0, :2])),
    "group_norm_input": (lambda m: m.ones(1, 3, 4), lambda m, t, x: m.nn.functional.group_norm(t, 3, m.ones(3), x[0])),
    "batch_norm_input": (lambda m: m.ones(2, 3), lambda m, t, x: m.nn.functional.batch_norm(t, None, None, m.ones(3), x[0], True)),
    "batch_norm_eval_mean": (lambda m: m.zeros(3), lambda m, t, x: m.nn.functional.batch_norm(x, t, m.ones(3), x.detach()[0] + 0)),
    "layer_norm_input": (lambda m: m.ones(2, 3), lambda m, t, x: m.nn.functional.layer_norm(t, (3,), m.ones(3), x[0])),
    "layer_norm_bias": (lambda m: m.ones(3), lambda m, t, x: m.nn.functional.layer_norm(x, (3,), x.detach()[0] + 0, t)),
    "prelu_weight": (lambda m: m.ones(1), lambda m, t, x: m.nn.functional.prelu(x, t)),
    "bag_offsets": (lambda m: m.tensor([0, 2]), lambda m, t, x: m.nn.functional.embedding_bag(m.tensor([0, 2, 1]), x, t)),
    "lu_unpack_pivots": (lambda m: m.tensor([2, 2, 3], dtype=m.int32), lambda m, t, x: m.lu_unpack(x, t)[1]),
    "lu_solve_pivots": (lambda m: m.tensor([2, 2, 3], dtype=m.int32), lambda m, t, x: m.linalg.lu_solve(x, t, m.ones(3, 1))),
    "take_along_dim_flat": (lambda m: m.tensor([[0, 1, 2]]), lambda m, t, x: m.take_along_dim(x, t)),
    "take_along_dim": (lambda m: m.tensor([[0, 1, 2]]), lambda m, t, x: m.take_along_dim(x, t, 0)),
}


def _written_apart(m, name, written):
    made, operation = NEEDING_NONE[name]
    t, x = made(m), m.tensor(MATRIX, requires_grad=True)
    result = operation(m, t, x)
    if written:
        t.add_(0)
    return error_of(lambda: result.sum().backward())


@pytest.mark.operators
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("name", NEEDING_NONE)
def test_a_write_to_what_needs_no_gradient_is_told_too(name, written):
    ours, theirs = (_written_apart(m, name, written) for m in (tj, torch))
    assert (ours and ours[0]) == (theirs and theirs[0]), (ours, theirs)
