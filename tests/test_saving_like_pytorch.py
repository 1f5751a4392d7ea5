"""Files of `torch.save`: what PyTorch writes we read, what we write PyTorch reads, and wrong arguments are answered in its words."""

from __future__ import annotations

import collections
import copy
import io
import os
import pickle
import pickletools
import struct
import zipfile

import pytest

import torchgrad_jax as tj

torch = pytest.importorskip("torch")

from side_by_side import agree, difference, error_of, like_pytorch, plain, programs  # noqa: E402 - needs torch

pytestmark = pytest.mark.operators
program, test_like_pytorch = programs()


def written(m, obj, **options):
    stream = io.BytesIO()
    m.save(obj, stream, **options)
    return stream.getvalue()


def read(m, content, **options):
    return m.load(io.BytesIO(content), **options)


NEW, OLD = {}, {"_use_new_zipfile_serialization": False}


def both_ways(make, show, formats=(NEW, OLD), **loading):
    """What is made with one library, saved by it and loaded by any, is the same. In both formats."""
    wanted = plain(show(torch, read(torch, written(torch, make(torch)), **loading)))
    for options in formats:
        for writer, reader in ((tj, tj), (tj, torch), (torch, tj)):
            found = plain(show(reader, read(reader, written(writer, make(writer), **options), **loading)))
            assert agree(found, wanted), (writer.__name__, reader.__name__, options, difference(found, wanted))


def told(t):
    return [type(t).__name__, str(t.dtype), list(t.shape), t.stride(), t.storage_offset(), t.requires_grad, t.is_leaf, t.tolist()]


NUMBERED = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*NUMBERED, "complex64", "complex128"])
def test_every_dtype(dtype):
    def make(m):
        x = m.tensor([[0, 1, 2], [1, 0, 3]]).to(getattr(m, dtype))
        return [x, m.zeros(0, 3, dtype=x.dtype), m.ones((), dtype=x.dtype), m.tensor([5, 1, 0, 2]).to(x.dtype)[1:3]]

    # PyTorch does not read what it writes in the old format of dtypes that it had not then.
    both_ways(make, lambda m, found: [told(t) for t in found], (NEW,) if dtype in ("uint16", "uint32", "uint64") else (NEW, OLD))


def test_parts_share_their_memory():
    def make(m):
        x = m.arange(12.0)
        return [x, x[2:5], x.view(3, 4).t(), x.view(3, 4)[1], x[::3], x[:1].expand(3), m.ones(2, 3, 4, 5).contiguous(memory_format=m.channels_last)]

    def show(m, found):
        before = [told(t) for t in found]
        found[0].mul_(10)
        found[1].add_(1)
        return before, [t.tolist() for t in found[:6]], [t.data_ptr() == found[0].data_ptr() for t in found], [t._is_view() for t in found]

    both_ways(make, show)


def test_parameters_and_tied_weights():
    def make(m):
        w = m.nn.Parameter(m.arange(4.0).view(2, 2))
        frozen = m.nn.Parameter(m.ones(2), requires_grad=False)
        noted = m.nn.Parameter(m.ones(1))
        noted.note = ["a", 1]
        return {"w": w, "again": w, "detached": w.detach(), "frozen": frozen, "noted": noted, "leaf": m.ones(2, requires_grad=True)}

    def show(m, found):
        with m.no_grad():
            found["w"].add_(1)
        return [told(t) for t in found.values()], found["w"] is found["again"], found["noted"].note, [t._version for t in found.values()]

    both_ways(make, show)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_none_for_the_hooks_of_a_tensor():
    class Old:
        """Pickled as the first files with `_rebuild_tensor_v2` have tensors without hooks."""

        def __init__(self, *what):
            self.what = what

        def __reduce__(self):
            return self.what

    def make(m):
        part = Old(m._utils._rebuild_tensor_v2, (m.arange(4.0).storage(), 1, (3,), (1,), False, None))
        return [part, Old(m._utils._rebuild_parameter, (m.ones(2), True, None))]

    both_ways(make, lambda m, found: [told(t) for t in found])


