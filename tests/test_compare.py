"""`torchgrad_jax.testing.compare`: a function in every way there is, and the first operator that differs. `Noting`: what a program calls."""

from __future__ import annotations

import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.comparing.calls import Call, NotKept
from torchgrad_jax.comparing.figures import Figures, as_rounded, distance
from torchgrad_jax.comparing.finding import Aligned, Search, confirmed
from torchgrad_jax.comparing.investigating import investigate
from torchgrad_jax.comparing.noting import HOOK, INPUT, Limits, Noting
from torchgrad_jax.testing import compare

pytestmark = pytest.mark.operators

with_pytorch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def layer(torch, x, w):
    h = torch.tanh(x @ w)
    return torch.nn.functional.softplus(h).sum(), h.exp()


def of(*numbers, dtype="float32"):
    array = np.array(numbers, dtype=dtype)
    return Figures(dtype, array.shape, array)


class TestDistance:
    def test_is_told_in_units_of_the_last_place_and_of_the_largest_element(self):
        apart = distance(of(1.0, 4.0), of(1.0 + 2**-23, 4.0))
        assert (apart.absolute, apart.ulp, apart.relative) == (2**-23, 1.0, 2**-25)
        assert apart.is_rounding(1e-6) and not apart.is_rounding(1e-9)

    def test_names_what_else_differs(self):
        assert distance(of(1.0, dtype="float64"), of(1.0)).what == "dtype float64 instead of float32"
        assert distance(of(1.0), of(1.0, 2.0)).what == "shape (1,) instead of (2,)"
        assert distance(of(1, 2, dtype="int64"), of(1, 3, dtype="int64")).what == "1 of 2 elements differ"
        assert "being finite" in distance(of(np.nan, 1.0), of(1.0, 1.0)).what

    def test_nan_and_infinity_equal_themselves(self):
        assert str(distance(of(np.nan, np.inf), of(np.nan, np.inf))) == "equal"

    def test_what_cancels_is_excused_as_far_as_the_other_is_off_too(self):
        exactly = np.array([1e-4])
        assert as_rounded(exactly + 5e-8, exactly - 3e-8, exactly)
        assert not as_rounded(exactly + 5e-5, exactly - 3e-8, exactly)
        assert not as_rounded(exactly * 2, exactly * 3, exactly)  # too far off to be rounding at all


