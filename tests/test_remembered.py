"""Calls of pure functions under a transform that are recorded as one operation, and those that may not be."""

from functools import partial

import pytest

import torchgrad_jax as torch
from torchgrad_jax.func import grad, hessian, jacrev, vmap
from torchgrad_jax.lifting import remembered
from torchgrad_jax.lifting.purity import reached

pytestmark = pytest.mark.operators  # of programs: in eager mode there are none


@pytest.fixture(autouse=True)
def forgotten():
    remembered._known.clear()
    yield
    remembered._known.clear()


def remembers():
    return [type(v) for v in remembered._known.values()].count(remembered.Remembered)


SCALE = 2.0
WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


def of_globals(x):
    return (x.sin() * WEIGHTS * SCALE).sum()


def expected(x):
    return x.cos() * WEIGHTS * SCALE


def test_a_pure_function_is_recorded_as_one_operation(monkeypatch):
    x = torch.tensor([0.1, 0.2, 0.3])
    for _ in range(4):
        assert torch.allclose(grad(of_globals)(x), expected(x))
    assert remembers() == 1
    x = x * 3  # other contents
    assert torch.allclose(grad(of_globals)(x), expected(x))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert torch.allclose(grad(of_globals)(x), expected(x))
    monkeypatch.setitem(globals(), "WEIGHTS", torch.tensor([3.0, 3.0, 3.0]))
    assert torch.allclose(grad(of_globals)(x), expected(x))
    WEIGHTS.mul_(2)
    for _ in range(3):
        assert torch.allclose(grad(of_globals)(x), expected(x))


def test_results_keep_their_order_in_memory_and_their_structure():
    x = torch.tensor([1.0, 2.0, 3.0])
    first = hessian(lambda x: (x**3).sum())(x)
    for _ in range(3):
        found = hessian(lambda x: (x**3).sum())(x)
        assert found.stride() == first.stride() and torch.equal(found, first)
    for _ in range(4):
        found = jacrev(lambda x: {"a": x.sum(), "b": (x, x * 2)})(x)
        assert found["a"].tolist() == [1, 1, 1] and found["b"][1].tolist() == (2 * torch.eye(3)).tolist()


def test_what_is_done_besides_is_done_every_time():
    log = []

    def appends(x):
        log.append(1)
        return x.sum()

    def prints(x):
        print("seen")
        return x.sum()

    x = torch.ones(2)
    for _ in range(4):
        grad(appends)(x)
    assert len(log) == 4
    assert reached((prints,)) is None


def test_numbers_are_drawn_every_time():
    x = torch.zeros(2)
    found = [vmap(lambda x: x + torch.rand(()), randomness="different")(x).tolist() for _ in range(5)]
    assert len(set(map(tuple, found))) == 5


def test_values_are_looked_at_every_time():
    for n in range(4):
        assert grad(lambda x: x * x.item())(torch.tensor(float(n))).item() == n


def test_indices_are_checked_every_time():
    places = torch.tensor([0, 1])
    for _ in range(4):
        assert grad(lambda x: x[places].sum())(torch.ones(3)).tolist() == [1, 1, 0]
    places = torch.tensor([0, 7])
    with pytest.raises(IndexError):
        grad(lambda x: x[places].sum())(torch.ones(3))


def test_graphs_of_arguments_and_captured_tensors_are_made_every_time():
    p = torch.tensor([1.0, 2.0], requires_grad=True)
    for n in range(4):
        x = torch.tensor([1.0, 3.0], requires_grad=True) * (n + 1)
        found = grad(lambda x: (x * x * p).sum())(x)
        assert torch.allclose(torch.autograd.grad(found.sum(), p)[0], 2 * x)
    assert remembers() == 1


def test_arguments_are_written_to_every_time():
    x = torch.ones(2)
    for _ in range(4):
        vmap(lambda x: x.mul_(2))(x)
    assert x.tolist() == [16, 16]


def test_an_object_of_the_users_is_asked_every_time():
    class Holder:
        factor = 1.0

    holder = Holder()
    for n in range(4):
        holder.factor = float(n)
        assert grad(lambda x: (x * holder.factor).sum())(torch.ones(1)).item() == n


