"""`Tensor.storage` and `Tensor.untyped_storage`: memory as an object."""

from __future__ import annotations

import array
import copy
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from side_by_side import error_of, like_pytorch, programs  # noqa: E402 - needs torch

import torchgrad_jax as tj  # noqa: E402


@like_pytorch
def test_a_storage_is_the_memory_that_views_share(m):
    x = m.arange(6.0).reshape(2, 3)
    y, z = x[1].detach(), x.clone()
    y.add_(1)
    a, b, c = (t.untyped_storage() for t in (x, y, z))
    same = [a == b, hash(a) == hash(b), a == c, a.data_ptr() == b.data_ptr(), a.data_ptr() == c.data_ptr(), y.data_ptr() - b.data_ptr()]
    return [same, len(b), b.size(), b.nbytes(), b.tolist(), b[4], str(b.device), b.is_cuda, isinstance(b, m.UntypedStorage), b != 1]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@like_pytorch
def test_a_typed_storage_has_elements(m):
    s = m.arange(6).reshape(2, 3)[:, 1].storage()
    sizes = [len(s), s.size(), s.nbytes(), s.element_size(), s.untyped().nbytes()]
    return [sizes, str(s.dtype), s.tolist(), s[1], repr(s), isinstance(s, m.TypedStorage)]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@like_pytorch
def test_what_is_written_to_a_storage_is_written_to_its_tensors(m):
    x = m.arange(4.0)
    part = x[1:3]
    s = x.storage()
    s[0] = 7
    first = x.tolist(), s[-1]
    x.untyped_storage()[3] = 0
    second = x.tolist()
    s.fill_(3)
    third = part.tolist()
    s.copy_(m.FloatStorage([4, 3, 2, 1]))
    return [first, second, third, x, error_of(lambda: s[9]), error_of(lambda: s[1:2]), error_of(lambda: x.untyped_storage()[16])]


def test_storages_do_not_grow():
    s = tj.ones(2).untyped_storage()
    with pytest.raises(RuntimeError, match="cannot be resized"):
        s.resize_(4)
    assert not s.resizable()


program, test_like_pytorch = programs()


@program
def typed_storages_are_made_of_numbers(m):
    made = [m.FloatStorage([1, 2, 3]), m.BoolStorage([True, False]), m.LongStorage(), m.TypedStorage([1, 2], dtype=m.int32), m.Storage([1.5])]
    wrapped = m.FloatStorage(wrap_storage=m.ones(2).untyped_storage())
    return [[repr(s), str(s.dtype), s.type(), s.pickle_storage_type(), s.is_shared(), s.is_pinned(), s.is_cuda] for s in (*made, wrapped)]


@program
def untyped_storages_are_made_of_bytes(m):
    made = [m.UntypedStorage([1, 2, 255]), m.UntypedStorage(), m.UntypedStorage.from_buffer(b"ab", dtype=m.uint8)]
    wrong = [error_of(lambda x=x: m.UntypedStorage(x)) for x in ("a", [1.5])]
    return [[repr(s), s.type(), list(s), s.element_size()] for s in made], len(m.UntypedStorage(3)), wrong


@program
def storages_by_their_dtype(m):
    names = "Float Double Half BFloat16 Long Int Short Char Byte Bool ComplexFloat ComplexDouble"
    kinds = [getattr(m, f"{name}Storage") for name in names.split()]
    found = []
    for kind in kinds:
        x = m.ones(2, dtype=kind.dtype)
        s = kind(x.tolist())
        found.append([str(kind), x.storage_type() is kind, isinstance(s, kind), sum(isinstance(s, k) for k in kinds), s.tolist(), len(s.untyped())])
    return found, m.ones(1, dtype=m.uint16).storage_type()


@program
def what_is_a_storage(m):
    return [m.is_storage(x) for x in (m.FloatStorage(1), m.UntypedStorage(1), m.ones(1), m.FloatStorage, 3)]


