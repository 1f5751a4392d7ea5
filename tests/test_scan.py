"""`torchgrad-jax scan`: which torch names a code base uses and which of them are here, told without importing it."""

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

import torchgrad_jax
from torchgrad_jax.cli import main as cli
from torchgrad_jax.cli import scan as command
from torchgrad_jax.cli.scanning import differences, names
from torchgrad_jax.cli.scanning.report import DIFFERS, HAVE, MISSING, OPTIONAL

pytestmark = pytest.mark.operators

# Names that nobody will give to PyTorch, in places where it has other ones.
ABSENT = "torch.no_such_name"


@pytest.fixture
def scanned(tmp_path):
    """Scan a source; returns {name: (verdict, lines)}."""

    def scanned(source, name="program.py"):
        (tmp_path / name).write_text(textwrap.dedent(source))
        report = command.scan(str(tmp_path))
        assert not report.skipped
        return {n.name: (n.verdict, [place.line for place in n.places]) for n in report.names}

    return scanned


class TestNames:
    def test_are_followed_through_every_way_of_importing_them(self, scanned):
        assert scanned("""\
            import torch
            import torch as th, torch.nn as nn
            import torch.nn.functional as F
            from torch import sin as sinus, nn as layers
            from torch.autograd import Function, grad
            import torch.autograd.functional
            torch.cos, th.exp, nn.Linear, F.relu
            sinus, layers.Module, grad
            class Square(Function): pass
            torch.autograd.functional.vjp
            """) == {
            "torch.cos": (HAVE, [7]), "torch.exp": (HAVE, [7]), "torch.nn.Linear": (HAVE, [7]), "torch.nn.functional.relu": (HAVE, [7]),
            "torch.sin": (HAVE, [8]), "torch.nn.Module": (HAVE, [8]), "torch.autograd.grad": (HAVE, [8]),
            "torch.autograd.Function": (HAVE, [9]), "torch.autograd.functional.vjp": (HAVE, [10]),
        }  # fmt: skip

    def test_that_are_missing_are_told(self, scanned):
        found = scanned("""\
            import torch
            from torch.nowhere.at_all import Thing, other
            import torch.absent as absent
            torch.no_such_name(1)
            torch.nn.functional.no_such_function
            Thing.make.more
            absent.Class.method
            """)
        assert found == {
            "torch.no_such_name": (MISSING, [4]),
            "torch.nn.functional.no_such_function": (MISSING, [5]),
            "torch.nowhere.at_all.Thing": (MISSING, [6]),
            "torch.nowhere.at_all.other": (MISSING, [2]),
            "torch.absent.Class": (MISSING, [7]),
        }

    def test_end_where_torch_s_objects_end(self, scanned):
        assert scanned("import torch\ntorch.float32.itemsize\ntorch.sin.__name__\n") == {"torch.float32": (HAVE, [2]), "torch.sin": (HAVE, [3])}

    def test_bound_to_something_else_are_not_torch_s(self, scanned):
        assert scanned("""\
            import torch
            def f(torch, nn):
                return torch.no_such_name, nn.no_such_name
            def g():
                torch = object()
                return torch.no_such_name
            [torch.no_such_name for torch in range(3)]
            lambda torch: torch.no_such_name
            class C:
                torch = None
                def f(self): return torch.sin
            """) == {"torch.sin": (HAVE, [11])}

    def test_given_to_other_names_are_followed(self, scanned):
        assert scanned("""\
            import torch
            F = torch.nn.functional
            act = F.relu if __debug__ else F.gelu
            def f():
                sin = torch.sin
                return sin(F.no_such_function)
            """) == {
            "torch.nn.functional.relu": (HAVE, [3]),
            "torch.nn.functional.gelu": (HAVE, [3]),
            "torch.sin": (HAVE, [5, 6]),
            "torch.nn.functional.no_such_function": (MISSING, [6]),
        }

    def test_that_the_program_gives_to_torch_are_its_own(self, scanned):
        assert scanned("import torch\ntorch.my_name = lambda x: x\ntorch.my_name(1)\n") == {}

    def test_of_what_is_assigned_to_must_be_there(self, scanned):
        assert scanned("import torch\ntorch._absent.config.verbose = True\ntorch.nn.functional.mine = 1\n") == {
            "torch._absent.config": (MISSING, [2])
        }

    def test_of_star_imports(self, scanned):
        found = scanned("from torch.nn.functional import *\nrelu(x)\nlen(y)\ndef own(): pass\nown()\n")
        assert found["torch.nn.functional.relu"] == (HAVE, [2])
        assert not any(name.endswith((".len", ".own")) for name in found)

    def test_of_modules_that_a_call_gives(self, scanned):
        source = "import importlib, pytest\nt = pytest.importorskip('torch')\nt.sin\nimportlib.import_module('torch.nn').no_such_class\n"
        assert scanned(source) == {"torch.sin": (HAVE, [3]), "torch.nn.no_such_class": (MISSING, [4])}

    def test_asked_for_by_getattr(self, tmp_path):
        (tmp_path / "a.py").write_text('import torch\ngetattr(torch, "sin")\ngetattr(torch, "no_such", None)\ngetattr(torch, input())\n')
        report = command.scan(str(tmp_path))
        assert [(n.name, n.verdict) for n in report.names] == [("torch.no_such", OPTIONAL), ("torch.sin", HAVE)]
        assert [str(place) for place in report.dynamic] == ["a.py:4"]


