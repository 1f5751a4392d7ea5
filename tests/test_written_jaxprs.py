"""Jaxprs that are written down give the plans that their traces do, and where there are none all is as it was."""

import jax
import numpy as np
import pytest

import torchgrad_jax as torch
from compat_suite import jaxprs as writer
from torchgrad_jax.declaration.operator import all_bound, forget_signatures
from torchgrad_jax.runtime import jaxprs, modes
from torchgrad_jax.runtime.baseline import plan_of, quietly
from torchgrad_jax.runtime.jaxprs import reading
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES
from torchgrad_jax.runtime.value import Aval, aval_of

pytestmark = pytest.mark.operators
# Another version of JAX may trace the same functions otherwise.
by_the_same_version = pytest.mark.skipif(jaxprs.table()[jaxprs.VERSION] != jax.__version__, reason="the table is made by another version of JAX")


@pytest.fixture(autouse=True)
def _interpreted():
    with torch.runtime.baseline_tier(True):
        yield
    forget_signatures()


def _given(sig: Signature) -> list[np.ndarray]:
    """Numbers of all kinds for its operands."""
    random = np.random.default_rng(len(sig.specs))
    found = []
    for spec in sig.specs:
        shape, dtype = ((), NUMBER_DTYPES[spec]) if isinstance(spec, type) else (spec.shape, spec.dtype)
        numbers = random.normal(size=shape) * 2 if dtype.kind in "fcV" else random.integers(0, 2 if dtype.kind == "b" else 5, shape)
        array = np.asarray(numbers).astype(dtype)
        if dtype.kind in "fcV" and array.ndim and array.size > 4:
            array.reshape(-1)[:4] = np.array([0.0, -0.0, np.inf, np.nan]).astype(dtype)
        found.append(array)
    return found


def _differs(sig: Signature) -> bool:
    """Whether its plan does otherwise than the plan of its trace; False too of what is not written down."""
    known = jaxprs.find(sig.bop, sig.specs)
    if known is None:
        return False
    traced, single = sig.traced_anew()
    other, given = plan_of(traced), _given(sig)
    assert other is not None and known.single == single, sig.bop.name
    assert [(a.shape, a.dtype) for a in known.avals] == [(a.shape, np.dtype(a.dtype)) for a in traced.out_avals]
    assert all(getattr(known.plan, name) == getattr(other, name) for name in ("cost", "compiling", "everywhere", "any_sizes", "multiplies", "alike"))
    mine, others = [quietly(True, plan, *given) for plan in (known.plan, other)]
    return any(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in zip(mine, others, strict=True))


@by_the_same_version
def test_vectors():
    writer.called()
    found = [sig for sig in writer.signatures() if jaxprs.find(sig.bop, sig.specs) is not None]
    assert len(found) > 2000
    assert [repr(sig.bop) for sig in found if _differs(sig)] == []


@by_the_same_version
@pytest.mark.parametrize("sizes", [(6, 4, 9, 2), (4, 4, 3, 5), (12, 1, 8, 3)])
def test_other_sizes(sizes):
    """Sizes that were not among those by which the table was made."""
    writer.called_with(sizes)
    found = [sig for bop in all_bound() for sig in list(getattr(bop, "signatures", {}).values())]
    written = [sig for sig in found if writer.has_a_shape(sig) and jaxprs.find(sig.bop, sig.specs) is not None]
    assert len(written) > 200
    assert [repr(sig.bop) for sig in written if _differs(sig)] == []


@by_the_same_version
def test_the_table_is_what_traces_give(monkeypatch):
    """Where an operator was changed, ``python -m compat_suite.jaxprs`` writes the table again."""
    known = jaxprs.table()
    monkeypatch.setattr(modes, "table", False)
    found = writer.of_vectors()  # what other tests have called is found beside it
    vectors = {key: text for key, text in known.items() if "[" not in key and key != jaxprs.VERSION}
    assert {key: text for key, text in vectors.items() if found.get(key) != text} == {}


def test_a_new_operation_is_not_traced(monkeypatch):
    traces: list[str] = []
    trace = Signature._trace

    def counting(self: Signature) -> None:
        traces.append(self.bop.name)
        trace(self)

    monkeypatch.setattr(Signature, "_trace", counting)
    forget_signatures()
    x = torch.rand(3, 17, requires_grad=True)
    y = ((x * 2 + 1).tanh() / (x + 3)).sum(-1).logsumexp(0)
    y.backward()
    assert x.grad is not None and np.isfinite(x.grad.numpy()).all()
    assert traces == []
    torch.lcm(torch.arange(3), torch.arange(3))
    assert set(traces) == {"lcm"}


@pytest.mark.parametrize("text", [b"", b"a\t1\n"])
def test_without_a_table(monkeypatch, text):
    def numbers() -> list[bytes]:
        forget_signatures()
        x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
        y = torch.nn.functional.softplus(x * x[:1] - x.sum(1, keepdim=True)).norm(dim=1)
        y.sum().backward()
        return [y.detach().numpy().tobytes(), x.grad.numpy().tobytes()]

    with_it = numbers()
    monkeypatch.setattr(reading, "_opened", lambda: text)
    assert numbers() == with_it


def test_what_is_not_in_it():
    bop = _tanh()
    vector = aval_of((4096,), np.dtype(np.float32))
    assert jaxprs.find(bop, (vector,)) is not None
    assert jaxprs.find(bop, (aval_of((4096,), np.dtype(np.float16)),)) is None
    assert jaxprs.find(bop, (aval_of((1 << 15,), np.dtype(np.float32)),)) is None
    torch.set_default_dtype(torch.float64)
    try:
        assert jaxprs.find(_tanh(), (vector,)) is None
    finally:
        torch.set_default_dtype(torch.float32)


def _tanh():
    from torchgrad_jax.declaration.operator import ARRAY, registry

    return registry["tanh"].bind((ARRAY,))


def test_xla_compiles_what_is_traced():
    modes_before = modes.baseline
    with torch.runtime.baseline_tier(False):
        forget_signatures()
        sig = signature(_tanh(), (aval_of((5,), np.dtype(np.float32)),))
        assert isinstance(sig.avals[0], Aval) and sig.closed().jaxpr.eqns[0].primitive.name == "tanh"
        assert type(sig.closed()).__module__.startswith("jax")
    assert modes.baseline == modes_before


def test_every_line_is_found():
    lines = reading._TABLE.read_bytes().splitlines()
    assert lines == sorted(lines)
    for line in lines[::97]:
        key, _, text = line.partition(b"\t")
        assert reading._line(key) == text
    assert reading._line(b"") is None and reading._line(b"~") is None and reading._line(b"mul(") is None