class TestWithoutPyTorch:
    def test_plain_jax_is_the_reference(self):
        found = compare(layer, shapes=[(3, 4), (4, 2)], samples=2, pytorch=False, jax=lambda x, w: _layer_of_jax(x, w))
        assert found.agrees and found.reference == "jax" and found.samples == 2
        assert {row.way for row in found.rows} == {"eager", "fused", "jit"}
        assert {row.what for row in found.rows if row.way == "fused"} == {
            "value of output 0", "value of output 1", "gradient of input 0", "gradient of input 1", "second derivative of input 0",
            "second derivative of input 1",
        }  # fmt: skip
        assert str(found).endswith("No difference beyond rounding.")

    def test_another_function_differs(self):
        found = compare(lambda x: x * x, np.float32([1, 2]), pytorch=False, jax=lambda x: x * x * 1.01)
        assert not found and {row.what for row in found.rows if not row.agrees} >= {"value of output 0", "gradient of input 0"}
        assert "DIFFERS" in str(found) and "told where PyTorch is installed" in str(found)

    def test_complex_gradients_follow_pytorchs_convention(self):
        x = np.array([1 + 2j, 3 - 1j], dtype=np.complex64)
        assert compare(lambda x: (x * x * x.conj(),), x, pytorch=False, jax=lambda x: x * x * jnp.conj(x)).agrees

    def test_ways_of_our_own_are_held_against_the_eager_one(self):
        found = compare(lambda x, y: x.exp() * y, tj.tensor([1.0, 2.0]), 3.0, pytorch=False)
        assert found.agrees and found.reference == "eager"

    @pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16", "complex128", "int64", "bool"])
    def test_inputs_are_made_in_every_dtype(self, dtype):
        found = compare(lambda x: x + x.sum(), shapes=[(3,)], dtype=dtype, pytorch=False, samples=1)
        assert found.agrees

    def test_a_derivative_that_there_is_none_of_is_left_out(self):
        def once(torch, x):
            class Double(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2

                @staticmethod
                @torch.autograd.function.once_differentiable
                def backward(ctx, grad):
                    return grad * 2

            return Double.apply(x)

        found = compare(once, shapes=[(2,)], samples=1, pytorch=False)
        assert {row.what for row in found.rows if row.way == "fused"} == {"value of output 0", "gradient of input 0"}

    def test_as_data(self):
        found = json.loads(json.dumps(compare(lambda x: x.sin(), shapes=[(2,)], samples=1, pytorch=False).data()))
        assert found["agrees"] and found["rows"][0]["way"] == "fused" and found["rows"][0]["relative"] < 1e-6


def _layer_of_jax(x, w):
    h = jnp.tanh(x @ w)
    return jax.nn.softplus(h).sum(), jnp.exp(h)


class TestBadCalls:
    def test_a_function_that_belongs_to_a_library(self):
        with pytest.raises(TypeError, match="uses tj, which belongs to torchgrad_jax.*first parameter"):
            compare(lambda x: tj.sin(x), shapes=[(2,)])

    def test_inputs_and_shapes(self):
        with pytest.raises(TypeError, match="either inputs or shapes"):
            compare(lambda x: x)
        with pytest.raises(TypeError, match="either inputs or shapes"):
            compare(lambda x: x, tj.ones(2), shapes=[(2,)])
        with pytest.raises(TypeError, match="got a str"):
            compare(lambda x: x, "x")
        with pytest.raises(ValueError, match="none of the dtypes"):
            compare(lambda x: x, shapes=[(2,)], dtype="float8")
        with pytest.raises(ValueError, match="2 shapes but 3 dtypes"):
            compare(lambda x, y: x, shapes=[(2,), (2,)], dtype=["float32"] * 3)
        with pytest.raises(ValueError, match="must be positive"):
            compare(lambda x: x, shapes=[(2,)], samples=0)

    def test_no_function(self):
        with pytest.raises(TypeError, match="takes a function"):
            compare(3, shapes=[(2,)])


@with_pytorch
class TestAgainstPyTorch:
    def test_every_way_agrees(self):
        found = compare(layer, shapes=[(3, 4), (4, 2)], jax=_layer_of_jax)
        assert found.agrees and found.reference == "pytorch" and found.samples == 4
        assert {row.way for row in found.rows} == {"jax", "eager", "fused", "jit"}

    def test_random_numbers_are_the_same(self):
        assert compare(lambda torch, x: torch.nn.functional.dropout(x, 0.5) + torch.randn(3), shapes=[(3,)], samples=1).agrees

    def test_a_hook_is_named(self):
        def program(torch, x):
            h = torch.sigmoid(x * 2)
            h.register_hook(lambda g: g * (2 if torch is tj else 1))
            return h.sum()

        difference = compare(program, shapes=[(3,)], samples=1).operator.difference
        assert difference.operator == "hook <lambda>" and "h.register_hook" in difference.text
        assert difference.note == "the hook was given the same gradient on both sides"

    def test_a_hook_that_only_one_side_has_is_named(self):
        def program(torch, x):
            h = torch.sigmoid(x * 2)
            if torch is tj:
                h.register_hook(lambda g: g * 2)
            return h.sum()

        found = compare(program, shapes=[(3,)], samples=1, second=False)
        assert "h.register_hook(lambda g: g * 2)" in found.operator.difference.text
        assert found.operator.parted is not None

    def test_a_silent_dtype_is_named(self):
        def program(torch, x):
            h = torch.sigmoid(x * 2)
            h = h.double() if torch is tj else h
            return (h + 1).sum()

        difference = compare(program, shapes=[(3,)], samples=1).operator.difference
        assert str(difference.distance) == "dtype float64 instead of float32" and "double at" in difference.note
        assert difference.text == "return (h + 1).sum()"

    def test_a_lost_gradient_is_named(self):
        def program(torch, x):
            h = torch.sigmoid(x)
            h = h.detach() if torch is tj else h
            return (h * 3).sum() + x.sum()

        found = compare(program, shapes=[(3,)], samples=1, second=False)
        difference = found.operator.difference
        assert difference.text == "return (h * 3).sum() + x.sum()" and "requires no gradient, and there it does" in str(difference)

    def test_a_function_with_another_gradient_is_told_by_a_line_in_it(self):
        def program(torch, x):
            class Twice(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2

                @staticmethod
                def backward(ctx, grad):
                    return grad * (3 if torch is tj else 2)

            return Twice.apply(x.exp()).sum()

        difference = compare(program, shapes=[(3,)], samples=1, second=False).operator.difference
        assert difference.text == "return x * 2" and "a Function" in difference.note

    def test_a_number_that_differs_is_named_where_it_comes_in(self):
        def program(torch, x):
            h = x.exp()
            y = h * (2.01 if torch is tj else 2.0)
            return y.sin().sum()

        found = compare(program, shapes=[(3,)], samples=1)
        assert not found.agrees and found.operator.difference.text.startswith("y = h * (2.01")


class TestCalls:
    def test_are_computed_again_from_a_file(self, tmp_path):
        x, w = tj.randn(3, 4, requires_grad=True), tj.randn(5, 4)
        call = Call.of(tj, "torch.nn.functional.linear", (x, w), {"bias": None}, "here.py:1")
        call.compute(tj)
        call.save(tmp_path / "call.npz")
        again = Call.load(tmp_path / "call.npz")
        assert again.told() == "torch.nn.functional.linear(float32[3, 4], float32[5, 4], bias=None)" and again.line == "here.py:1"
        assert confirmed((again.run(tj), again.results, again.exact)) is None
        assert set(again.results) == {"value", "gradient", "second derivative"} and again.exact["value"][0][0] == "float64"

    def test_keep_what_arguments_may_be(self, tmp_path):
        x = tj.arange(6.0).reshape(2, 3)
        for name, args, kwargs in (
            ("torch.Tensor.__getitem__", (x, (slice(None), Ellipsis, [0, 2])), {}),
            ("torch.Tensor.to", (x.requires_grad_(), tj.bfloat16), {}),
            ("torch.Tensor.add_", (x, 1 + 0j if x.is_complex() else 2), {}),
            ("torch.Tensor.__setitem__", (x, 0, 5.0), {}),
            ("torch.stack", ([x, x],), {"dim": 1}),
        ):
            call = Call.of(tj, name, args, kwargs)
            call.compute(tj)
            call.save(tmp_path / "call.npz")
            again = Call.load(tmp_path / "call.npz")
            assert confirmed((again.run(tj), call.results, {})) is None and "float32[2, 3]" in again.told()

    def test_a_wrong_result_is_told(self):
        call = Call.of(tj, "torch.sin", (tj.ones(2, requires_grad=True),), {})
        call.compute(tj)
        wrong = {**call.results, "gradient": [(name, array * 1.5) for name, array in call.results["gradient"]]}
        what, apart = confirmed((call.results, wrong, call.exact))
        assert what == "gradient of operand 0" and apart.relative > 0.3

    def test_refuse_what_they_cannot_keep(self, tmp_path):
        with pytest.raises(NotKept, match="is a Generator"):
            Call.of(tj, "torch.rand", (2,), {"generator": tj.Generator()})
        with pytest.raises(NotKept, match="not found"):
            Call.of(tj, "torch.nothing", (), {})
        (tmp_path / "other.npz").write_bytes(b"PK\x03\x04 damaged")
        with pytest.raises(ValueError, match="no file of a call"):
            Call.load(tmp_path / "other.npz")


def noted(program, **options):
    with Noting(tj, **options) as noting:
        program(tj)
    return noting.notes


class TestNotes:
    def test_have_the_calls_with_their_lines_and_operands(self):
        outside = tj.ones(2)

        def program(torch):
            a = outside + 1
            a.mul_(2).sum().item()

        notes = noted(program)
        assert [r.name for r in notes.records] == [INPUT, "add", "mul_", "sum", "item"]
        assert [r.inputs for r in notes.records[1:]] == [[(0, 0)], [(1, 0)], [(2, 0)], [(3, 0)]]
        assert notes.records[1].text == "a = outside + 1" and notes.records[1].where.startswith(__file__)
        assert notes.records[4].results[0].sample == 8.0

    def test_have_the_gradients(self):
        def program(torch):
            x = torch.ones(2, requires_grad=True)
            y = x * 3
            (y + x).sum().backward()

        notes = noted(program)
        names = [(notes.records[a.place[0]].name, a.figures.sample.tolist()) for a in notes.arrivals]
        assert sorted(names, key=str) == [("add", [1, 1]), ("mul", [1, 1]), ("ones", [4, 4]), ("sum", [1])]

    def test_gradients_of_a_leaf_are_noted_once_for_each_pass(self):
        def program(torch):
            w = torch.ones(2, requires_grad=True)
            for _ in range(3):
                (w * 2).sum().backward()
                with torch.no_grad():
                    w -= w.grad
                w.grad = None

        notes = noted(program)
        leaf = [a for a in notes.arrivals if a.figures.sample.tolist() == [2, 2] and notes.records[a.place[0]].name != "mul"]
        assert len(leaf) == 3

    def test_have_what_hooks_make(self):
        def program(torch):
            x = torch.ones(2, requires_grad=True)
            x.register_hook(lambda g: g * 5)
            x.sum().backward()

        (hook,) = [r for r in noted(program).records if r.name == HOOK]
        assert [f.sample.tolist() for f in hook.results] == [[1, 1], [5, 5]]

    def test_keep_no_more_than_they_may(self):
        notes = noted(lambda torch: torch.ones(1000) + 1, limits=Limits(kept=10))
        assert [r.results[0].sample.size for r in notes.records] == [10, 10] and notes.records[1].results[0].norm == pytest.approx(2 * 1000**0.5)
        notes = noted(lambda torch: [torch.ones(2) for _ in range(9)], limits=Limits(records=4))
        assert notes.cut and len(notes.records) == 4

    def test_survive_a_file(self, tmp_path):
        notes = noted(lambda torch: torch.ones(3, requires_grad=True).sum().backward())
        notes.save(tmp_path / "notes")
        again = type(notes).load(tmp_path / "notes")
        search = Search(Aligned(again, notes))
        assert not search.suspects() and search.compared == len(again.records) + len(again.arrivals)

    def test_calls_of_one_side_alone_are_passed_over(self, tmp_path):
        def program(torch, more):
            x = torch.ones(3, requires_grad=True)
            if more:
                x.detach().sum()
            x.exp().sum().backward()

        sides = [lambda probe, more=more: noted(lambda torch: program(torch, more), probe=probe) for more in (True, False)]
        found = investigate(*sides, tmp_path)
        assert found.difference is None and found.alone == (2, 0)
        assert "x.detach().sum()" not in str(found) and "test_compare.py" in found.parted[0] and found.parted[1] == ""

    def test_inside_of_transforms_values_are_not_read(self):
        notes = noted(lambda torch: torch.func.vmap(torch.func.grad(lambda x: x.sin().sum()))(torch.ones(3, 2)))
        assert [r.results[0].known for r in notes.records if r.name == "sin"] == [False]
