"""What the tests of anomaly mode have in common: it is off again after each, what a program says, and what a fault is told by."""

import warnings

import pytest

import torchgrad_jax as torch
from torchgrad_jax.runtime.recorder import per_thread

NAN = float("nan")
ENABLED = "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging."
NOT_NOTED = "No forward pass information available. Enable detect anomaly during forward pass for more information."
MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace operation"

SQRT = "Function 'SqrtBackward0' returned nan values in its 0th output."


@pytest.fixture(autouse=True)
def off_again():
    yield
    torch.autograd.set_detect_anomaly(False)
    assert per_thread.recorder.rare == 0


def own_lines(text, file):
    """A warning as its heading and the code of the lines of `file` in it: PyTorch shows its own frames too."""
    heading, *rest = text.partition(" (Triggered internally")[0].strip().splitlines()
    code = [rest[i + 1].strip() for i, line in enumerate(rest[:-1]) if line.startswith(f'  File "{file}"')]
    return [heading, *[c for c in code if c not in PLUMBING]]


PLUMBING = ("returned.append(program(m))", "said(m, program)", "return said(m, program)")


def said(m, program):
    """What a program returns or raises, and its warnings."""
    returned, raised = [], None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            returned.append(program(m))
        except Exception as error:
            raised = [type(error).__name__, str(error)]
        finally:
            m.autograd.set_detect_anomaly(False)
    file = program.__code__.co_filename
    told = [[w.category.__name__, own_lines(str(w.message), file)] for w in caught if not str(w.message).startswith("Using backward")]
    return [returned, raised, told]


def told(program):
    """What ours raises, and the code of the lines that its warnings name last: those that are at fault."""
    returned, raised, warned = said(torch, program)
    assert raised is not None, returned
    return raised[1], [lines[-1] for _, lines in warned if lines[0] != ENABLED]


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
