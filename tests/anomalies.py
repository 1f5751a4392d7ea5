"""What the tests of anomaly mode have in common: it is off again after each, and what a fault is told by."""

import warnings

import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime.recorder import per_thread

NAN = float("nan")
SQRT = "Function 'SqrtBackward0' returned nan values in its 0th output."


@pytest.fixture(autouse=True)
def off_again():
    yield
    torch.autograd.set_detect_anomaly(False)
    assert per_thread.recorder.rare == 0


def fault(call, **options):
    """What a call raises in anomaly mode, and the last lines of code that its warnings and its traceback show, in this file."""
    with warnings.catch_warnings(record=True) as caught, torch.autograd.set_detect_anomaly(True, **options):
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError) as raised:
            call()
    where = [frame for frame in raised.traceback if str(frame.path) == call.__code__.co_filename][-1]
    lines = [str(w.message).rstrip().splitlines()[-1].strip() for w in caught]
    return str(raised.value), lines, str(where.statement).strip()


def new_nan(operation, nr=0):
    return f"Operation '{operation}' returned nan values in its {nr}th output, and there were none in its inputs."
