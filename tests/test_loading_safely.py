"""Files that mean harm: where only weights are loaded they run nothing, end, and are refused by an error that says so."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile

import pytest

import torchgrad_jax as torch
from compat_suite.saved_files import mutations

pytestmark = pytest.mark.operators
REFUSED = (pickle.UnpicklingError, RuntimeError, EOFError)


def load(pickled, **options):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, held in {"data.pkl": b"\x80\x02" + pickled, "version": b"3\n", "data/0": bytes(8)}.items():
            file.writestr(f"archive/{name}", held)
    return torch.load(io.BytesIO(stream.getvalue()), **options)


@pytest.mark.parametrize("seed", range(0, 400, 50))
def test_damaged_files_are_answered(seed):
    """A sample of ``python -m compat_suite.saved_files``."""
    for n in range(seed, seed + 50):
        said, good = mutations.outcome(n)
        assert good, (n, said)


def test_the_harness_notices_code_that_runs(monkeypatch):
    def loads(stream):
        exec("1 + 1")

    monkeypatch.setattr(torch, "load", loads)
    said, good = mutations.outcome(0)
    assert said.startswith("ran code: compile") and not good


def test_the_harness_notices_wrong_answers(monkeypatch):
    def loads(stream):
        return {}["a"]

    monkeypatch.setattr(torch, "load", loads)
    said, good = mutations.outcome(0)
    assert said.startswith("KeyError") and not good


@pytest.mark.parametrize("depth", [10, 100, 100_000])
def test_keys_that_would_take_for_ever_to_hash(depth):
    twice = b")" + b"".join(b"q\x00h\x00\x86" for _ in range(depth))
    in_set, ordered = b"c__builtin__\nset\n]" + twice + b"a\x85R.", b"ccollections\nOrderedDict\n]" + twice + b"K\x01\x86a\x85R."
    for wrapped in (b"}" + twice + b"K\x01s.", in_set, ordered):
        if depth == 10:
            assert load(wrapped)
        else:
            with pytest.raises(pickle.UnpicklingError, match="too deeply"):
                load(wrapped)


def test_an_ordered_dictionary_that_python_2_wrote_has_lists_of_two():
    pairs = b"](]X\x01\x00\x00\x00aaK\x01a](X\x01\x00\x00\x00bK\x02ee"
    assert load(b"ccollections\nOrderedDict\n" + pairs + b"\x85R.") == {"a": 1, "b": 2}
    with pytest.raises(pickle.UnpicklingError, match="unhashable type: 'list'"):
        load(b"ccollections\nOrderedDict\n](](]K\x01ee\x85R.")


def test_what_is_nested_deeply_is_no_recursion():
    found = load(b"]" * 200_000 + b"a" * 199_999 + b".")
    depth = 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 199_999


STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu%stQ"


def tensor_pickle(count=b"K\x02", offset=b"K\x00", size=b"K\x02\x85", stride=b"K\x01\x85", grad=b"\x89", hooks=b"ccollections\nOrderedDict\n)R"):
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE % count + offset + size + stride + grad + hooks + b"tR."


def long(n):
    return b"\x8a\x10" + n.to_bytes(16, "little", signed=True)


@pytest.mark.parametrize(
    "parts",
    [
        {"size": long(2**62) + b"\x85"}, {"size": long(2**40) + b"\x85", "stride": b"K\x00\x85"}, {"offset": long(2**63)}, {"count": long(2**61)},
        {"size": b"(" + b"K\x01" * 100 + b"t", "stride": b"(" + b"K\x01" * 100 + b"t"}, {"size": b"G" + struct.pack(">d", 2.0) + b"\x85"},
        {"size": b"X\x01\x00\x00\x002"}, {"grad": b"K\x01"}, {"hooks": b"}K\x01cos\nsystem\ns"}, {"stride": long(-1) + b"\x85"}, {"size": b"N"},
        {"hooks": b"}K\x01c_codecs\nencode\ns"}, {"count": b"\x88"}, {"size": b"]"}, {"offset": b"N"}, {"size": b"\x88\x85"},
    ],
)  # fmt: skip
def test_tensors_that_cannot_be(parts):
    assert load(tensor_pickle()).tolist() == [0, 0]
    with pytest.raises(REFUSED):
        load(tensor_pickle(**parts))


def test_lengths_beyond_the_file_take_no_memory():
    for code in (b"X\xff\xff\xff\xff", b"T\xff\xff\xff\x7f", b"\x8a\xff", b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R"):
        with pytest.raises(REFUSED):
            load(code + b".")


def test_classes_and_functions_are_given_no_state():
    for named in (b"torch\nTensor", b"collections\nOrderedDict", b"torch._utils\n_rebuild_parameter", b"torch\nfloat32", b"torch\nSize"):
        for state in (b"}X\x08\x00\x00\x00__code__K\x01s", b"}}X\x08\x00\x00\x00__doc__aK\x01s\x86", b"N}\x86"):
            with pytest.raises(REFUSED):
                load(b"c" + named + b"\n" + state + b"b.")


def test_attributes_of_tensors_are_no_slots():
    state = b"}}X\x06\x00\x00\x00_valueK\x01s\x86"
    make = b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n("
    with pytest.raises(pickle.UnpicklingError, match="attributes"):
        load(make + STORAGE % b"K\x02" + b"K\x00K\x02\x85K\x01\x85\x89}t" + state + b"tR.")


@pytest.mark.parametrize("given", [b"cos\nsystem\n", b"c__builtin__\nset\n", b"ccollections\nOrderedDict\n", b"ctorch\nSize\n", b"N", b"K\x01"])
def test_what_rebuilds_tensors_calls_nothing_else(given):
    with pytest.raises(REFUSED):
        load(b"ctorch._tensor\n_rebuild_from_type_v2\n(" + given + b"ctorch\nTensor\n](X\x02\x00\x00\x00idetNtR.")


def test_codecs_are_three():
    assert load(b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R.") == b"a"
    for name in (b"hex", b"zip", b"rot13", b"idna", b"os"):
        with pytest.raises(pickle.UnpicklingError, match="only texts"):
            load(b"c_codecs\nencode\nX\x01\x00\x00\x00aX" + struct.pack("<I", len(name)) + name + b"\x86R.")


class Told:
    def __init__(self):
        raise AssertionError("a class was called")

    def __setstate__(self, state):
        raise AssertionError("a class was given a state")


def test_nothing_is_imported_or_called_that_is_not_on_the_list():
    stream = io.BytesIO()
    torch.save({"a": Told.__new__(Told)}, stream)
    with pytest.raises(pickle.UnpicklingError, match=r"Unsupported global: GLOBAL .*Told was not an allowed global"):
        torch.load(io.BytesIO(stream.getvalue()))
    with pytest.raises(pickle.UnpicklingError, match="no_such_module.f was not an allowed global"):
        load(b"cno_such_module\nf\n.")
    with pytest.raises(pickle.UnpicklingError, match="module posix is blocked|module os is blocked"), torch.serialization.safe_globals([os.system]):
        load(b"cposix\nsystem\n.")


def test_what_cannot_be_allowed():
    with pytest.raises(TypeError, match="functions and classes"), torch.serialization.safe_globals([3]):
        load(b"K\x01.")