class TestMembers:
    def test_of_tensors_are_known_where_the_source_tells_what_a_tensor_is(self, scanned):
        found = scanned("""\
            import torch
            from torch import Tensor
            x = torch.randn(3)
            (x + 1).sin().no_member_of_torch_s
            x.index
            def f(a: Tensor, b: "torch.Tensor | None" = None, *, c):
                a.cos(); b.exp(); c.index
            x[0].tan().is_vulkan
            """)
        assert found["torch.Tensor.sin"] == (HAVE, [4])
        assert found["torch.Tensor.cos"] == found["torch.Tensor.exp"] == (HAVE, [7])
        assert found["torch.Tensor.is_vulkan"] == (HAVE if hasattr(torchgrad_jax.Tensor, "is_vulkan") else MISSING, [8])
        assert not any("no_member" in name for name in found)

    def test_of_what_may_be_anything_are_torch_s_only_where_the_name_tells(self, scanned):
        found = scanned(
            "import torch\ndef f(a):\n    a.requires_grad_().unsqueeze(0).detach_()\n    a.values(); a.index; a.mean(); a.items(); a.mine\n"
        )
        assert set(found) == {"torch.Tensor.unsqueeze", "torch.Tensor.detach_"}  # requires_grad_ is a module's, too

    def test_that_the_code_base_defines_tell_nothing(self, scanned):
        assert scanned("import torch\nclass A:\n    def unsqueeze(self): pass\ndef f(a): a.unsqueeze()\n") == {}

    def test_of_another_library_s_objects_are_not_torch_s(self, scanned):
        assert scanned("import numpy as np\ndef f(a): return a.unsqueeze(0), np.sin(a)\n") == {}
        assert scanned("import math, torch\nfrom lib import thing\nmath.sqrt(2); math.pi.sqrt; thing.unsqueeze(0)\ndef f(): math.frac(1)\n") == {}

    def test_of_modules_are_inherited(self, scanned):
        found = scanned("""\
            import torch.nn as nn
            class Base(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(2, 2)
                    self.w = nn.Parameter(None)
                    self.register_buffer("b", None)
                def helper(self): pass
            class Net(Base):
                def forward(self, x):
                    self.helper(); self.b; self.lin.weight; self.w.sin()
                    self.named_parameters(); self.training; self.modules
                    return self.lin.eval()
            Net().state_dict()
            """)
        assert found == {
            "torch.nn.Module": (HAVE, [2]), "torch.nn.Linear": (HAVE, [5]), "torch.nn.Parameter": (HAVE, [6]),
            "torch.nn.Module.register_buffer": (HAVE, [7]), "torch.Tensor.sin": (HAVE, [11]),
            "torch.nn.Module.named_parameters": (HAVE, [12]), "torch.nn.Module.training": (HAVE, [12]), "torch.nn.Module.modules": (HAVE, [12]),
            "torch.nn.Linear.eval": (HAVE, [13]), "torch.nn.Module.state_dict": (HAVE, [14]),
        }  # fmt: skip

    def test_of_optimizers_are_what_their_instances_have(self, scanned):
        found = scanned("""\
            import torch
            adam = torch.optim.Adam([])
            adam.param_groups, adam.defaults
            class Own(torch.optim.Optimizer):
                def step(self): return self.state, self.param_groups
            """)
        assert all(verdict == HAVE for verdict, _ in found.values()) and "torch.optim.Adam.param_groups" in found

    def test_that_need_a_package_which_is_not_installed_are_there(self, scanned, monkeypatch):
        monkeypatch.setitem(sys.modules, "tensorboardX", None)
        monkeypatch.delitem(sys.modules, "torchgrad_jax.utils.tensorboard", raising=False)
        names.look_up.cache_clear()
        found = scanned("from torch.utils.tensorboard import SummaryWriter\nSummaryWriter()\n")
        names.look_up.cache_clear()
        assert found == {"torch.utils.tensorboard": (HAVE, [2])}

    def test_of_classes_in_other_files_are_inherited(self, tmp_path):
        (tmp_path / "base.py").write_text("from torch import nn\nclass Layer(nn.Module): pass\n")
        (tmp_path / "net.py").write_text("from base import Layer\nclass Net(Layer):\n    def f(self): return self.parameters()\n")
        (tmp_path / "main.py").write_text("from net import Net\nNet().eval()\n")
        found = {n.name: str(n.places[0]) for n in command.scan(str(tmp_path)).names}
        assert found["torch.nn.Module.parameters"] == "net.py:3" and found["torch.nn.Module.eval"] == "main.py:2"

    def test_of_what_functions_are_given(self, scanned):
        found = scanned("""\
            import torch
            class Square(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    ctx.save_for_backward(x)
                    ctx.mine = 1
                    return x * x
                @staticmethod
                def backward(ctx, g):
                    x, = ctx.saved_tensors
                    return 2 * x * g * ctx.mine
            Square.apply(torch.ones(2)).backward()
            """)
        space = "torch.autograd.function.FunctionCtx"
        assert found[f"{space}.save_for_backward"] == (HAVE, [5])
        assert found[f"{space}.saved_tensors"] == (HAVE, [10])
        assert found["torch.autograd.Function.apply"] == (HAVE, [12])
        assert f"{space}.mine" not in found


