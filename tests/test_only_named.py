"""Dtypes, layouts and schemes that there are no tensors of: named in tables and comparisons as in PyTorch, refused where a tensor is wanted."""

import copy
import pickle

import pytest
from side_by_side import caught, tj, torch

from torchgrad_jax.declaration import only_named

pytestmark = pytest.mark.operators


@pytest.mark.parametrize("name", only_named.DTYPES)
def test_a_dtype_tells_of_itself_what_pytorchs_does(name):
    def told(m):
        d = getattr(m, name)
        kinds = [isinstance(d, m.dtype), d.is_floating_point, d.is_complex, d.itemsize, d == m.float32, d in {m.float32: 1, d: 2}]
        return [str(d), kinds, caught(lambda: d.is_signed), caught(d.to_real), caught(d.to_complex)]

    assert told(tj) == told(torch)


@pytest.mark.parametrize("name", [n for n, d in only_named.DTYPES.items() if d.is_complex or n.startswith("float8")])
def test_limits_are_told(name):
    ours, theirs = tj.finfo(getattr(tj, name)), torch.finfo(getattr(torch, name))
    # PyTorch has the eps of another type for this one.
    fields = [f for f in ("bits", "max", "min", "tiny", "smallest_normal", "resolution", "eps") if (name, f) != ("float8_e5m2fnuz", "eps")]
    assert [getattr(ours, f) for f in fields] == pytest.approx([getattr(theirs, f) for f in fields])


@pytest.mark.parametrize("name", [*only_named.LAYOUTS, *only_named.QSCHEMES, "legacy_contiguous_format"])
def test_layouts_and_schemes_are_told_from_each_other(name):
    def told(m):
        value = getattr(m, name)
        return [repr(value), type(value).__name__, m.ones(1).layout == value, value == getattr(m, name), hash(value) is not None]

    assert told(tj) == told(torch)


@pytest.mark.parametrize(
    "use",
    [
        lambda d: tj.ones(2, dtype=d), lambda d: tj.ones(2).to(d), lambda d: tj.ones(2).type(d), lambda d: tj.zeros(2).new_zeros(2, dtype=d),
        lambda d: tj.empty_like(tj.ones(2), dtype=d), lambda d: tj.promote_types(d, tj.float32), lambda d: tj.tensor([1.0], dtype=d),
        lambda d: tj.ones(2).sum(dtype=d),
    ],
)  # fmt: skip
def test_a_tensor_of_one_is_refused_in_words(use):
    with pytest.raises(RuntimeError, match="torchgrad_jax has no tensors of the dtype torch.float8_e4m3fn: use float32, float16 or bfloat16"):
        use(tj.float8_e4m3fn)
    with pytest.raises(RuntimeError, match="torchgrad_jax has no complex32"):
        use(tj.complex32)


def test_they_are_copied_and_pickled_as_themselves():
    for value in (tj.float8_e5m2, tj.qint8, tj.per_tensor_affine):
        assert copy.deepcopy(value) is value and pickle.loads(pickle.dumps(value)) is value
