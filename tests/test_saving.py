"""`torch.save` and `torch.load` by themselves: nothing here needs PyTorch."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import pickletools
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.saving.archive import Reader, Writer

pytestmark = pytest.mark.operators


def written(obj, **options):
    stream = io.BytesIO()
    torch.save(obj, stream, **options)
    return stream.getvalue()


def read(content, **options):
    return torch.load(io.BytesIO(content), **options)


@pytest.mark.parametrize("new", [True, False])
def test_what_is_saved_is_loaded(new):
    x = torch.arange(6.0).view(2, 3)
    saved = {"x": x, "part": x[1, 1:], "turned": x.t(), "p": torch.nn.Parameter(torch.ones(2)), "n": [1, "a", (None, 2.5)], "kind": torch.bfloat16}
    found = read(written(saved, _use_new_zipfile_serialization=new))
    assert list(found) == list(saved) and found["n"] == saved["n"] and found["kind"] is torch.bfloat16
    found["x"].add_(1)
    assert found["turned"].tolist() == (x + 1).t().tolist() and found["part"].tolist() == [5, 6] and found["turned"].stride() == (1, 3)
    assert isinstance(found["p"], torch.nn.Parameter) and found["p"].requires_grad


def test_what_is_loaded_is_no_view():
    """Steps with parameters that are views would take a longer way."""
    layer = torch.nn.Linear(3, 2)
    for t in (*read(written(layer.state_dict())).values(), read(written(torch.nn.Parameter(torch.ones(2, 2))))):
        assert t._view is None and t._is_view() is False


def test_files_name_nothing_of_ours():
    content = written([torch.nn.Linear(1, 1), torch.ones(1), torch.float32, torch.nn.functional.relu, torch.optim.SGD([torch.ones(1)], lr=1)])
    pickled = zipfile.ZipFile(io.BytesIO(content)).read("archive/data.pkl")
    named = {arg.split()[0].split(".")[0] for op, arg, _ in pickletools.genops(pickled) if op.name == "GLOBAL"}
    assert named == {"torch", "collections", "__builtin__"}
    assert written([torch.nn.Linear(1, 1).state_dict()])[:500] == written([torch.nn.Linear(1, 1).state_dict()])[:500]


def test_texts_that_look_like_names_stay():
    texts = [b"ctorchgrad_jax._utils\n_rebuild_tensor_v2\n", "ctorchgrad_jax\nfloat32\n", "torchgrad_jax.nn"]
    for protocol in (2, 4):
        assert read(written([torch.ones(1), torch.float32, *texts], pickle_protocol=protocol), weights_only=False)[2:] == texts


class Other:
    """A module like pickle, with classes of its own."""

    class Pickler(pickle._Pickler):
        pass

    class Unpickler(pickle._Unpickler):
        pass

    dumps = staticmethod(pickle.dumps)


@pytest.mark.parametrize("new", [True, False])
def test_other_modules_may_pickle(new):
    content = written([torch.ones(2), torch.nn.Linear(1, 1)], pickle_module=Other, _use_new_zipfile_serialization=new)
    assert b"torchgrad_jax" not in content
    found = read(content, pickle_module=Other)
    assert found[0].tolist() == [1, 1] and type(found[1]) is torch.nn.Linear


def test_a_failed_save_leaves_the_old_file(tmp_path):
    torch.save(1, tmp_path / "x.pt")
    with pytest.raises((AttributeError, pickle.PicklingError)):
        torch.save(lambda: 1, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt") == 1


def test_pipes_are_written_to():
    end, start = os.pipe()
    with open(start, "wb") as pipe:
        torch.save(torch.ones(3), pipe)
    with open(end, "rb") as pipe:
        assert read(pipe.read()).tolist() == [1, 1, 1]


def test_what_is_not_here_is_refused_by_name():
    content = written(torch.ones(2)).replace(b"_rebuild_tensor_v2", b"_rebuild_qtensor\nq")
    with pytest.raises(Exception, match="quantized|operand|Weights only"):
        read(content)
    for name, said in {"_rebuild_qtensor": "quantized", "_rebuild_nested_tensor": "nested"}.items():
        with pytest.raises(RuntimeError, match=said):
            read(archive(b"\x80\x02ctorch._utils\n" + name.encode() + b"\n)R."))
    with pytest.raises(AttributeError, match=r"no torch\.hub\.nothing"):
        read(archive(b"\x80\x02ctorch.hub\nnothing\n."), weights_only=False)


def archive(pickled, **records):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, held in {"data.pkl": pickled, "version": b"3\n", **records}.items():
            file.writestr(f"archive/{name}", held)
    return stream.getvalue()


# ---------------------------------------------------------------------- archives


def test_large_records_have_64_bit_sizes(tmp_path):
    """A file of 5 GB that takes a page: it is all holes but for what is written at its end."""

    class Sparse(io.RawIOBase):
        def __init__(self, file):
            self.file = file

        def write(self, content):
            held = memoryview(content)
            if held.nbytes == 2**20 and not any(held[:64]):
                self.file.seek(held.nbytes, os.SEEK_CUR)
                return held.nbytes
            return self.file.write(held)

    with open(tmp_path / "large", "wb") as file:
        writer = Writer(Sparse(file).write, "archive", 64, True)
        writer.record("data/0", 5 * 2**30)
        writer.record("data/1", b"behind")
        writer.close()
    with open(tmp_path / "large", "rb") as file, zipfile.ZipFile(tmp_path / "large") as other:
        reader = Reader(file)
        assert reader.size("data/0") == 5 * 2**30 == other.getinfo("archive/data/0").file_size
        assert reader.read("data/1").tobytes() == b"behind" == other.read("archive/data/1")
        assert reader.place("data/1") % 64 == 0


def test_alignment_is_what_is_asked_for(monkeypatch):
    import torchgrad_jax.utils.serialization.config as config

    monkeypatch.setattr(config.save, "storage_alignment", 4096)
    reader = Reader(io.BytesIO(written([torch.ones(3), torch.ones(5)])))
    assert [reader.place(f"data/{i}") % 4096 for i in range(2)] == [0, 0] and reader.read(".storage_alignment").tobytes() == b"4096"
    monkeypatch.setattr(config.save, "storage_alignment", 0)
    with pytest.raises(ValueError, match="storage_alignment"):
        written(1)


def test_compressed_archives_are_read(tmp_path):
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(written(torch.arange(5)))) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    (tmp_path / "x.pt").write_bytes(stream.getvalue())
    assert read(stream.getvalue()).tolist() == torch.load(tmp_path / "x.pt", mmap=True).tolist() == [0, 1, 2, 3, 4]


def test_records_that_claim_to_be_larger_than_they_can_be_are_refused():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/version", b"3\n")
    content = bytearray(stream.getvalue())
    at = content.rfind(b"PK\1\2") + 24
    content[at : at + 4] = b"\xf0\xff\xff\xff"
    with pytest.raises(RuntimeError, match="decompression failed"):
        Reader(io.BytesIO(bytes(content))).read("version")


# ---------------------------------------------------------------------- mapped files


def test_mapped_files_are_not_copied(tmp_path):
    torch.save({"a": torch.arange(1000.0), "b": torch.ones(3, 3)}, tmp_path / "x.pt")
    found = torch.load(tmp_path / "x.pt", mmap=True)
    for t in found.values():
        array = t._value.array
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)
    before = (tmp_path / "x.pt").read_bytes()
    found["a"].add_(1)
    assert found["a"][:3].tolist() == [1, 2, 3] and found["b"].sum().item() == 9
    assert (tmp_path / "x.pt").read_bytes() == before


LAZY = """
import sys, torchgrad_jax as torch
def resident():
    total = 0
    with open("/proc/self/smaps") as file:
        mine = False
        for line in file:
            if "-" in line.split()[0]: mine = sys.argv[1] in line
            elif mine and line.startswith("Rss:"): total += int(line.split()[1])
    return total