class TestWhatAProgramCanDoWithout:
    @pytest.mark.parametrize(
        "source",
        [
            "try:\n    from torch.absent import thing\nexcept ImportError:\n    thing = None\nif thing: thing()",
            "try:\n    torch.no_such_name\nexcept (AttributeError, TypeError):\n    pass",
            "try:\n    import torch.absent as a\nexcept:\n    a = None",
            "if hasattr(torch, 'no_such_name'):\n    torch.no_such_name(torch.no_other_name)",
            "torch.no_such_name if hasattr(torch, 'no_such_name') else 0",
            "hasattr(torch, 'no_such_name') and torch.no_such_name()",
            "if not hasattr(torch, 'no_such_name'):\n    pass\nelse:\n    torch.no_such_name()",
            "HAS = hasattr(torch, 'no_such_name')\ndef f():\n    if HAS: torch.no_such_name()",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.absent import Thing",
            "def f(x: 'torch.NoSuchClass'): pass",
            "def f():\n    x: torch.NoSuchClass = 1",
            "if torch.__version__ >= '1.8':\n    torch.no_such_name()",
            "V = tuple(map(int, torch.__version__.split('.')[:2]))\nif V < (1, 8):\n    torch.no_such_name()",
        ],
    )
    def test_is_optional(self, scanned, source):
        verdicts = {verdict for name, (verdict, _) in scanned(f"import torch\n{source}\n").items() if "absent" in name or "no_" in name.lower()}
        assert verdicts <= {OPTIONAL}

    @pytest.mark.parametrize(
        "source",
        [
            "try:\n    torch.no_such_name()\nexcept ValueError:\n    pass",
            "try:\n    torch.no_such_name()\nexcept Exception:\n    pass",
            "try:\n    from torch.absent import thing\nexcept ImportError:\n    torch.no_such_name()",
            "try:\n    torch.sin\nexcept AttributeError:\n    pass\nelse:\n    torch.no_such_name()",
            "if not hasattr(torch, 'absent'):\n    torch.no_such_name()",
            "if hasattr(torch, 'sin'):\n    torch.no_such_name()",
            "if torch.cuda.is_available():\n    torch.no_such_name()",
            "if hasattr(torch, 'no_such_name'):\n    torch.no_such_name()\ntorch.no_such_name()",
            "def f(x: torch.no_such_name): pass",
        ],
    )
    def test_is_no_more_than_that(self, scanned, source):
        assert scanned(f"import torch\n{source}\n")[ABSENT][0] == MISSING

    def test_is_a_handler_that_is_not_needed(self, scanned):
        assert scanned("import torch\ntry:\n    torch.sin\nexcept AttributeError:\n    torch.no_such_name()\n")[ABSENT][0] == OPTIONAL

    def test_is_an_annotation_that_is_not_evaluated(self, scanned):
        assert scanned("from __future__ import annotations\nimport torch\ndef f(x: torch.no_such_name): pass\n")[ABSENT][0] == OPTIONAL