def test_plain_data_around_tensors():
    def make(m):
        ordered = collections.OrderedDict(a=1, b=m.ones(1))
        ordered.note = {"version": 1}
        return {
            "list": [1, -2, 3.5, 2**70, None, True, "text", "übel", b"bytes", bytearray(b"ab"), 1 - 2j, (1, (2,)), {3, 4}, {}], "ordered": ordered,
            "counter": collections.Counter("aab"), 7: m.Size([1, 2]), (1, "key"): m.float32, "kind": [m.bfloat16, m.bool, m.int64],
            "device": m.device("cpu"), "layout": m.strided, "state": m.Generator().manual_seed(3).get_state()[:20], "nan": float("inf"),
        }  # fmt: skip

    def show(m, found):
        kinds = [found[7] == m.Size([1, 2]), found[1, "key"] is m.float32, found["device"] == m.device("cpu"), found["layout"] is m.strided]
        ordered = found["ordered"]
        texts = [repr(found[k]) for k in ("list", "counter", 7, (1, "key"), "kind", "device", "layout", "nan")]
        return kinds, texts, list(map(str, found)), type(ordered).__name__, ordered.note, ordered["b"], found["state"]

    both_ways(make, show)


def test_bits_and_attributes():
    def make(m):
        z = m.tensor([1 + 2j, 3 - 1j])
        noted = m.ones(2)
        noted.note = {"a": 1}
        return [z.conj(), noted, m.ones(2, requires_grad=True) * 2, z.clone().conj().imag]

    both_ways(make, lambda m, found: [[told(t) for t in found[:3]], found[3].tolist(), found[0].is_conj(), found[1].note])


class Tagged(tj.Tensor):
    """At module level, so that it can be pickled."""


class TaggedTorch(torch.Tensor):
    """The same for PyTorch."""


@program
def subclasses(m):
    kind = TaggedTorch if m is torch else Tagged
    x = m.ones(2).as_subclass(kind)
    x.tag = [1]
    content = written(m, x)
    refused = error_of(lambda: read(m, content))[0]
    with m.serialization.safe_globals([kind]):
        found = read(m, content)
    return refused, type(found) is kind, found.tag, found.tolist(), type(read(m, content, weights_only=False)) is kind


def layers(m):
    m.manual_seed(0)
    return m.nn.Sequential(m.nn.Linear(2, 3), m.nn.Sequential(m.nn.ReLU(), m.nn.Dropout(0.5)), m.nn.Linear(3, 1)).eval()


def test_modules_are_saved_whole():
    def show(m, found):
        x = m.tensor([[1.0, 2.0], [0.5, -1.0]])
        found.register_forward_hook(lambda module, args, output: output * 2)
        return repr(found), found(x).tolist(), [name for name, _ in found.named_parameters()], found.training

    both_ways(layers, show, weights_only=False)


