"""``out=``: which dtypes, sizes and memories it may have, and who takes it."""

from functools import partial

import numpy as np
import pytest

import torchgrad_jax as tj
from tests.side_by_side import error_of, like_pytorch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

DTYPES = ["float32", "float64", "int64", "bool", "complex64", "float16"]
CALLS = {
    "cumsum": lambda m, x, out: m.cumsum(x, 0, out=out), "cumprod": lambda m, x, out: m.cumprod(x, 0, out=out),
    "abs": lambda m, x, out: m.abs(x, out=out), "sum": lambda m, x, out: m.sum(x, 1, out=out), "add": lambda m, x, out: m.add(x, x, out=out),
    "mm": lambda m, x, out: m.mm(x, x, out=out), "matmul": lambda m, x, out: m.matmul(x, x, out=out), "neg": lambda m, x, out: m.neg(x, out=out),
    "signbit": lambda m, x, out: m.signbit(x, out=out), "isposinf": lambda m, x, out: m.isposinf(x, out=out),
    "eq": lambda m, x, out: m.eq(x, x, out=out), "cat": lambda m, x, out: m.cat([x, x], out=out),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_dtypes(name, dtype):
    def program(m):
        found = []
        for kind in DTYPES:
            if name == "sum" and kind == "bool":
                continue
            x, out = m.tensor([[1, 2], [3, 4]], dtype=getattr(m, dtype)), m.empty(0, dtype=getattr(m, kind))
            raised = error_of(lambda x=x, out=out: CALLS[name](m, x, out))
            found.append(raised or out)
        return found

    ours, theirs = [], []
    for m, found in ((tj, ours), (torch, theirs)):
        found += [(r[0], r[1].partition("\n")[0]) if isinstance(r, tuple) else (str(r.dtype), r.tolist()) for r in program(m)]
    assert ours == theirs


@pytest.mark.parametrize("call", [
    lambda m, x, y: m.add(x, 1, out=y), lambda m, x, y: m.exp(x, out=y), lambda m, x, y: m.cumsum(x, 0, out=y),
    lambda m, x, y: m.clamp(x, 0, 1, out=y), lambda m, x, y: m.where(x > 0, x, x, out=y), lambda m, x, y: m.index_select(x, 0, m.tensor([0]), out=y),
    lambda m, x, y: m.logical_not(x, out=y), lambda m, x, y: m.addcmul(x, x, x, out=y), lambda m, x, y: m.cat([x[:1], x[:2]], out=y),
])  # fmt: skip
def test_a_result_may_not_be_written_over_what_is_still_read(call):
    def program(m):
        base = m.arange(6.0)
        apart = base.clone()
        return error_of(lambda: call(m, base[:3], base[1:4])), error_of(lambda: call(m, apart[:3], apart[3:])), apart

    like_pytorch(program)()


TARGETS = [
    lambda m: m.empty(0), lambda m: m.empty(2), lambda m: m.empty(4, 2)[:, 0], lambda m: m.empty(6)[:4], lambda m: m.empty(3, 3).t(),
    lambda m: m.empty(2, 2).t(), lambda m: m.empty(8)[::2],
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("call", [
    lambda m, x, out: m.add(x, x, out=out), lambda m, x, out: m.sum(x, 0, keepdim=True, out=out), lambda m, x, out: m.cat([x, x], out=out),
    lambda m, x, out: m.mm(x.view(2, 2), x.view(2, 2), out=out), lambda m, x, out: m.normal(x, x, out=out),
])  # fmt: skip
def test_a_target_takes_the_size_of_the_result(call, target):
    def program(m):
        m.manual_seed(0)
        out = target(m)
        given = call(m, m.arange(4.0), out)
        return given is out, out, out._version, list(out.stride())

    like_pytorch(program)()


@like_pytorch
def test_a_target_that_is_a_part_of_memory_is_resized_there(m):
    base = m.zeros(6)
    part = base[2:4]
    m.add(m.ones(3), 1, out=part)
    return base, part, part.storage_offset()


METHODS = [
    lambda x, o: x.add(x, out=o), lambda x, o: x.sum(0, out=o), lambda x, o: x.exp(out=o), lambda x, o: x.mm(x, out=o),
    lambda x, o: x.cumsum(0, out=o),
    lambda x, o: x.sort(0, out=(o, o)), lambda x, o: x.clamp(0, 1, out=o), lambda x, o: x.gather(0, x, out=o), lambda x, o: x.norm(out=o),
    lambda x, o: x.div(x, out=o), lambda x, o: x.std(0, out=o), lambda x, o: x.take(x, out=o),
]  # fmt: skip


@pytest.mark.parametrize("call", METHODS)
def test_methods_take_none(call):
    for m in (tj, torch):
        x = m.ones(2, 2)
        assert error_of(lambda m=m, x=x: call(x, m.empty(2, 2)))[0] == "TypeError"


def test_a_dtype_and_a_target_of_another_one_contradict_each_other():
    def program(m):
        taken = m.cumsum(m.ones(2), 0, dtype=m.float64, out=m.empty(0).double())
        return error_of(lambda: m.cumsum(m.ones(2), 0, dtype=m.float64, out=m.empty(0))), taken

    like_pytorch(program)()


def test_numbers_are_taken_from_numpy_too():
    assert tj.cumsum(tj.tensor(np.arange(3)), 0, out=tj.empty(0)).tolist() == [0, 1, 3]


RULES = """
inner(x, x, out=E(F)); inner(x, x, out=E(D)); svd(x, out=(E(F), E(F))); sort(x, out=(E(F),)); aminmax(x, out=(E(F), E(F), E(F)))
split_copy(x, 1, out=(E(F), E(F))); unbind_copy(x, out=[E(F)]); eq(x, x, out=G); lt(x, 1, out=G); logical_not(x, out=G); signbit(x, out=G)
amax(x, 0, out=X); mean(x, 0, out=X); kron(x, x, out=X); cat([x, x], out=X); add(x, x, out=X); bitwise_and(k, k, out=E(L, 1, 3).expand(3, 3))
add(x[0], 1, out=X); mm(x[:-1], x, out=x[1:]); exp(x[:-1], out=x[1:]); sum(x[:-1], 0, out=x[1]); softmax(x[:-1], 0, out=x[1:])
tril(x[:-1], out=x[1:]); permute_copy(x[:-1], (0, 1), out=x[1:]); flip(x[:-1], (0,), out=x[1:]); clone(x[:-1], out=x[1:])
outer(v, v, out=v); kron(x, x, out=x); cross(x, x, out=x); index_add(v, 0, k, v, out=v); scatter_add(v, 0, k, v, out=v); take(x, k, out=x)
softmax(x, 0, out=E(D)); addmv(v, x, v, out=E(D)); permute_copy(x, (1, 0), out=E(C)); linalg.inv(x, out=E(D)); linalg.svdvals(x, out=E(C))
clamp(x, 0, 1, out=E(D)); lerp(x, x, 0.5, out=E(C)); lerp(x, x, x, out=E(C)); clamp_min(x, 0, out=E(D)); clamp_min(x, x, out=E(D))
bitwise_not(k, out=E(F)); all(x, out=E(F)); any(x, out=E(U)); argsort(x, out=E(F))
isin(x, x, out=E(F)); histc(x, out=E(D)); dot(v, v, out=E(D)); nan_to_num(x, out=E(D)); linalg.norm(x, out=E(D)); linalg.vecdot(x, x, out=E(D))
linalg.multi_dot([x, x], out=E(D)); mode(x, out=(E(F), E(F))); median(x, 0, out=(E(F), E(F))); frexp(x, out=(E(F), E(L)))
linalg.inv_ex(x, out=(E(F), E(L))); take(x, k, out=E(F)); take(x, k, out=E(D)); threshold(x, 0.5, 2.0, out=E(F)); threshold(x, 0.5, 2.0, out=E(L))
slice_scatter(x, x, out=E(F)); slice_scatter(x, x, out=E(L)); triangular_solve(x, x, out=(E(F), E(F))); linalg.lu_factor(x, out=(E(F), E(F)))
lu_unpack(*linalg.lu_factor(x), out=(E(F), E(F), E(F))); logcumsumexp(x, 0, out=E(D)); tensordot(x, x, 1, out=E(D)); norm(x, out=E(D))
"""


@pytest.mark.parametrize("expression", [e.strip() for e in RULES.replace("\n", ";").split(";") if e.strip()])
@pytest.mark.filterwarnings("ignore")
def test_class_of_what_is_given_or_raised(expression):
    def outcome(m):
        names = {
            "m": m, "x": m.arange(9.0).reshape(3, 3).sin() + 2 * m.eye(3), "v": m.ones(3), "k": m.tensor([0, 2, 1]), "linalg": m.linalg,
            "X": m.empty(1, 3).expand(3, 3), "G": m.empty(3, 3, requires_grad=True), "F": m.float32, "D": m.float64, "L": m.int64, "C": m.complex64,
            "U": m.uint8, "E": lambda dtype, *size: m.empty(*size or (0,), dtype=dtype),
        }  # fmt: skip
        try:
            made = eval(f"m.{expression}", {}, names)
        except Exception as error:
            return type(error).__name__
        return [(str(t.dtype), tuple(t.shape)) for t in (made if isinstance(made, (tuple, list)) else (made,)) if t is not None]

    assert outcome(tj) == outcome(torch)


@like_pytorch
def test_an_input_that_is_too_small_for_the_result_is_not_resized(m):
    found = []
    for name in ("add", "sub", "mul", "div", "pow", "maximum", "atan2", "fmod", "where", "clamp", "clamp_min", "eq", "xlogy", "lerp"):
        a, b = m.ones(1, 3), m.full((2, 3), 2.0)
        arguments = {"where": (a > 0, b, a), "clamp": (b, a), "clamp_min": (b, a), "lerp": (a, b, 0.5)}.get(name, (a, b))
        found += [error_of(partial(getattr(m, name), *arguments, out=a)), a]
    return found