def test_a_variable_that_two_functions_share_may_change():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return (x * count).sum()

    assert [grad(f)(torch.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]


def test_shared_contents_are_told_apart_from_equal_ones():
    a = torch.tensor([1.0, 2.0])
    b = a.clone()
    f = vmap(lambda x, y: x * 2 + y)
    for _ in range(3):
        assert f(a, a).tolist() == [3, 6]
    b.mul_(10)
    for _ in range(3):
        assert f(a, b).tolist() == [12, 24]


def test_what_shares_memory_with_an_argument_that_is_written_to_keeps_its_content():
    x = torch.ones(2)
    other = x.data
    for n in range(1, 5):
        vmap(lambda x: x.mul_(2))(x)
        assert other.tolist() == x.tolist() == [2.0**n, 2.0**n]


def test_containers_of_the_users_are_looked_at_every_time():
    from torchgrad_jax.utils import _pytree

    class Pair:
        def __init__(self, parts, note):
            self.parts, self.note = parts, note

    _pytree.register_pytree_node(Pair, lambda p: (p.parts, p.note), lambda parts, note: Pair(list(parts), note))
    pair = Pair([torch.ones(2), torch.ones(2)], {"factor": 1})
    for n in range(4):
        pair.note["factor"] = n
        assert grad(lambda p: (p.parts[0] * p.parts[1] * p.note["factor"]).sum())(pair).parts[0].tolist() == [n, n]


def test_a_function_that_changes_a_setting_is_not_pure():
    def strict(x):
        torch.use_deterministic_algorithms(True)
        return x.sum()

    assert reached((strict,)) is None


def test_views_as_arguments_and_jacobians_by_tangents_are_remembered():
    ran = []

    def square(x):
        return (x * x).sum()

    for i in range(5):
        x = torch.arange(6.0) + i
        assert torch.func.vmap(torch.func.grad(square))(x.view(2, 3)).tolist() == (2 * x).view(2, 3).tolist()
        assert torch.func.grad(square)(x.view(2, 3).t()).tolist() == (2 * x).view(2, 3).t().tolist()
        assert torch.func.grad(square)(x[2:4]).tolist() == (2 * x)[2:4].tolist()
        found = torch.autograd.functional.jacobian(lambda a: a * a, x, vectorize=True, strategy="forward-mode")
        assert found.tolist() == torch.diag(2 * x).tolist()
        torch.autograd.functional.jacobian(lambda a: ran.append(1) or a * a, x, vectorize=True, strategy="forward-mode")
    assert len(ran) == 5


def test_a_view_among_the_arguments_that_is_written_to_or_returned():
    for i in range(4):
        x = torch.arange(6.0) + i
        torch.func.vmap(lambda a: a.add_(1))(x.view(2, 3))
        assert x.tolist() == [1.0 + i + n for n in range(6)]
        y = x.view(2, 3)
        assert torch.func.vmap(lambda a: (a, a * 2))(y)[0] is y
        captured = x[1:3]
        product = partial(lambda c, a: (a * c).sum(), captured)
        assert torch.func.grad(product)(captured).tolist() == captured.tolist()
        x[1] = 7.0
        assert torch.func.grad(product)(captured).tolist() == [7.0, *x[2:3].tolist()]


SETTINGS = {
    "determinism": (lambda: torch.are_deterministic_algorithms_enabled(), torch.use_deterministic_algorithms, (False, True)),
    "by another name": (lambda: are_enabled(), torch.use_deterministic_algorithms, (False, True)),
    "the debug mode": (lambda: torch.get_deterministic_debug_mode(), torch.set_deterministic_debug_mode, (0, 1)),
    "warnings": (lambda: torch.is_warn_always_enabled(), torch.set_warn_always, (False, True)),
    "autocast's dtype": (
        lambda: torch.get_autocast_dtype("cpu") is torch.float16, lambda dtype: torch.set_autocast_dtype("cpu", dtype),
        (torch.bfloat16, torch.float16),
    ),
    "autocast's cache": (lambda: torch.is_autocast_cache_enabled(), torch.set_autocast_cache_enabled, (True, False)),
    "the device": (lambda: torch.get_default_device().type == "cpu", torch.set_default_device, ("cpu", "meta")),
    "a backend": (lambda: torch.backends.cudnn.benchmark, lambda on: setattr(torch.backends.cudnn, "benchmark", on), (False, True)),
    "a module's backend": (lambda: backends.cudnn.benchmark, lambda on: setattr(backends.cudnn, "benchmark", on), (False, True)),
}  # fmt: skip
are_enabled, backends = torch.are_deterministic_algorithms_enabled, torch.backends


@pytest.mark.parametrize("name", SETTINGS)
def test_a_function_that_asks_for_a_setting_is_done_anew(name):
    ask, choose, (first, second) = SETTINGS[name]
    f, x = vmap(lambda x: x * (float(ask()) + 1)), torch.ones(2)
    found = []
    for value in (first, second, first):
        choose(value)
        try:
            found.append({f(x)[0].item() for _ in range(4)})
        finally:
            choose(first)
    assert len(found[0]) == len(found[1]) == 1 and found[0] == found[2] != found[1]


def test_what_is_made_in_a_function_is_on_the_default_device_of_the_call():
    f = vmap(lambda x: (x, torch.zeros(2)), out_dims=(0, None))
    assert [f(torch.ones(2))[1].device.type for _ in range(4)] == ["cpu"] * 4
    x = torch.ones(2)
    with torch.device("meta"):
        assert f(x)[1].device.type == "meta"


def test_looking_at_what_a_function_reaches_asks_objects_for_nothing():
    class Counting:
        asked = 0

        def __getattr__(self, name):
            Counting.asked += 1
            return float(Counting.asked)

    counting = Counting()
    assert [grad(lambda x: x * counting.scale)(torch.tensor(2.0)).item() for _ in range(4)] == [1, 2, 3, 4]


def test_attributes_of_tensors_are_part_of_what_a_call_is_remembered_by():
    captured = torch.ones(2)
    f, found = vmap(lambda x: x * captured.scale), []
    for i in range(8):
        captured.scale = float(i // 4)
        found.append(f(torch.ones(1, 2))[0, 0].item())
    assert found == [0.0] * 4 + [1.0] * 4
