"""Programs that take the library as an argument, run with PyTorch and with ours and compared."""

from __future__ import annotations

import contextlib
import math
import warnings

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")


@contextlib.contextmanager
def skipped_where_pytorch_cannot():
    """Skips a test in which PyTorch's kernels have no such layer for this processor: an LSTM in bfloat16 wants newer instructions."""
    try:
        yield
    except RuntimeError as error:
        if "could not create a primitive" in str(error):
            pytest.skip(str(error))
        raise


def plain(x):
    if isinstance(x, (torch.Tensor, tj.Tensor)) and "sparse" in str(x.layout):
        return [str(x.layout), list(x.shape), x.requires_grad, plain(parts_of_sparse(x.detach()))]
    if isinstance(x, (torch.Tensor, tj.Tensor)):
        return [str(x.dtype), list(x.shape), x.requires_grad, x.detach().tolist()]
    return [plain(v) for v in x] if isinstance(x, (tuple, list)) else x


def parts_of_sparse(x):
    if x.is_sparse:
        return [x.is_coalesced(), x._indices(), x._values()]
    return [x.crow_indices(), x.col_indices(), x.values()] if x.is_sparse_csr else [x.ccol_indices(), x.row_indices(), x.values()]


def agree(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, complex) and isinstance(b, complex):
        return agree([a.real, a.imag], [b.real, b.imag])
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-7) or (a != a and b != b)
    return a == b


def difference(a, b, where=""):
    """Where two nested lists first differ, and how."""
    if not (isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b)):
        return f"at {where}: {a}, PyTorch: {b}"
    return next((difference(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)) if not agree(x, y)), None)


def error_of(call):
    """The class and text of what `call` raises; None if it returns."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def like_pytorch(program):
    """A test that the program, given the library, returns the same (or raises and warns the same) with ours as with PyTorch."""

    def outcome(m):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = []
            raised = error_of(lambda: found.append(plain(program(m))))
        # create_graph warns once in a process, so which test sees it depends on their order.
        # JAX warns of PyTorch's workers, which are forked where it runs; that it does not warn of ours is seen in tests without PyTorch.
        told_once = (
            "create_graph=True", "torch.jit.script", "get_attr Node", "There is a performance drop", "TypedStorage is deprecated",
            "os.fork() was called", "Converting a tensor with requires_grad=True to a scalar", "Casting complex values to real",
            "gradient layout contract",
            "Sparse invariant checks", "Sparse CSR tensor support", "Sparse CSC tensor support", "torch.sparse.SparseTensor(",
            "is deprecated on 0-D tensors", "Using padding='same' with even kernel lengths", "The use of `x.T`", "This overload of",
        )  # fmt: skip
        # Where in PyTorch's sources a warning comes from is not ours to say.
        kept = [w for w in caught if not any(part in str(w.message) for part in told_once)]
        texts = [[w.category.__name__, str(w.message).partition(" (Triggered internally")[0]] for w in kept]
        return [found, raised, texts]

    def test():
        ours, theirs = outcome(tj), outcome(torch)
        assert agree(ours, theirs), f"\nfirst difference: {difference(ours, theirs)}\nours:   {ours}\ntheirs: {theirs}"

    test.__name__, test.__doc__ = program.__name__, program.__doc__
    return test


def leaf(m, *values, dtype="float64"):
    return m.tensor(list(values), dtype=getattr(m, dtype), requires_grad=True)


def programs():
    """A decorator for programs, and the test of all that it has decorated."""
    found = []

    def program(function):
        found.append(function)
        return function

    @pytest.mark.parametrize("of", found, ids=lambda f: f.__name__)
    def test_like_pytorch(of):
        like_pytorch(of)()

    return program, test_like_pytorch


def vector(m, *values):
    return m.tensor(list(values or (1.0, 2.0, 3.0)), dtype=m.float64)


def shown(tree):
    """A tree as lists, with the types of its containers."""
    if isinstance(tree, dict):
        return [type(tree).__name__, list(tree), [shown(v) for v in tree.values()]]
    if isinstance(tree, (list, tuple)):
        return [type(tree).__name__, [shown(v) for v in tree]]
    return tree


def caught(call):
    """What a call gives as text, or the class and the text of what it raises, by the names of PyTorch."""
    try:
        return repr(call())
    except Exception as error:
        return [type(error).__name__, str(error).replace("torchgrad_jax", "torch")]


def net(m):
    """A small network with modules in modules and weights of its own in both libraries."""
    made = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.Tanh(), m.nn.Sequential(m.nn.Linear(3, 1, bias=False)))
    for i, p in enumerate(made.parameters()):
        with m.no_grad():
            p.copy_(m.arange(p.numel()).reshape(p.shape) * 0.1 + i)
    return made
