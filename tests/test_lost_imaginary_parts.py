"""Who writes complex numbers to a real tensor is warned, once in a process: so each way is asked in a process that warns always."""

import warnings

import pytest

import torchgrad_jax as tj

WRITES = {
    "copy_": lambda x, z: x.copy_(z),
    "an element": lambda x, z: x.__setitem__(0, z[0]),
    "a slice": lambda x, z: x.__setitem__(slice(None), z),
    "a slice, broadcast": lambda x, z: x.__setitem__(slice(None), z[:1]),
    "fill_": lambda x, z: x.fill_(z[0]),
    "booleans": lambda x, z: x.bool().copy_(z),
    "complex numbers": lambda x, z: z.clone().copy_(z.to(tj.complex128) if isinstance(z, tj.Tensor) else z),
    "real numbers": lambda x, z: x.copy_(z.real),
}


def told(m, write):
    m.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            write(m.zeros(2), m.tensor([1 + 2j, 3j]))
    finally:
        m.set_warn_always(False)
    return [str(w.message).partition(" (Triggered")[0] for w in caught]


@pytest.mark.parametrize("name", WRITES)
def test_lost_imaginary_parts_are_told(name):
    torch = pytest.importorskip("torch")
    assert told(tj, WRITES[name]) == told(torch, WRITES[name])