found = torch.load(sys.argv[1], mmap=True)
before = resident()
found["small"].tolist()
found["large"][:4].shape
between = resident()
found["large"].numpy().sum()
print(before, between, resident())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="pages are counted by Linux")
def test_mapped_files_are_read_when_they_are_used(tmp_path):
    torch.save({"small": torch.ones(2), "large": torch.zeros(4 * 2**20)}, tmp_path / "x.pt")
    ended = subprocess.run([sys.executable, "-c", LAZY, str(tmp_path / "x.pt")], capture_output=True, text=True, check=True)
    before, between, after = map(int, ended.stdout.split())
    assert between < 2048 <= 16 * 1024 <= after, (before, between, after)


def test_mapping_is_private():
    with pytest.raises(RuntimeError, match="MAP_PRIVATE only"):
        torch.serialization.set_default_mmap_options(mmap.MAP_SHARED)
    with torch.serialization.set_default_mmap_options(mmap.MAP_PRIVATE):
        assert torch.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE


# ---------------------------------------------------------------------- small things of torch.serialization


def test_versions_of_modules():
    class Module:
        __name__, __version__ = "m", "1.2.3"

    newer = torch.serialization.check_module_version_greater_or_equal
    assert newer(Module, (1, 2, 0)) and not newer(Module, (1, 3))
    Module.__version__ = "a.b"
    with pytest.raises(RuntimeError, match="malformed"):
        newer(Module, (1, 0))
    with pytest.warns(UserWarning, match="malformed"):
        assert newer(Module, (1, 0), error_if_malformed=False)


def test_the_unsafe_names_of_a_file():
    content = written([frozenset([1]), torch.nn.Identity, torch.ones(1)])
    unsafe = torch.serialization.get_unsafe_globals_in_checkpoint
    assert unsafe(io.BytesIO(content)) == ["frozenset", "torch.nn.modules.linear.Identity"]
    with torch.serialization.safe_globals([frozenset, torch.nn.Identity]):
        assert unsafe(io.BytesIO(content)) == []
        assert read(content)[:2] == [frozenset([1]), torch.nn.Identity]


def test_options_by_config(monkeypatch, tmp_path):
    import torchgrad_jax.utils.serialization.config as config

    torch.save(torch.arange(100.0), tmp_path / "x.pt")
    monkeypatch.setattr(config.load, "mmap", True)
    assert not torch.load(tmp_path / "x.pt")._value.array.flags.owndata
    monkeypatch.setattr(config.save, "compute_crc32", False)
    assert torch.serialization.get_crc32_options() is False