@program
def storages_are_converted_and_copied(m):
    s = m.FloatStorage([1.5, -2.5])
    t = s.clone()
    t[0] = 9
    twice = copy.deepcopy([s, s])
    moved = s.cpu()
    return [
        [str(x.dtype), x.tolist()] for x in (s.double(), s.half(), s.long(), s.complex_float(), s, t, twice[1], moved)
    ], twice[0] is twice[1], moved is s  # fmt: skip


@program
def tensors_from_buffers(m):
    numbers = array.array("i", [1, 2, 3])
    good = [m.frombuffer(numbers, dtype=m.int32), m.frombuffer(bytearray(range(10)), dtype=m.uint8, count=3, offset=2)]
    good += [m.frombuffer(bytearray(8), dtype=m.float32, requires_grad=True), m.frombuffer(bytearray([0, 1, 2]), dtype=m.bool)]
    given = [
        (bytearray(8), {"count": 0}), (bytearray(8), {"offset": 9}), (bytearray(8), {"offset": -1}), (bytearray(7), {}), (bytearray(8), {"count": 3}),
        (bytearray(0), {}), ([1], {}), ("abc", {}), (bytearray(8), {"offset": 3}), (bytearray(8), {"count": 2, "offset": 4}),
    ]  # fmt: skip
    return good, [error_of(lambda b=b, k=k: m.frombuffer(b, dtype=m.float32, **k)) for b, k in given]


def test_tensors_from_files(tmp_path):
    path = str(tmp_path / "numbers")
    np.arange(6, dtype=np.float32).tofile(path)

    def program(m):
        good = [m.from_file(path, size=6), m.from_file(path, size=3, dtype=m.int32), m.from_file(path)]
        wrong = [lambda: m.from_file(path, size=7), lambda: m.from_file(path + "x", size=1), lambda: m.from_file(3)]
        stored = m.FloatStorage.from_file(path, False, 2).tolist(), m.UntypedStorage.from_file(path, False, 3).tolist()
        good[0].add_(1)
        return good, stored, [error_of(f) for f in wrong], np.fromfile(path, np.float32).tolist()

    like_pytorch(program)()
    with pytest.raises(RuntimeError, match="writes would not reach the file"):
        tj.from_file(path, shared=True, size=6)


def test_memory_is_not_shared_with_other_processes():
    with pytest.raises(RuntimeError, match="what is written"):
        tj.ones(2).untyped_storage().share_memory_()


PARTS = {
    "leaf": lambda m, x: x,
    "transposed": lambda m, x: x.t(),
    "row": lambda m, x: x[0],
    "result in another order": lambda m, x: x.t() * 2,
    "row of it": lambda m, x: (x.t() * 2)[0],
    "result": lambda m, x: x * 2,
    "leaf that is a view": lambda m, x: m.arange(6.0, dtype=m.float64).view(2, 3).requires_grad_(),
    "leaf in another order": lambda m, x: (x.detach().t() * 2).requires_grad_(),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", PARTS)
def test_a_write_by_way_of_data_reaches_what_was_saved(name, times, late):
    def program(m):
        x = (m.arange(6.0, dtype=m.float64).view(2, 3) / 4 + 1).requires_grad_()
        part = PARTS[name](m, x)
        twin = part.data
        y = part.sin() * part * x.sum()
        for _ in range(times):
            (part.data if late else twin).mul_(2)
        y.sum().backward()
        return x.grad, part._version, part, part.grad if part.is_leaf else None

    like_pytorch(program)()


@like_pytorch
def test_asarray_reads_the_bytes_of_a_storage(m):
    memory = m.tensor([1.0, 2.0, 3.0]).untyped_storage()
    return m.asarray(memory, dtype=m.uint8), m.asarray(memory[4:8], dtype=m.uint8)


def test_a_storage_is_as_large_as_its_memory():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # typed storages are deprecated
        sizes = [sys.getsizeof(kind) for n in (0, 1000) for x in (tj.ones(n),) for kind in (x.untyped_storage(), x.storage())]
    assert sizes[2] - sizes[0] == sizes[3] - sizes[1] == 4000