class TestFiles:
    def test_that_cannot_be_read_are_told_and_left_out(self, tmp_path):
        (tmp_path / "good.py").write_text("import torch\ntorch.sin\n")
        (tmp_path / "two.py").write_text("import torch\nprint 'hello'\n")
        (tmp_path / "broken.py").write_text("def (:\n")
        (tmp_path / "binary.py").write_bytes(b"\x00\x01\x02")
        (tmp_path / "declared.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\nimport torch\ntorch.cos\n")
        (tmp_path / "deep.py").write_text("x = " + "(" * 3000 + ")" * 3000)
        (tmp_path / "not.ipynb").write_text("[]")
        (tmp_path / "data.txt").write_text("import torch")
        os.mkfifo(tmp_path / "pipe.py")
        report = command.scan(str(tmp_path))
        skipped = dict(report.skipped)
        assert set(skipped) == {"two.py", "broken.py", "binary.py", "deep.py", "not.ipynb", "pipe.py"}
        assert "Python 2" in skipped["two.py"] and "line 2" in skipped["two.py"]
        assert skipped["binary.py"] == "binary" and skipped["pipe.py"] == "not a regular file"
        assert report.files == ["declared.py", "good.py"]
        assert [n.name for n in report.names] == ["torch.cos", "torch.sin"]

    def test_beyond_links_and_in_folders_of_other_people_s_are_not_read(self, tmp_path):
        outside, tree = tmp_path / "outside", tmp_path / "tree"
        for folder in (outside, tree / ".git", tree / ".venv", tree / "env", tree / "node_modules", tree / "package"):
            folder.mkdir(parents=True)
            (folder / "file.py").write_text("import torch\ntorch.sin\n")
        (tree / "env" / "pyvenv.cfg").write_text("")
        (tree / "linked").symlink_to(outside)
        (tree / "link.py").symlink_to(outside / "file.py")
        (tree / "circle").symlink_to(tree)
        report = command.scan(str(tree))
        assert report.files == [os.path.join("package", "file.py")]
        assert [tuple(s) for s in report.skipped] == [("link.py", "a link")]

    def test_are_not_run(self, tmp_path):
        (tmp_path / "a.py").write_text(f"import torch\nopen({str(tmp_path / 'trace')!r}, 'w')\nraise SystemExit(3)\n")
        assert command.scan(str(tmp_path)).files == ["a.py"]
        assert not (tmp_path / "trace").exists()

    def test_may_be_notebooks(self, tmp_path):
        def cell(source, kind="code"):
            return {"cell_type": kind, "source": source.splitlines(keepends=True)}

        cells = [
            cell("# about torch.sin", "markdown"),
            cell("%matplotlib inline\nimport torch\n!pip install torch\nfiles = !ls\n"),
            cell("%%bash\necho $HOME\n"),
            cell("print 'two'\n"),
            cell("%%time\n\ntorch.cos(x)\ntorch.sin?\ntorch.no_such_name"),
        ]
        (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
        report = command.scan(str(tmp_path))
        assert [(n.name, [str(p) for p in n.places]) for n in report.names] == [
            ("torch.cos", ["a.ipynb[4]:3"]),
            ("torch.no_such_name", ["a.ipynb[4]:5"]),
        ]
        assert [s.file for s in report.skipped] == ["a.ipynb[3]"]

    def test_may_be_one_whatever_its_name(self, tmp_path):
        (tmp_path / "script").write_text("import torch\ntorch.sin\n")
        assert [n.name for n in command.scan(str(tmp_path / "script")).names] == ["torch.sin"]


class TestCommand:
    @pytest.fixture
    def base(self, tmp_path):
        (tmp_path / "a.py").write_text("import torch\ntorch.sin(torch.cos(torch.from_numpy(1)))\n")
        (tmp_path / "b.py").write_text("import torch\ntorch.no_such_name()\ntorch.sin\n")
        return tmp_path

    def test_says_what_is_here_and_what_is_missing(self, base, capsys):
        assert cli.main(["scan", str(base)]) == 1
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == "here: 2"
        assert printed[2].split() == ["torch.sin", "2", "a.py:2,", "b.py:3"]
        assert any(line.split()[:3] == ["torch.from_numpy", "1", "a.py:2"] for line in printed)
        assert any("copy" in line for line in printed)
        assert printed[-1] == "75.0 % of 4 torch names would run (1 missing); files that need nothing that is missing: 1 of 2."

    def test_gives_json(self, base, capsys):
        assert cli.main(["scan", "--json", str(base)]) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["summary"] == {
            "files": 2, "files_without_missing": 1, "names": 4, "have": 2, "differs": 1, "missing": 1, "optional": 0, "uses": 5, "percent": 75.0,
        }  # fmt: skip
        missing = next(n for n in found["names"] if n["verdict"] == MISSING)
        assert missing["places"] == [{"file": "b.py", "line": 2, "cell": None}] and missing["count"] == 1

    @pytest.mark.parametrize(("percent", "status"), [("75", 0), ("75.1", 1), ("0", 0), ("100", 1)])
    def test_fails_under_a_percentage(self, base, capsys, percent, status):
        assert cli.main(["scan", "--fail-under", percent, str(base)]) == status

    def test_succeeds_where_nothing_is_missing(self, base, capsys):
        assert cli.main(["scan", str(base / "a.py")]) == 0

    @pytest.mark.parametrize("arguments", [["nowhere"], [], ["--fail-under", "101", "."], ["--fail-under", "x", "."], ["--what", "."]])
    def test_exits_with_2_where_it_cannot_be_done(self, base, capsys, monkeypatch, arguments):
        monkeypatch.chdir(base)
        with pytest.raises(SystemExit) as exit:
            cli.main(["scan", *arguments])
        assert exit.value.code == 2

    def test_exits_with_2_where_there_is_nothing_to_read(self, tmp_path, capsys):
        assert cli.main(["scan", str(tmp_path)]) == 2

    def test_says_so_where_torch_is_not_used(self, tmp_path, capsys):
        (tmp_path / "a.py").write_text("x = 1\n")
        assert cli.main(["scan", str(tmp_path)]) == 0
        assert capsys.readouterr().out == "No name of torch's is needed in 1 file.\n"


class TestDifferences:
    def test_are_read_from_the_page(self):
        found = differences.by_name()
        for name in ("torch.from_numpy", "torch.Tensor.numpy", "torch.Tensor.data_ptr", "torch.Tensor.stride", "torch.empty", "torch.Tensor.data"):
            assert found[name][0].here
        assert all(names.look_up(name).found for name in found)
        assert "torch.max" not in found  # which a row about `clamp` mentions

    def test_verdict(self, scanned):
        assert scanned("import torch\ntorch.empty(3).data_ptr()\n") == {"torch.empty": (DIFFERS, [2]), "torch.Tensor.data_ptr": (DIFFERS, [2])}

    def test_page_is_part_of_the_package(self):
        root = Path(torchgrad_jax.__file__).parents[1]
        assert '"docs/differences.md" = "torchgrad_jax/cli/scanning/differences.md"' in (root / "pyproject.toml").read_text()


class TestTables:
    def test_members_are_pytorch_s(self):
        torch = pytest.importorskip("torch")
        for kind, known in names.members().items():
            cls = torch
            for part in kind.split(".")[1:]:
                cls = getattr(cls, part)
            lacking = {name for name in vars(cls) if not name.startswith("_")} - known - set(dir(object))
            assert lacking <= {"apply", "forward", "backward", "jvp", "vjp", "vmap", "setup_context", "generate_vmap_rule", "compiled_autograd"}, kind

    def test_what_is_said_to_give_a_tensor_does(self):
        x = torchgrad_jax.rand(3, 3)
        for name in ("sin", "matmul", "add", "clone", "exp", "softmax", "reshape", "transpose"):
            assert names.gives_tensor(f"torch.Tensor.{name}"), name
        for name in ("max", "sort", "topk", "split", "unbind", "item", "tolist", "size", "numpy"):
            assert not names.gives_tensor(f"torch.Tensor.{name}"), name
        assert isinstance(x.sin(), torchgrad_jax.Tensor)

    def test_what_has_no_stand_in_is_told_by_its_class(self):
        assert names.has_member("torch.autograd.function.FunctionCtx", "saved_tensors") is True
        assert names.has_member("torch.nn.Linear", "parameters") is True
        assert names.has_member("torch.nn.Linear", "something") is None
        assert names.has_member("torch.optim.Optimizer", "param_groups") is True