def test_states_of_modules():
    def show(m, found):
        layer = layers(m)
        return [list(found), found._metadata, repr(layer.load_state_dict(found)), [told(t) for t in found.values()]]

    both_ways(lambda m: layers(m).state_dict(), show)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_states_of_optimizers_and_schedulers(name):
    def make(m):
        layer = layers(m)
        optimizer = getattr(m.optim, name)(layer.parameters(), lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
        scheduler = m.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(3):
            optimizer.zero_grad()
            layer(m.ones(4, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
        return {"layer": layer.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}

    def show(m, found):
        layer = layers(m)
        optimizer = getattr(m.optim, name)(layer.parameters(), lr=0.3)
        layer.load_state_dict(found["layer"])
        optimizer.load_state_dict(found["optimizer"])
        optimizer.zero_grad()
        layer(m.ones(4, 2)).sum().backward()
        optimizer.step()
        groups = [{k: v for k, v in g.items() if k != "params"} for g in found["optimizer"]["param_groups"]]
        state = [[k, *(v.tolist() if isinstance(v, m.Tensor) else v for v in s.values())] for k, s in found["optimizer"]["state"].items()]
        return repr(groups), state, list(layer.parameters()), found["scheduler"]["last_epoch"]

    both_ways(make, show)


def test_functions_and_classes():
    def show(m, found):
        wanted = (m.nn.functional.relu, m.nn.Linear, m.relu, m.Tensor.mean, m.FloatTensor, m.nn.Parameter, m.optim.SGD)
        return [a is b or a == b for a, b in zip(found, wanted, strict=True)]

    def make(m):
        return [m.nn.functional.relu, m.nn.Linear, m.relu, m.Tensor.mean, m.FloatTensor, m.nn.Parameter, m.optim.SGD]

    both_ways(make, show, weights_only=False)


def test_generators_and_named_results():
    def make(m):
        return [m.Generator().manual_seed(5), m.tensor([[1.0, 2.0], [4.0, 3.0]]).max(1), m.nn.utils.rnn.pack_sequence([m.ones(2, 1), m.ones(1, 1)])]

    def show(m, found):
        generator, named, packed = found
        return m.randn(3, generator=generator), repr(named), named.indices, repr(packed)

    both_ways(make, show, (NEW,), weights_only=False)  # in the old format a generator is given its state before that is read


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages():
    def make(m):
        x = m.arange(4.0)
        return [x[1:], m.ones(2).untyped_storage(), x.untyped_storage().nbytes(), m.LongStorage([1, 2])]

    def show(m, found):
        return [found[0], found[1].tolist(), found[2], found[3].tolist(), str(found[3].dtype)]

    both_ways(make, show, (NEW,))  # PyTorch does not read untyped ones in the old format


TEXTS = ["torchgrad_jax.nn", b"ctorchgrad_jax._utils\n_rebuild_tensor_v2\n"]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(protocol):
    def make(m):
        return [m.ones(2), m.nn.Linear(1, 1), m.float32, *TEXTS]

    content = written(tj, make(tj), pickle_protocol=protocol)
    names = {(op.name, arg) for op, arg, _ in pickletools.genops(zipfile.ZipFile(io.BytesIO(content)).read("archive/data.pkl"))}
    assert not any(name == "GLOBAL" and "torchgrad_jax" in arg for name, arg in names)
    for m in (tj, torch):
        found = read(m, content, weights_only=False)
        assert found[0].tolist() == [1, 1] and type(found[1]) is m.nn.Linear and found[2] is m.float32 and found[3:] == TEXTS


def test_the_layout_of_archives(tmp_path):
    def layout(m, folder):
        m.save({"a": m.arange(5.0), "b": m.ones(3, dtype=m.uint8)}, folder / "name.x.pt")
        content = (folder / "name.x.pt").read_bytes()
        found = []
        for i in zipfile.ZipFile(io.BytesIO(content)).infolist():
            name, extra = struct.unpack_from("<2H", content, i.header_offset + 26)
            place = i.header_offset + 30 + name + extra
            held = content[place : place + i.file_size]
            if not i.filename.endswith(("serialization_id", ".pkl")):
                found.append([i.filename, i.compress_type, i.file_size, i.CRC, place % 64 if "/data/" in i.filename else 0, held])
        return sorted(found)

    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours = layout(tj, tmp_path / "ours")
    theirs = layout(torch, tmp_path / "theirs")
    assert ours == theirs
    assert zipfile.ZipFile(tmp_path / "ours" / "name.x.pt").testzip() is None


# ---------------------------------------------------------------------- files of other makes, damaged files


def edited(content, edit):
    """The archive with records changed by ``edit(name, bytes)``; None leaves one out."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        for i in old.infolist():
            held = edit(i.filename.partition("/")[2], old.read(i))
            if held is not None:
                new.writestr(i.filename, held)
    return stream.getvalue()


def in_pickle(old, new):
    return lambda name, held: held.replace(old, new) if name == "data.pkl" else held


EDITS = {
    "none": lambda name, held: held,
    **{f"no {miss}": lambda name, held, miss=miss: None if name == miss else held for miss in ("data/0", "version", "byteorder", "data.pkl")},
    "short storage": lambda name, held: held[:8] if name == "data/0" else held,
    "long storage": lambda name, held: held + b"1234" if name == "data/0" else held,
    "unknown order": lambda name, held: b"foo" if name == "byteorder" else held,
    "big": lambda name, held: b"big" if name == "byteorder" else held,
    "too large": in_pickle(b"K\x06\x85", b"K\x07\x85"),
    "too many": in_pickle(b"K\x06t", b"K\x07t"),
    "offset": in_pickle(b"QK\x00", b"QK\x01"),
    "negative offset": in_pickle(b"QK\x00", b"QJ\xff\xff\xff\xff"),
    "negative size": in_pickle(b"K\x06\x85", b"J\xff\xff\xff\xff\x85"),
    "negative stride": in_pickle(b"K\x01\x85", b"J\xff\xff\xff\xff\x85"),
    "another key": in_pickle(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x007"),
    "unknown place": in_pickle(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00foo"),
    "on a GPU": in_pickle(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"),
    "no storage": in_pickle(b"X\x07\x00\x00\x00storage", b"X\x07\x00\x00\x00storagf"),
}


@pytest.mark.parametrize("name", EDITS)
def test_changed_archives(name):
    content = edited(written(torch, torch.arange(6.0)), EDITS[name])
    like_pytorch(lambda m: read(m, content))()


PICKLES = {
    "append to a number": b"K\x01K\x02a.", "key of a number": b"]K\x01K\x02s.", "state of a dict": b"}K\x01b.", "two values": b"K\x01K\x02.",
    "blocked": b"cos\nsystem\n.", "blocked too": b"csys\nexit\n.", "eval": b"c__builtin__\neval\n.", "getattr": b"cbuiltins\ngetattr\n.",
    "unknown": b"cfoo\nbar\n.", "unknown of torch": b"ctorch.hub\nload\n.", "array": b"cnumpy\nndarray\n.", "text": b"U\x01a.", 
    "state of a class": b"ctorch\nTensor\n}b.", "new size": b"ctorch\nSize\n)\x81.", "new nothing": b"N)\x81.", "operation": b"I1\n.",
    "number": b"\x8a\x01\x05.", "bytes": b"C\x01a.", "pop": b"K\x010.", "dup": b"K\x012.",
    "memoize": b"]\x94.", "set": b"c__builtin__\nset\n]K\x01a\x85R.",
}  # fmt: skip


@pytest.mark.parametrize("name", PICKLES)
def test_changed_pickles(name):
    content = edited(written(torch, torch.arange(6.0)), lambda record, held: b"\x80\x02" + PICKLES[name] if record == "data.pkl" else held)

    def run(m):
        found = error_of(lambda: read(m, content))
        return found and [found[0], found[1].replace("torch._C._TensorMeta", "type")], None if found else read(m, content)

    like_pytorch(run)()


@program
def damaged_files(m):
    content, old = written(torch, torch.ones(100)), written(torch, torch.ones(100), _use_new_zipfile_serialization=False)
    cut = [content[:n] for n in (0, 10, 100, 500, -1, -30)] + [old[:n] for n in (10, 100, 500, -1, -30)]
    found = [error_of(lambda c=c: read(m, c)) for c in [*cut, b"PK\3\4garbage", b"PKgarbage", pickle.dumps({"a": 1}, 2)]]
    return [e if e[0] != "EOFError" else "EOFError" for e in found]


@program
def what_else_is_named(m):
    class Mine:
        pass

    Mine.__module__, Mine.__qualname__ = __name__, "Mine"
    globals()["Mine"] = Mine
    content = written(m, {"a": Mine(), "b": m.nn.Linear(1, 1)})
    first = error_of(lambda: read(m, content)), m.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(written(m, Mine())))
    with m.serialization.safe_globals([Mine]):
        inside = error_of(lambda: read(m, content))[1].count("torch.nn.modules.linear.Linear"), type(read(m, written(m, Mine()))).__name__
    before = m.serialization.get_safe_globals()
    m.serialization.add_safe_globals([Mine, (collections.deque, "elsewhere.deque")])
    added = [x for x in m.serialization.get_safe_globals() if x not in before]
    m.serialization.clear_safe_globals()
    try:
        return first, inside, len(added), (collections.deque, "elsewhere.deque") in added, m.serialization.get_safe_globals()
    finally:
        m.serialization.add_safe_globals(before)


@program
def only_weights_or_all(m):
    content = written(m, [collections.deque([1])])
    found = [read(m, content, weights_only=False), error_of(lambda: read(m, content))[0], read(m, content, pickle_module=pickle)]
    found.append(error_of(lambda: read(m, content, pickle_module=pickle, weights_only=True)))
    plain_content = written(m, [1])
    found += [error_of(lambda: read(m, plain_content, foo=1)), read(m, plain_content, encoding="latin1")]
    found.append(error_of(lambda: read(m, plain_content, foo=1, weights_only=False)))
    return found


@program
def the_environment_may_say_so(m):
    content = written(m, collections.deque([1]))
    found = []
    for names in (["NO_WEIGHTS_ONLY"], ["WEIGHTS_ONLY"], ["WEIGHTS_ONLY", "NO_WEIGHTS_ONLY"]):
        with pytest.MonkeyPatch.context() as patch:
            for name in names:
                patch.setenv(f"TORCH_FORCE_{name}_LOAD", "1")
            found += [error_of(lambda: read(m, content)), error_of(lambda: read(m, content, weights_only=False))]
    return found


@program
def wrong_files(m):
    class Silent:
        def read(self, *_):
            return b""

    found = [error_of(lambda f=f: m.load(f)) for f in ("no such file", "/tmp", 3, None, Silent(), io.StringIO("abc"))]
    found += [error_of(lambda f=f: m.save(1, f)) for f in (None, 3, "/no such folder/x.pt")]
    found.append(error_of(lambda: m.save(1, "/tmp"))[0])
    end, start = os.pipe()
    os.write(start, written(torch, 1))
    os.close(start)
    with open(end, "rb") as pipe:
        return [*found, error_of(lambda: m.load(pipe))]


@program
def where_storages_go(m):
    content = written(m, m.arange(3.0))
    seen = []

    def look(storage, location):
        seen.append([type(storage).__name__, location, len(storage)])
        return storage

    good = [read(m, content, map_location=where) for where in ("cpu", m.device("cpu"), {"cpu": "cpu"}, {"cuda:0": "cpu"}, look, lambda *_: None)]
    elsewhere = edited(content, in_pickle(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:1"))
    good += [read(m, elsewhere, map_location=where) for where in ("cpu", {"cuda:1": "cpu"}, lambda storage, location: storage)]
    bad = [error_of(lambda w=w: read(m, content, map_location=w)) for w in ("cuda", "foo", 3, {"cpu": "foo"}, lambda *_: 3)]
    return good, bad, seen


@program
def places_of_ones_own(m):
    s = m.serialization
    before = [s.location_tag(m.ones(1).untyped_storage()), s.default_restore_location(m.ones(1).untyped_storage(), "cpu").tolist()]
    asked = []
    known = [m.ones(7).untyped_storage().nbytes()]

    def tag(storage):
        return "shelf:3" if storage.nbytes() == known[0] else None

    def restore(storage, location):
        asked.append(location)
        return storage if location.startswith("shelf") else None

    s.register_package(1, tag, restore)
    content = written(m, [m.ones(7), m.ones(2)])
    found = [read(m, content), asked[:], b"shelf:3" in content]
    known[0] = -1
    return before, found, error_of(lambda: s.default_restore_location(m.ones(1).untyped_storage(), "nowhere"))


@program
def options(m):
    s = m.serialization
    found = [s.get_crc32_options(), s.get_default_load_endianness(), int(s.get_default_mmap_options()), [k.name for k in s.LoadEndianness]]
    found.append([error_of(lambda: s.set_default_load_endianness("little")), error_of(lambda: s.set_default_mmap_options(5))])
    s.set_crc32_options(False)
    content = written(m, m.arange(3.0))
    s.set_crc32_options(True)
    found.append([read(m, content), {i.CRC for i in zipfile.ZipFile(io.BytesIO(content)).infolist()}])
    bare = edited(written(m, m.tensor([1.0, 2.0])), lambda name, held: None if name == "byteorder" else held)
    s.set_default_load_endianness(s.LoadEndianness.BIG)
    found.append(read(m, bare).tolist())
    s.set_default_load_endianness(None)
    found.append(read(m, bare).tolist())
    return found


@program
def contents_may_be_left_out(m):
    with m.serialization.skip_data():
        content = written(m, [m.arange(6.0), m.ones(3, dtype=m.uint8)])
        refused = error_of(lambda: written(m, m.ones(1), _use_new_zipfile_serialization=False))
    return read(m, content), [i.file_size for i in zipfile.ZipFile(io.BytesIO(content)).infolist() if "/data/" in i.filename], refused


def big(content):
    """The bytes of float32 and int64 elements turned round, in the file."""

    def edit(name, held):
        if name == "byteorder":
            return b"big"
        width = {"data/0": 4, "data/1": 8, "data/2": 2, "data/3": 4}.get(name)
        return held if width is None else b"".join(held[i : i + width][::-1] for i in range(0, len(held), width))

    return edited(content, edit)


@program
def files_of_other_machines(m):
    given = [m.arange(3.0), m.tensor([1, -2]), m.ones(2, dtype=m.bfloat16), m.tensor([1 + 2j], dtype=m.complex64), m.ones(2, dtype=m.uint8)]
    return read(m, big(written(m, given)))


@program
def one_memory_as_two_dtypes(m):
    z = m.tensor([1 + 2j])
    return error_of(lambda: written(m, [z, z.real]))


@program
def several_objects_in_one_file_of_the_old_format(m):
    stream = io.BytesIO(b"ab")
    stream.seek(2)
    for x in (m.ones(2), {"a": m.arange(3)}):
        m.save(x, stream, _use_new_zipfile_serialization=False)
    stream.seek(2)
    return m.load(stream), m.load(stream)["a"]


@program
def files_and_paths(m):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt"
        m.save(m.ones(2), path)
        with open(path, "rb") as file:
            found = [m.load(path), m.load(str(path)), m.load(file), m.load(path, mmap=True).tolist()]
        with open(path, "rb") as file:
            found.append(error_of(lambda: m.load(file, mmap=True)))
        m.save(m.ones(3), path, _use_new_zipfile_serialization=False)
        said = error_of(lambda: m.load(path, mmap=True))
        return found, said[0], said[1].replace(str(path), "PATH")


class Mode2:
    def __getstate__(self):
        return {"x": 1}

    def __setstate__(self, state):
        self.y = state["x"] + 1


def test_what_the_user_allows_is_given_its_state():
    for m in (tj, torch):
        with m.serialization.safe_globals([Mode2]):
            assert read(m, written(m, Mode2())).y == 2


class OfPyTorch(pickle.Unpickler):
    def find_class(self, module, name):
        return super().find_class(module.replace("torch", "torchgrad_jax", 1), name)


def test_plain_pickles_of_pytorch_name_what_is_here():
    x = torch.arange(6.0).view(2, 3).t()
    theirs = [x, torch.nn.Parameter(x), torch.ones(2, dtype=torch.bfloat16)]
    found = OfPyTorch(io.BytesIO(pickle.dumps(theirs))).load()
    assert [told(t) for t in found] == [told(t) for t in theirs]


def test_classes_are_where_the_table_says():
    from importlib import import_module

    from torchgrad_jax.saving import names

    known = 0
    for name, module in [(name, module) for name, modules in names.modules().items() for module in modules]:
        theirs = getattr(import_module(module), name)
        assert theirs.__module__ == module and theirs.__qualname__ == name
        try:
            ours = names.find(module, name)
        except AttributeError:
            continue
        if isinstance(ours, type) and ours.__module__.startswith("torchgrad_jax") and len(names.modules()[name]) == 1:
            known += 1
            assert names.torch_name(ours.__module__, ours.__qualname__) == (module, name), ours
    assert known > 40
    assert names.torch_name("torchgrad_jax.nn.modules.elsewhere", "Identity") == ("torch.nn.modules.linear", "Identity")


def test_the_table_is_what_pytorch_says():
    from importlib.resources import files

    from compat_suite.saved_files import places

    assert files("torchgrad_jax.saving").joinpath("places.txt").read_text() == places.table()


def test_a_copy_is_not_disturbed_by_saving():
    x = tj.arange(4.0)
    y = copy.copy(x)
    written(tj, [x, y])
    y.add_(1)
    assert x.tolist() == [1, 2, 3, 4]
