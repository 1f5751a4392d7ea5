"""What is interpreted, what is compiled and when: by estimated cost, the same way in every run."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime import baseline_tier, counters, execution_mode, keeping, notices, tiers
from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.compiling import compiled, products
from torchgrad_jax.runtime.compiling.compiled import options_of
from torchgrad_jax.runtime.operation import NO_YNN
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.runtime.tiers import costs

pytestmark = pytest.mark.operators  # tries its own modes


@pytest.fixture(autouse=True)
def fused():
    with execution_mode("fused"), baseline_tier(True):
        yield


def delta(call):
    before = counters.snapshot()
    call()
    return {name: value - before[name] for name, value in counters.snapshot().items()}


def chain(x, length):
    for _ in range(length):
        x = x * 0.5 + 0.25
    return x.sum().item()


def test_what_is_new_is_interpreted():
    spent = delta(lambda: chain(tj.ones(3, 5), 7))
    assert spent["interpreted"] == 1 and spent["compiled"] == spent["compiled_ops"] == 0


def test_a_program_whose_interpretations_have_cost_what_compiling_costs_is_compiled(monkeypatch):
    x = tj.ones(4, 6)
    monkeypatch.setattr(costs, "COMPILE", 0.0)
    monkeypatch.setattr(costs, "COMPILE_PRIMITIVE", 300.0)
    monkeypatch.setattr(costs, "CALL", 0.0)
    spent = delta(lambda: [chain(x, 8) for _ in range(20)])
    assert spent["compiled"] == 1 and spent["ran"] >= 15 and spent["interpreted"] >= 1


def test_what_comes_back_is_not_compiled_before_its_turns_took_a_share_of_the_price(monkeypatch):
    monkeypatch.setattr(costs, "COMPILE_PRIMITIVE", 1e5)
    x = tj.ones(400, 400)

    def turn_of_compilation(patience, length):
        monkeypatch.setattr(tiers, "PATIENCE", patience)
        return next(turn for turn in range(2000) if delta(lambda: chain(x, length))["compiled"])

    assert turn_of_compilation(0.001, 18) < turn_of_compilation(3.0, 19) < turn_of_compilation(9.0, 20)


def test_what_is_interpreted_for_long_takes_the_short_way_and_is_compiled_at_the_same_turn(monkeypatch):
    """Of two programs of the same operations in another order, which are estimated to cost the same, the runs of one are foreseen."""
    monkeypatch.setattr(tiers, "PATIENCE", 0.1)
    for limit in ("step_limit", "signature_limit", "call_limit"):  # what is forgotten, as other tests have met so much, begins anew
        monkeypatch.setattr(keeping, limit, 1 << 60)
    x = tj.ones(400, 401)
    x.sum().item()

    def other_chain():
        y = x
        for _ in range(11):
            y = (y + 0.25) * 0.5
        return y.sum().item()

    def turns(call, runs):
        monkeypatch.setattr(tiers, "MANY_RUNS", runs)
        before = counters.settled
        return next(turn for turn in range(2000) if delta(call)["compiled"]), counters.settled - before

    last, foreseen = turns(lambda: chain(x, 11), 1 << 20)
    assert turns(other_chain, 0) == (last, 0)
    assert last > 30 and foreseen > last - 25  # all but the first ones, which make one list of it, and a few looks


def test_a_program_with_other_lengths_is_not_run_the_short_way_once_one_with_loops_is_worth_it(monkeypatch):
    """Its runs are foreseen while it is the only one; where XLA saves something of it, the program with loops takes over after two more lengths."""
    monkeypatch.setattr(costs, "KERNEL", -20_000.0)

    def steps(x, times):
        for _ in range(times):
            x = (x @ x * 0.1).tanh() + 0.3
        return x.sum().item()

    x = tj.linspace(0, 1, 2500).reshape(50, 50)
    first = [steps(x, 33) for _ in range(20)]
    spent = delta(lambda: [steps(x, times) for _ in range(60) for times in (33, 34, 35, 36)])
    assert spent["compiled"] == 1 and spent["ran"] > 100  # one program serves all lengths
    assert steps(x, 33) == pytest.approx(first[0], rel=1e-5)


def test_what_memory_bounds_is_not_compiled(monkeypatch):
    """A chain on arrays that are in no cache takes what reading and writing them takes, compiled or not; a longer one what its operations take."""
    if not blocks.by_numbers:
        pytest.skip("there are no chains where nothing is compiled of the core")
    monkeypatch.setattr(tiers, "PATIENCE", 0.01)
    x = tj.ones(1 << 20)

    def compiled_after(length):
        return delta(lambda: [chain(x, length) for _ in range(100)])["compiled"]

    assert (compiled_after(2), compiled_after(20)) == (0, 1)


def test_what_xla_is_slow_at_is_not_compiled(monkeypatch):
    monkeypatch.setattr(tiers, "PATIENCE", 0.01)
    x = tj.linspace(0, 1, 40_000).reshape(200, 200)
    spent = delta(lambda: [x.sort(-1).values[:, ::2].sum().item() for _ in range(100)])
    assert spent["compiled"] == 0 and spent["settled"] > 50


def test_large_products_of_matrices_are_not_xlas(monkeypatch):
    """They take as long in its programs: it calls the same."""
    if not blocks.by_numbers:
        pytest.skip("NumPy's products are not XLA's")
    monkeypatch.setattr(costs, "MOST", 1e5)
    x = tj.ones(300, 301)
    spent = delta(lambda: ((x @ x.T).sum() + 1).item())
    assert spent["interpreted"] == 1 and spent["compiled_ops"] == 0


def test_a_few_operations_on_small_arrays_are_never_compiled():
    x = tj.ones(4)
    spent = delta(lambda: [chain(x, 2) for _ in range(2000)])
    assert spent["compiled"] == 0 and spent["interpreted"] == 2000


@pytest.mark.skipif(not blocks.by_numbers, reason="there are no chains without the typed core")
def test_many_operations_that_are_few_chains_are_never_compiled():
    x = tj.ones(16, 16, requires_grad=True)

    def turn():
        y, x.grad = x, None
        for _ in range(20):
            y = y * 0.5 + 0.25
        y.sum().backward()
        return x.grad.sum().item()

    assert turn() == 256 * 0.5**20
    spent = delta(lambda: [turn() for _ in range(1500)])
    assert spent["compiled"] == 0 and spent["interpreted"] == 1500 and spent["settled"] > 1400
    assert turn() == 256 * 0.5**20


def test_an_operation_that_would_take_long_is_xlas_from_the_first_time_on(monkeypatch):
    monkeypatch.setattr(costs, "MOST", 1e4)
    x = tj.ones(300, 301)
    spent = delta(lambda: (x * 2).sum().item())
    assert spent["compiled_ops"] + spent["compiled"] > 0


def test_one_operation_without_a_rule_does_not_send_the_others_to_the_compiler():
    a = tj.tensor([[2.0, 1.0], [0.5, 3.0]])
    spent = delta(lambda: (tj.linalg.eigvals(a * 2 + 1).abs().sum() * 3 - 1).item())
    assert spent["interpreted"] == 1 and spent["compiled"] == 0 and spent["compiled_ops"] <= 1


def test_tiers_agree():
    def work():
        w = tj.tensor(np.linspace(-1, 1, 12).reshape(4, 3), requires_grad=True)
        x = tj.tensor(np.linspace(0, 2, 8).reshape(2, 4))
        loss = (tj.softmax((x @ w).tanh(), 1).log() ** 2).mean()
        loss.backward()
        return np.concatenate([[loss.item()], w.grad.numpy().ravel()])

    interpreted = work()
    with baseline_tier(False):
        compiled = work()
    with execution_mode("eager"):
        eager = work()
    np.testing.assert_allclose(interpreted, compiled, rtol=1e-12)
    np.testing.assert_allclose(interpreted, eager, rtol=1e-12)


def test_eager_and_the_switch_run_everything_by_xla():
    with execution_mode("eager"):
        assert delta(lambda: chain(tj.ones(2, 9), 3))["interpreted"] == 0
    with baseline_tier(False):
        assert delta(lambda: chain(tj.ones(2, 10), 3))["interpreted"] == 0


def test_the_switch_holds_for_programs_that_were_interpreted_before():
    x = tj.ones(2, 14)
    assert delta(lambda: chain(x, 3))["interpreted"] == 1
    with baseline_tier(False):
        assert delta(lambda: chain(x, 3))["interpreted"] == 0
        by_xla = chain(x, 3)
    assert chain(x, 3) == pytest.approx(by_xla, rel=1e-6)


@pytest.mark.parametrize("variable", ["TORCHGRAD_JAX_BASELINE", "TORCHGRAD_JAX_EXECUTION"])
def test_the_environment_chooses_xla(variable):
    code = """
        import torchgrad_jax as tj
        from torchgrad_jax.runtime import counters
        (tj.ones(3) * 2).sum().item()
        assert not counters.interpreted
    """
    value = {"TORCHGRAD_JAX_BASELINE": "off", "TORCHGRAD_JAX_EXECUTION": "eager"}[variable]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), variable: value}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=environment)


def test_results_of_the_interpreter_cannot_be_written_to_and_own_their_memory():
    x = tj.arange(6.0).reshape(2, 3)
    y = (x + 1)[0]
    array = y._concrete()
    assert isinstance(array, np.ndarray) and not array.flags.writeable and array.flags.c_contiguous
    shown = y.numpy()
    shown[0] = 100.0
    assert y.tolist() == [1.0, 2.0, 3.0]


def test_what_was_interpreted_goes_on_in_a_compiled_program_and_back(monkeypatch):
    x = tj.arange(40.0).reshape(8, 5) / 8
    first = x * 3
    first.tolist()
    with baseline_tier(False):
        second = first + 1
        assert second.sum().item() == pytest.approx(332.5)
    assert (second - first).tolist() == [[1.0] * 5] * 8


# ---------------------------------------------------------------------- how it is compiled


def unrolled(x, w, turns):
    for _ in range(turns):
        x = tj.tanh(x @ w)
    return x.sum().item()


def test_a_long_loop_in_a_program_is_compiled_as_a_loop_first(monkeypatch):
    """What takes long to compile begins as the program with a loop, and is unrolled when that has cost enough."""
    x, w = tj.ones(3, 17), tj.eye(17) * 1.5
    (x.sum() + w.sum()).item()  # making them is no part of the programs
    monkeypatch.setattr(tiers, "LOOP_COMPILE", -1e9)  # what it costs has been spent
    for turns, ran, new in ((100, 1, 1), (90, 1, 0), (100, 1, 0)):  # another length needs nothing new
        expected = 1.0
        for _ in range(turns):
            expected = math.tanh(1.5 * expected)
        spent = delta(lambda n=turns, so=expected: unrolled(x, w, n) == pytest.approx(51 * so, rel=1e-5) or pytest.fail(f"{n} turns"))
        assert (spent["ran"], spent["compiled"]) == (ran, new), turns
    monkeypatch.setattr(tiers, "ROLLING", 1e9)
    spent = delta(lambda: [unrolled(x, w, 100) for _ in range(3)])
    assert spent["compiled"] == 1 and spent["ran"] == 3


def test_where_compiling_a_loop_saves_nothing_no_length_of_it_is_compiled():
    x, w = tj.ones(3, 17), tj.eye(17) * 1.5
    (x.sum() + w.sum()).item()
    expected = {turns: unrolled(x, w, turns) for turns in range(20, 32)}
    spent = delta(lambda: [unrolled(x, w, turns) == expected[turns] or pytest.fail(f"{turns} turns") for _ in range(40) for turns in expected])
    assert (spent["ran"], spent["compiled"]) == (0, 0) and spent["settled"] > 0  # each is a list of its own in the end


def last_signature(call):
    """The signature of the operation that `call` records last."""
    result = call()
    step = recorder().epoch.step
    assert result.shape == step.aval.shape
    return step.signature


SMALLER, LARGER = (4, 5), (70, 90)  # YNNPACK's kernels begin at 4,096 elements
OF_NAN = {
    "amax": lambda x: x.amax(), "amin": lambda x: x.amin(0), "max": lambda x: x.max(1).values, "aminmax": lambda x: x.aminmax()[0],
    "sum of relu": lambda x: x.relu().sum(), "mean of clamp": lambda x: x.clamp(min=0).mean(), "sum of minimum": lambda x: tj.minimum(x, -x).sum(1),
    "norm": lambda x: tj.linalg.vector_norm(x, math.inf), "relu of product": lambda x: (x @ x.T).relu(), "chain": lambda x: (x.tanh() * 2 + 1).amax(),
    "std": lambda x: x.std(), "logsumexp": lambda x: x.logsumexp(1), "softmax": lambda x: x.softmax(0), "hinge": lambda x: (1 - x).relu().sum(),
    "half": lambda x: x.bfloat16().amax(), "double": lambda x: x.double().relu().sum(),
    "apart": lambda x: x[:, None].expand(-1, 3, -1).amax((0, 2)),
}  # fmt: skip


@pytest.mark.parametrize("shape", [SMALLER, LARGER])
@pytest.mark.parametrize("name", OF_NAN)
def test_what_is_compiled_takes_nan_for_no_number(name, shape):
    x = normal(shape)
    x[1, 2] = math.nan
    interpreted = OF_NAN[name](x).isnan().tolist()
    with baseline_tier(False):
        assert OF_NAN[name](x.clone()).isnan().tolist() == interpreted
    assert np.any(interpreted)


def normal(shape):
    return tj.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_reductions_of_what_is_compiled_are_foreign_functions_from_many_elements_on():
    x = normal((128, 256))
    for function in (lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.amax(1), lambda x: x.double().amin(), lambda x: x.view(4, 32, 256).mean(1)):
        expected = function(x)
        with baseline_tier(False):
            tj.testing.assert_close(function(x + 0), expected)


def options_for(function, *shapes):
    found = options_of(jax.make_jaxpr(function)(*[jnp.ones(shape, jnp.float32) for shape in shapes]).jaxpr)
    assert NO_YNN.items() <= found.items()
    return {name: value for name, value in found.items() if name not in NO_YNN}


EFFORT, EMITTERS, THREADS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters", "xla_cpu_multi_thread_eigen"


def test_small_matrix_products_ask_no_pool_of_threads():
    def both(a, b):
        return jax.lax.fori_loop(0, 3, lambda _, x: x @ a, b) + jax.vmap(jnp.dot)(a, b).sum()

    assert options_for(both, (4, 4), (4, 4)) == {EFFORT: 1, THREADS: False}
    assert options_for(both, (200, 200), (200, 200)) == options_for(jnp.tanh, (4,)) == {EFFORT: 1}


def test_small_programs_of_convolutions_are_compiled_without_emitters():
    def layers(number):
        def program(image, kernel):
            for _ in range(number):
                image = jnp.tanh(jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME"))
            return image

        return options_for(program, (1, 2, 8, 8), (2, 2, 3, 3))

    assert layers(1) == {EFFORT: 1, EMITTERS: False}
    assert layers(150) == {EFFORT: 1}


def test_programs_that_write_into_parts_are_compiled_without_emitters():
    def program(x):
        for i in range(3):
            x = jax.lax.dynamic_update_slice(x * 2, x[:2], (i,))
        return x

    assert options_for(program, (10,)) == {EFFORT: 1, EMITTERS: False}
    assert options_for(lambda x: program(jax.lax.fori_loop(0, 9, lambda _, y: y + 1, x)), (10,)) == {EFFORT: 1, EMITTERS: False}

    def seldom(x):
        for _ in range(100):
            x = jnp.tanh(x) * 2
        return jax.lax.dynamic_update_slice(x, x[:2], (1,))

    assert options_for(seldom, (10,)) == {EFFORT: 1}


def test_where_much_is_added_by_index_all_of_the_effort_is_made():
    def program(x):
        return x.at[jnp.zeros(len(x), jnp.int32)].add(x)

    assert options_for(program, (10,)) == {EFFORT: 1}
    assert options_for(program, (20_000,)) == {}


@pytest.mark.parametrize("option", ["xla_cpu_multi_thread_eigen", "xla_that_is_no_more"])
@pytest.mark.parametrize("width", [3, 20, 45, 70])
def test_products_of_all_sizes_are_right(width, option, monkeypatch):
    monkeypatch.setattr(compiled, "_FOR_SMALL_PRODUCTS", {option: False})
    monkeypatch.setattr(compiled, "_missing", set())
    monkeypatch.setattr(products, "knows_products", lambda: False)  # they are to be XLA's
    for price in ("COMPILE", "COMPILE_PRIMITIVE", "CALL", "OUTPUT"):
        monkeypatch.setattr(costs, price, 0.0)
    generator = np.random.default_rng(width)
    x, w = (generator.standard_normal((width, width), np.float32) for _ in range(2))
    a, b = tj.tensor(x, requires_grad=True), tj.tensor(w)
    (a @ b.t() @ b).sum().backward()
    assert delta(lambda: a.grad.sum().item())["ran"] == 1
    np.testing.assert_allclose(a.grad.numpy(), np.ones_like(x) @ w.T @ w, rtol=1e-4, atol=1e-3)
    assert compiled._missing == ({option} - {THREADS} if width**3 < compiled._SMALL_PRODUCT else set())


# ---------------------------------------------------------------------- the same bits


def test_inside_gradcheck_nothing_that_can_be_interpreted_runs_compiled(monkeypatch):
    monkeypatch.setattr(costs, "COMPILE", 0.0)
    monkeypatch.setattr(costs, "COMPILE_PRIMITIVE", 0.0)
    monkeypatch.setattr(costs, "CALL", 0.0)
    x = tj.linspace(0.1, 0.9, 5, dtype=tj.float64, requires_grad=True)
    spent = delta(lambda: tj.autograd.gradcheck(lambda t: (t.exp() * t).cumsum(0), (x,)))
    assert spent["ran"] == 0 and spent["interpreted"] > 10


def test_deterministic_algorithms_keep_a_program_in_its_tier(monkeypatch):
    monkeypatch.setattr(costs, "COMPILE", 1e5)
    monkeypatch.setattr(costs, "COMPILE_PRIMITIVE", 0.0)
    monkeypatch.setattr(costs, "CALL", 0.0)
    x = tj.ones(3, 11)
    tj.use_deterministic_algorithms(True)
    try:
        assert tj.are_deterministic_algorithms_enabled()
        spent = delta(lambda: [chain(x, 9) for _ in range(30)])
    finally:
        tj.use_deterministic_algorithms(False)
    assert spent["compiled"] == 0
    assert delta(lambda: [chain(x, 9) for _ in range(30)])["compiled"] == 1


LOOP = """
import torchgrad_jax as torch
torch.manual_seed(0)
w = [torch.randn(24, 24).mul_(0.2).requires_grad_() for _ in range(6)]
x = torch.randn(16, 24)
for step in range(140):
    h = x
    for v in w[: 2 + step % 5]:
        h = torch.tanh(h @ v) + 0.1 * torch.exp(-h * h)
    loss = (h ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for v in w[: 2 + step % 5]:
            v -= 0.5 * v.grad
            v.grad = None
    if step % 7 == 0:
        print(loss.item().hex())
"""


@pytest.mark.slow
def test_a_script_gives_the_same_bits_in_every_process():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run():
        return subprocess.run([sys.executable, "-c", LOOP], check=True, env=environment, capture_output=True, text=True).stdout

    first = run()
    assert first.count("\n") == 20
    # One under load: nothing may depend on how long something takes.
    others = [subprocess.Popen([sys.executable, "-c", LOOP], env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [p.communicate()[0] for p in others] == [first] * 3


def test_deterministic_debug_modes():
    try:
        for name, number in (("warn", 1), ("error", 2), ("default", 0)):
            tj.set_deterministic_debug_mode(name)
            assert tj.get_deterministic_debug_mode() == number
            assert tj.are_deterministic_algorithms_enabled() == (number > 0)
            assert tj.is_deterministic_algorithms_warn_only_enabled() == (number == 1)
        with pytest.raises(RuntimeError, match="expected one of `default`"):
            tj.set_deterministic_debug_mode("loud")
        with pytest.raises(RuntimeError, match="expected 0, 1, or 2"):
            tj.set_deterministic_debug_mode(3)
        with pytest.raises(TypeError, match="must be str or int"):
            tj.set_deterministic_debug_mode(None)
        with pytest.raises(TypeError, match="'mode'.*must be bool, not int"):
            tj.use_deterministic_algorithms(1)
    finally:
        tj.use_deterministic_algorithms(False)


# ---------------------------------------------------------------------- what a terminal is told


@pytest.fixture
def terminal(monkeypatch, capsys):
    monkeypatch.setattr(notices, "_is_terminal", lambda: True)
    monkeypatch.setattr(notices, "LONG", 0.0)
    return lambda: capsys.readouterr().err


def test_a_long_compilation_is_told(terminal, monkeypatch):
    def compile_something():
        with baseline_tier(False):
            for _ in range(2):
                chain(tj.ones(2, 13 + len(seen)), 20)
        seen.append(terminal())

    seen = []
    compile_something()
    assert "torchgrad_jax: compiling 42 operations ...\n" in seen[0]
    monkeypatch.setenv("TORCHGRAD_JAX_NOTICES", "off")
    compile_something()
    assert not seen[1]


def test_a_loop_whose_structure_changes_is_told_once(terminal, monkeypatch):
    monkeypatch.setattr(recorder(), "changing", notices.Changing())
    for length in range(20, 20 + 3 * notices.IN_A_ROW):
        chain(tj.ones(3), length)
    told = terminal()
    assert told.count("turns of a loop were each a new program") == 1
    assert "is now" in told or "operations" in told


def test_what_differs_between_two_programs():
    def calls(f):
        f().tolist()
        return list(recorder().recent[0].programs.values())[0].calls

    a, b = tj.tensor([1.0] * 2), tj.tensor([1.0] * 3)
    first = calls(lambda: (a * 2).exp())
    assert notices.changed(first, calls(lambda: (a * 2).sin())) == "operation 1 was exp and is now sin"
    assert notices.changed(first, calls(lambda: (b * 2).exp())) == ("the operand self of mul (operation 0) was float32[2] and is now float32[3]")
    assert "it was 2 recorded operations and is now 3" in notices.changed(first, calls(lambda: (a * 2).exp().neg()))


@pytest.mark.skipif(not blocks.by_numbers, reason="C's functions of real numbers are in compiled modules")
@pytest.mark.parametrize(
    "call", [lambda x: x.tan(), lambda x: tj.atan2(x, x + 1), lambda x: (x.exp() * x).sum(), lambda x: x.sort().values, lambda x: x.roll(3)]
)
def test_what_xla_would_take_longer_for_is_never_compiled(interpreted, call):
    x = tj.from_numpy(np.random.default_rng(0).random(50_000)).requires_grad_()
    compiled = counters.compiled
    for _ in range(300):
        call(x.detach()).tolist()
    call(x).sum().backward()
    assert counters.compiled == compiled


def test_what_numpy_takes_long_for_is_compiled_in_the_end(interpreted):
    z = tj.ones(300, 300, dtype=tj.complex64)
    for _ in range(300):
        with tj.explain() as report:
            w = z
            for _ in range(8):
                w = w * w * 0.5 + 0.25
            w.abs().sum().item()
        if [p.tier for p in report.programs] == ["compiled"]:
            return
    pytest.fail("it is interpreted for ever")
