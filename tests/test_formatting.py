"""The text form of tensors against PyTorch's own ``repr``, and against strings recorded from it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from random import Random
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import torchgrad_jax
from torchgrad_jax.functions.formatting import (
    get_printoptions,
    needs_dtype_suffix,
    printoptions,
    set_printoptions,
    tensor_str,
)

pytestmark = [pytest.mark.operators, pytest.mark.filterwarnings("error")]

FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAN, INF = math.nan, math.inf
SPECIAL = [0.0, -0.0, NAN, INF, -INF, 1.0, -1.0, 0.5, 1e-4, 1e-5, 1e-40, 1e3, 1001.0, 1e8, 1e9, 99999999.0, 3e38]


@pytest.fixture(autouse=True)
def _restore_options() -> Iterator[None]:
    with printoptions(profile="default"):
        yield


@pytest.fixture
def torch() -> Iterator[ModuleType]:
    module = pytest.importorskip("torch")
    module.set_printoptions(profile="default")
    yield module
    module.set_printoptions(profile="default")


def as_array(torch: ModuleType, tensor: Any) -> np.ndarray:
    name = str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach()
    if hasattr(np, name):
        return tensor.numpy()
    return tensor.to(torch.float32).numpy().astype(getattr(ml_dtypes, name))


def assert_same(torch: ModuleType, tensor: Any, **options: Any) -> None:
    for setter in (torch.set_printoptions, set_printoptions):
        setter(profile="default")
        setter(**options)
    node = tensor.grad_fn
    ours = tensor_str(
        as_array(torch, tensor),
        requires_grad=tensor.requires_grad,
        grad_fn_name=None if node is None else type(node).__name__,
    )
    assert ours == repr(tensor), (tensor.dtype, tuple(tensor.shape), options)


def random_values(rng: Random, count: int) -> np.ndarray:
    gen = np.random.default_rng(rng.randrange(2**32))
    values = gen.standard_normal(count)
    kind = rng.randrange(7)
    if kind == 1:
        values *= 10.0 ** rng.randint(-12, 12)
    elif kind == 2:
        values = np.round(values * 10 ** rng.randint(0, 9))
    elif kind == 3:
        values *= 10.0 ** gen.integers(-3, 4, count)
    elif kind == 4:
        values = gen.choice(SPECIAL, count)
    elif kind == 5:
        values = np.abs(values) + 0.5
    elif kind == 6:
        values *= 0.0
    if rng.random() < 0.3:
        values = np.where(gen.random(count) < 0.2, gen.choice(SPECIAL, count), values)
    return values


def random_shape(rng: Random) -> tuple[int, ...]:
    ndim = rng.choice([0, 1, 1, 1, 2, 2, 3, 4, 5])
    sizes = [0, 1, 2, 5, 6, 7, 20, 50, 1000, 1001] if ndim == 1 else [1, 2, 3, 4, 5, 6, 7, 8, 30]
    shape = tuple(rng.choice(sizes) if rng.random() < 0.98 else 0 for _ in range(ndim))
    return shape if math.prod(shape) <= 1500 else shape[-2:]


def random_options(rng: Random) -> dict[str, Any]:
    choices: dict[str, list[Any]] = {
        "precision": list(range(11)),
        "threshold": [0, 1, 10, 50, 100],
        "edgeitems": list(range(6)),
        "linewidth": list(range(1, 140)),
        "sci_mode": [True, False],
        "profile": ["short", "default", "full", "Short"],
    }
    if rng.random() < 0.4:
        return {}
    return {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.3}


def random_tensor(torch: ModuleType, rng: Random, name: str) -> Any:
    shape = random_shape(rng)
    count = math.prod(shape)
    dtype = getattr(torch, name)
    if name in INTEGERS:
        gen = np.random.default_rng(rng.randrange(2**32))
        bits = gen.integers(-(2**63), 2**63, count, dtype=np.int64, endpoint=False)
        return torch.from_numpy(bits >> rng.randint(0, 63)).to(dtype).reshape(shape)
    values = torch.from_numpy(np.asarray(random_values(rng, count)))
    if name in COMPLEX:
        values = torch.complex(values, torch.from_numpy(np.asarray(random_values(rng, count))))
    if name == "bool":
        values = values > 0
    tensor = values.to(dtype).reshape(shape)
    if name != "bool" and rng.random() < 0.2:
        tensor.requires_grad_()
        if rng.random() < 0.5 and "float8" not in name:
            tensor = tensor * 1
    return tensor


@pytest.mark.parametrize("name", FLOATS + COMPLEX + INTEGERS + ["bool"])
def test_random_tensors_print_as_in_torch(torch: ModuleType, name: str) -> None:
    rng = Random(name)
    for _ in range(150 if name in FLOATS + COMPLEX else 60):
        assert_same(torch, random_tensor(torch, rng, name), **random_options(rng))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scientific_notation_switches_at_the_same_values(torch: ModuleType, dtype: type) -> None:
    rng = Random(0)
    for _ in range(40):
        small = dtype(rng.uniform(0.05, 5))
        large = dtype(float(small) * 1000)
        for value in (large, np.nextafter(large, dtype(INF)), np.nextafter(large, dtype(0))):
            assert_same(torch, torch.from_numpy(np.array([small, value])))
    for bound in (1e-4, 1.0, 1000.0, 1e8):
        limit = dtype(min(bound, 6e4))
        for value in (limit, np.nextafter(limit, dtype(INF)), np.nextafter(limit, dtype(0))):
            for other in ([], [1], [0.5], [0], [NAN]):
                assert_same(torch, torch.from_numpy(np.array([value, *other], dtype=dtype)))
                assert_same(torch, torch.from_numpy(np.array([*other, -value], dtype=dtype)))


@pytest.mark.parametrize("linewidth", range(4, 100, 3))
def test_lines_wrap_at_the_same_column(torch: ModuleType, linewidth: int) -> None:
    for name in ("float32", "float64", "int32", "complex64"):
        for shape in ((), (12,), (2, 5), (0,), (0, 3)):
            tensor = torch.full(shape, 2.5).to(getattr(torch, name))
            assert_same(torch, tensor, linewidth=linewidth)
            if name != "int32":
                assert_same(torch, tensor.requires_grad_(), linewidth=linewidth)
                assert_same(torch, tensor * 2, linewidth=linewidth)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (8, 8), (2, 0, 3)])
def test_edgeitems_zero(torch: ModuleType, shape: tuple[int, ...]) -> None:
    for threshold in (0, 10, 1000):
        assert_same(torch, torch.ones(shape, dtype=torch.float64), edgeitems=0, threshold=threshold)


def test_prefix_sets_the_indentation(torch: ModuleType) -> None:
    class Tagged(torch.Tensor):
        pass

    for shape in ((3,), (40,), (2, 30), (2, 3, 2), (0, 4)):
        tensor = torch.full(shape, 0.25)
        assert tensor_str(tensor.numpy(), prefix="Tagged(") == repr(tensor.as_subclass(Tagged))
        opening = "Parameter containing:\ntensor("
        assert tensor_str(tensor.numpy(), prefix=opening, requires_grad=True) == repr(torch.nn.Parameter(tensor))


@pytest.mark.parametrize("default", ["float16", "bfloat16", "float32", "float64"])
def test_dtype_suffix_follows_the_default_dtype(torch: ModuleType, default: str) -> None:
    saved = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        for name in FLOATS + COMPLEX + INTEGERS + ["bool"]:
            for count in (0, 1):
                tensor = torch.zeros(count, dtype=getattr(torch, name))
                printed = repr(tensor)
                assert needs_dtype_suffix(f"torch.{name}", f"torch.{default}", count) == ("dtype" in printed)
                assert tensor_str(as_array(torch, tensor), default_dtype=default) == printed
    finally:
        torch.set_default_dtype(saved)


def test_options_change_as_in_torch(torch: ModuleType) -> None:
    reference = pytest.importorskip("torch._tensor_str")
    rng = Random(1)
    for _ in range(300):
        options = random_options(rng)
        torch.set_printoptions(**options)
        set_printoptions(**options)
        assert get_printoptions() == reference.get_printoptions()


RECORDED: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    (np.float32(-0.0), {}, {}, "tensor(-0.)"),
    (np.array([], np.int64), {}, {}, "tensor([], dtype=torch.int64)"),
    (np.zeros((0, 3), np.float32), {"requires_grad": True}, {}, "tensor([], size=(0, 3), requires_grad=True)"),
    (np.array([1, -10, 100]), {}, {}, "tensor([  1, -10, 100])"),
    (np.array([True, False]), {}, {}, "tensor([ True, False])"),
    (np.array([1.5, -INF], np.float32), {}, {}, "tensor([1.5000,   -inf])"),
    (np.array([1e-5, 1], np.float32), {}, {}, "tensor([1.0000e-05, 1.0000e+00])"),
    (np.array([1e300, -1e-300]), {}, {}, "tensor([ 1.0000e+300, -1.0000e-300], dtype=torch.float64)"),
    (np.array([1e12, 1.0], np.float32), {}, {"sci_mode": False}, "tensor([999999995904.,            1.])"),
    (np.array([NAN, 0], np.float32), {}, {"sci_mode": True}, "tensor([nan, 0.])"),
    (np.array([1 + 2j, -3.5 - 4j], np.complex64), {}, {}, "tensor([ 1.0000+2.j, -3.5000-4.j])"),
    (np.array([1.5, 2], ml_dtypes.bfloat16), {}, {}, "tensor([1.5000, 2.0000], dtype=torch.bfloat16)"),
    (np.arange(1001), {}, {}, "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
    (
        np.zeros(12),
        {"grad_fn_name": "MulBackward0", "requires_grad": True},
        {},
        "tensor([0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.], dtype=torch.float64,\n       grad_fn=<MulBackward0>)",
    ),
    (
        np.arange(100, dtype=np.float32).reshape(10, 10),
        {},
        {"edgeitems": 1, "threshold": 1},
        "tensor([[ 0.,  ...,  9.],\n        ...,\n        [90.,  ..., 99.]])",
    ),
    (
        np.arange(8).reshape(2, 2, 2),
        {},
        {},
        "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])",
    ),
]


@pytest.mark.parametrize(("array", "arguments", "options", "expected"), RECORDED)
def test_recorded_text(array: Any, arguments: dict[str, Any], options: dict[str, Any], expected: str) -> None:
    set_printoptions(**options)
    assert tensor_str(np.asarray(array), **arguments) == expected


def test_given_suffixes_are_used_as_they_are() -> None:
    array = np.zeros(2)
    assert tensor_str(array, dtype_suffix=None) == "tensor([0., 0.])"
    assert (
        tensor_str(array, dtype_suffix="dtype=torch.complex32", device_suffix="device='cuda:0'")
        == "tensor([0., 0.], device='cuda:0', dtype=torch.complex32)"
    )


def test_printoptions_are_restored_after_an_error() -> None:
    before = get_printoptions()
    with pytest.raises(KeyError), printoptions(precision=9, sci_mode=True):
        assert get_printoptions()["precision"] == 9
        raise KeyError
    assert get_printoptions() == before


def test_summary_of_a_huge_array_touches_only_what_is_shown() -> None:
    huge = np.broadcast_to(np.float32(1), (4, 10**6, 10**6))
    start = time.perf_counter()
    text = tensor_str(huge)
    assert time.perf_counter() - start < 1.0
    assert text.count("1.") == 4 * 6 * 6


def test_a_view_that_autograd_has_lost_is_printed_as_invalid() -> None:
    a = torchgrad_jax.ones(1, requires_grad=True)
    with torchgrad_jax.no_grad():
        b = a[:]
        b *= 2
    assert repr(b) == str(b) == "tensor([2.], grad_fn=<Invalid>)"
    assert repr(a) == "tensor([2.], requires_grad=True)"


@pytest.mark.parametrize("value, text", [(3.0, "tensor(3., tangent=6.0)"), (1 + 2j, "tensor(1.+2.j, tangent=(2+4j))"),
                                         ([3.0], "tensor([3.], tangent=tensor([6.]))")])  # fmt: skip
def test_a_tangent_is_shown_as_it_is_formatted(value: Any, text: str) -> None:
    t = torchgrad_jax.tensor(value)
    with torchgrad_jax.autograd.forward_ad.dual_level():
        assert repr(torchgrad_jax.autograd.forward_ad.make_dual(t, t * 2)) == text


def test_a_parameter_without_dimensions_is_not_formatted_as_a_number(torch: ModuleType) -> None:
    found = []
    for m in (torchgrad_jax, torch):
        p = m.nn.Parameter(m.tensor(2.0))
        with pytest.raises(TypeError, match=r"unsupported format string passed to Parameter\.__format__"):
            f"{p:.1f}"
        found.append((f"{p}", f"{p.detach():.1f}", f"{p.data}"))
    assert found[0] == found[1]
