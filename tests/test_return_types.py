"""Results that have names: `torch.return_types`, and what of a program's classes it prints and pickles."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys

import jax
import pytest

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

CALLS = {
    "x.max(1)": ("max", ("values", "indices")),
    "m.min(x, 0)": ("min", ("values", "indices")),
    "x.sort()": ("sort", ("values", "indices")),
    "m.sort(x, stable=True)": ("sort", ("values", "indices")),
    "x.topk(2)": ("topk", ("values", "indices")),
    "x.mode()": ("mode", ("values", "indices")),
    "x.kthvalue(1)": ("kthvalue", ("values", "indices")),
    "x.cummax(0)": ("cummax", ("values", "indices")),
    "x.median(1)": ("median", ("values", "indices")),
    "x.nanmedian(1)": ("nanmedian", ("values", "indices")),
    "m.aminmax(x)": ("aminmax", ("min", "max")),
    "m.frexp(x)": ("frexp", ("mantissa", "exponent")),
    "m.svd(s)": ("svd", ("U", "S", "V")),
    "m.linalg.svd(s)": ("linalg_svd", ("U", "S", "Vh")),
    "m.slogdet(s)": ("slogdet", ("sign", "logabsdet")),
    "m.linalg.slogdet(s)": ("linalg_slogdet", ("sign", "logabsdet")),
    "m.linalg.qr(s)": ("linalg_qr", ("Q", "R")),
    "m.linalg.eigh(s)": ("linalg_eigh", ("eigenvalues", "eigenvectors")),
    "m.linalg.inv_ex(s)": ("linalg_inv_ex", ("inverse", "info")),
    "m.linalg.solve_ex(s, s)": ("linalg_solve_ex", ("result", "info")),
    "m.max(x, dim=0, out=(m.empty(3), m.empty(3, dtype=m.int64)))": ("max_out", ("values", "indices")),
}


def names(m):
    return {"m": m, "x": m.tensor([[1.0, 3.0, 2.0], [4.0, 2.0, 9.0]]), "s": m.tensor([[2.0, 1.0], [1.0, 3.0]])}


@pytest.mark.parametrize("call", CALLS)
def test_a_result_has_pytorchs_names_and_class(call):
    name, fields = CALLS[call]
    found = eval(call, names(tj))
    assert type(found) is getattr(tj.return_types, name)
    assert repr(type(found)) == f"<class 'torch.return_types.{name}'>"
    assert found.__match_args__ == fields and found.n_fields == len(found) == len(fields)
    assert repr(found).startswith(f"torch.return_types.{name}(\n{fields[0]}=tensor(")
    for part, field in zip(found, fields, strict=True):
        assert getattr(found, field) is part
    torch = pytest.importorskip("torch")
    theirs = eval(call, names(torch))
    assert repr(type(theirs)) == repr(type(found)) and theirs.__match_args__ == fields


def test_it_prints_as_in_pytorch():
    text = "torch.return_types.max(\nvalues=tensor([3., 9.]),\nindices=tensor([1, 2]))"
    assert repr(names(tj)["x"].max(1)) == text == str(names(tj)["x"].max(1))
    assert repr(names(pytest.importorskip("torch"))["x"].max(1)) == text


def test_function_and_method_share_the_class():
    x = names(tj)["x"]
    assert type(x.topk(1)) is type(tj.topk(x, 1)) and type(x.svd()) is type(tj.svd(x))


def test_it_unpacks_copies_and_pickles():
    found = names(tj)["x"].max(1)
    values, indices = found
    for twin in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), copy.copy(found)):
        assert type(twin) is type(found)
        assert twin.values.tolist() == values.tolist() == [3.0, 9.0] and twin.indices.tolist() == indices.tolist() == [1, 2]
    assert pickle.loads(pickle.dumps(type(found))) is type(found)


@pytest.mark.parametrize("name", ["tj", "torch"])
def test_what_it_refuses(name):
    found = names(tj if name == "tj" else pytest.importorskip("torch"))["x"].max(1)
    kind = type(found)
    assert type(kind((1, 2))) is kind and type(found[:1]) is tuple and type(found + (1,)) is tuple
    with pytest.raises(TypeError, match=re.escape("torch.return_types.max() takes a 2-sequence (1-sequence given)")):
        kind((1,))
    with pytest.raises(TypeError, match=re.escape("torch.return_types.max() takes a dict as second arg, if any")):
        kind((1, 2), 2)
    with pytest.raises(TypeError, match="constructor requires a sequence"):
        kind(1, 2)
    with pytest.raises(AttributeError, match="'torch.return_types.max' object has no attribute 'foo'"):
        _ = found.foo
    with pytest.raises(AttributeError):
        found.values = 1


def test_it_is_a_pytree_of_its_parts():
    found = names(tj)["x"].max(1)
    doubled = jax.tree.map(lambda a: a * 2, found)
    assert type(doubled) is type(found) and doubled.values.tolist() == [6.0, 18.0]


_SCRIPT = """
import pickle, sys, torch
x = torch.tensor([[1., 3.], [4., 2.]], requires_grad=True)
print(type(x), type(x.shape), type(x.device), type(torch.nn.Parameter(x.detach())), type(x.max(1)))
kept = {"x": x, "shape": x.shape, "device": x.device, "p": torch.nn.Parameter(x.detach()), "dtype": x.dtype, "max": x.detach().max(1),
        "layer": torch.nn.Linear(2, 1), "state": torch.nn.Linear(2, 1).state_dict()}
assert pickle.loads(pickle.dumps(kept))["x"].requires_grad
with open(sys.argv[1], "wb") as file:
    pickle.dump(kept, file)
"""


def test_a_script_prints_pytorchs_classes_and_its_pickles_load_outside(tmp_path):
    (tmp_path / "script.py").write_text(_SCRIPT)
    command = [sys.executable, "-m", "torchgrad_jax.cli", "run", "script.py", "kept.pickle"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == (
        "<class 'torch.Tensor'> <class 'torch.Size'> <class 'torch.device'> <class 'torch.nn.parameter.Parameter'> <class 'torch.return_types.max'>"
    )
    content = (tmp_path / "kept.pickle").read_bytes()
    assert not re.findall(rb"\x8c.torch[.\x94]", content, re.DOTALL)
    kept = pickle.loads(content)
    assert type(kept["x"]) is tj.Tensor and kept["x"].tolist() == [[1.0, 3.0], [4.0, 2.0]] and kept["x"].requires_grad
    assert type(kept["shape"]) is tj.Size and kept["device"] is tj.device("cpu") and kept["dtype"] is tj.float32
    assert type(kept["p"]) is tj.nn.Parameter and type(kept["max"]) is tj.return_types.max and type(kept["layer"]) is tj.nn.Linear
