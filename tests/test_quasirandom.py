"""Sobol' sequences: the points of PyTorch's, scrambled or not."""

import copy

import pytest
from side_by_side import programs, tj, torch

pytestmark = pytest.mark.operators
program, test_like_pytorch = programs()


def engines(m):
    """`torch.quasirandom` is asked for by its package's name: ours is loaded then."""
    return m.quasirandom.SobolEngine


@program
def points_and_state(m):
    found = []
    for engine in (engines(m)(3), engines(m)(3, scramble=True, seed=5), engines(m)(1, True, 2)):
        found += [engine.draw(4), engine.draw(dtype=m.float64), engine.draw(0), engine.draw(5, dtype=m.float64), engine.num_generated, repr(engine)]
        found += [engine.quasi.clone(), engine.shift, engine.sobolstate, engine.fast_forward(7).draw(2), copy.deepcopy(engine).draw(), engine.draw()]
        found += [engine.reset().draw(3, dtype=m.float64), engine.num_generated, engine.reset().fast_forward(4).draw(2), engine.num_generated]
    return found


@program
def the_global_generator_scrambles(m):
    m.manual_seed(3)
    engine = engines(m)(4, scramble=True)
    return engine.draw(3), m.rand(2)


@program
def many_dimensions_and_points(m):
    engine = engines(m)(50, scramble=True, seed=1)
    return engine.draw(1000)[-3:], engines(m)(2).draw_base2(10).mean(0), engines(m)(2, True, 1).draw(1, dtype=m.float64)


@program
def tensors_to_put_them_in(m):
    engine, out = engines(m)(2), m.empty(0, dtype=m.float64)
    return engine.draw(3, out=out) is out, out, engine.draw(1, out=out), out


@program
def whole_powers(m):
    engine = engines(m)(2)
    return engine.draw_base2(2), engine.draw_base2(2), engine.draw_base2(3), engine.num_generated


@pytest.mark.parametrize(
    "call",
    [
        "engine(0)", "engine(21202)", "engine(2).draw(0)", "engine(2).draw(-1)", "engine(2).draw(1.5)", "engine(2).draw(2, dtype=m.int32)",
        "engine(2).draw(2, dtype=m.float16)", "engine(2).fast_forward(3).draw_base2(2)",
    ],
)  # fmt: skip
def test_refusals_are_pytorchs(call):
    raised = []
    for m in (tj, torch):
        with pytest.raises(Exception) as error:  # noqa: B017 - which one is compared
            eval(call, {"m": m, "engine": engines(m)})
        raised.append((error.type, str(error.value)))
    assert raised[0] == raised[1]
