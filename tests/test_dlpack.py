"""Arrays of other libraries through DLPack."""

import jax.numpy as jnp
import numpy as np
import pytest

import torchgrad_jax as tj
from tests.side_by_side import error_of

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.operators

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_go_to_pytorch_and_come_back(dtype):
    ours = tj.tensor([[0, 1], [2, 3]], dtype=getattr(tj, dtype))
    theirs = torch.from_dlpack(ours)
    assert str(theirs.dtype) == f"torch.{dtype}" and theirs.tolist() == ours.tolist()
    back = tj.from_dlpack(theirs)
    assert back.dtype is ours.dtype and back.tolist() == ours.tolist()


def test_what_was_given_away_may_be_written_to():
    ours = tj.zeros(3)
    torch.from_dlpack(ours).fill_(1)
    assert ours.tolist() == [0, 0, 0]
    array = np.zeros(3)
    taken = tj.from_dlpack(array)
    array[:] = 1
    assert taken.tolist() == [0, 0, 0]


def test_numpy_and_jax_take_and_give():
    assert np.from_dlpack(tj.arange(3)).tolist() == [0, 1, 2]
    assert tj.from_dlpack(jnp.arange(3.0, dtype="float32")).tolist() == [0, 1, 2]
    assert tj.from_dlpack(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_capsules_of_the_old_protocol():
    assert tj.utils.dlpack.from_dlpack(tj.utils.dlpack.to_dlpack(tj.ones(2))).tolist() == [1, 1]
    assert torch.utils.dlpack.from_dlpack(tj.to_dlpack(tj.ones(2))).tolist() == [1, 1]


@pytest.mark.parametrize("call", [
    "m.ones(2, requires_grad=True).__dlpack__()", "m.ones(2, dtype=m.complex64).conj().__dlpack__()", "m.from_dlpack([1])",
])  # fmt: skip
def test_errors(call):
    ours, theirs = (error_of(lambda m=m: eval(call, {"m": m})) for m in (tj, torch))
    assert ours == theirs


def test_the_device_is_told():
    assert tj.ones(2).__dlpack_device__() == torch.ones(2).__dlpack_device__() == (1, 0)
