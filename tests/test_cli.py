"""`torchgrad-jax run`: unmodified PyTorch programs, run as `python` would run them."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from forked import Forked

pytestmark = pytest.mark.operators

_SPEC = importlib.util.find_spec("torchgrad_jax")
assert _SPEC is not None and _SPEC.submodule_search_locations
_PACKAGE = Path(_SPEC.submodule_search_locations[0])

_AS_CONSOLE_SCRIPT = "import sys; from torchgrad_jax.cli.main import main; sys.exit(main())"


def _environment(**changes):
    # The package under test, wherever it was imported from; one CPU device keeps the start short.
    path = os.pathsep.join(filter(None, [str(_PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "TORCHGRAD_JAX_TRACEBACK": "", **changes}


def _execute(command, directory, stdin="", **environment):
    env = _environment(**environment)
    return subprocess.run([sys.executable, *command], cwd=directory, env=env, input=stdin, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """See `Forked`; None where processes cannot be forked."""
    if not hasattr(os, "fork"):
        yield None
        return
    forked = Forked(_environment(), tmp_path_factory.mktemp("forked"), "torchgrad_jax.cli.main")
    yield forked
    forked.close()


@pytest.fixture
def launch(tmp_path, forked):
    """Run `torchgrad-jax` with arguments in an empty directory: anew, where its environment is another one."""

    def launch(*arguments, stdin="", **environment):
        if forked is None or environment:
            return _execute(["-m", "torchgrad_jax.cli", *arguments], tmp_path, stdin, **environment)
        return forked(*arguments, folder=tmp_path, stdin=stdin)

    return launch


@pytest.fixture
def run_source(tmp_path, launch):
    """Run a script with the given source; it must succeed. Returns what it prints."""

    def run_source(source, *arguments, **options):
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        result = launch("run", "script.py", *arguments, **options)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run_source


@pytest.fixture
def fail_source(tmp_path, launch):
    """Run a script with the given source; it must exit with 1. Returns its stderr."""

    def fail_source(source, **options):
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        result = launch("run", "script.py", **options)
        assert result.returncode == 1, result
        return result.stderr

    return fail_source


class TestNamesThatExist:
    def test_are_the_objects_of_torchgrad_jax(self, run_source):
        run_source("""
            import sys
            import torch
            import torch.nn.functional as F
            from torch import Tensor, nn
            from torch.autograd import Variable
            import torchgrad_jax

            assert torch is torchgrad_jax
            assert torch.Tensor is Tensor is torchgrad_jax.Tensor
            assert F is nn.functional is torchgrad_jax.nn.functional
            assert sys.modules["torch.nn.functional"] is torchgrad_jax.nn.functional
            assert Variable is torchgrad_jax.autograd.Variable
            """)

    def test_of_what_fills_parameters_are_told_by_their_module(self, run_source):
        run_source("""
            import pickle
            import torch
            from torch.overrides import TorchFunctionMode

            class EmptyInit(TorchFunctionMode):
                def __torch_function__(self, func, types, args=(), kwargs=None):
                    if getattr(func, "__module__", None) == "torch.nn.init":
                        return kwargs["tensor"]
                    return func(*args, **(kwargs or {}))

            torch.manual_seed(0)
            drawn = torch.rand(2)
            torch.manual_seed(0)
            with EmptyInit():
                torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Embedding(2, 3), torch.nn.LSTM(2, 3))
            assert torch.equal(torch.rand(2), drawn)
            assert pickle.loads(pickle.dumps(torch.nn.init.normal_)) is torch.nn.init.normal_
            """)

    def test_resolve_in_modules_that_the_script_imports(self, tmp_path, run_source):
        (tmp_path / "helper.py").write_text("import torch.nn.functional as F\nfrom torch import ones\n")
        run_source("""
            import helper
            import torchgrad_jax

            assert helper.F is torchgrad_jax.nn.functional
            assert helper.ones is torchgrad_jax.ones
            """)

    def test_resolve_in_functions_and_through_importlib(self, run_source):
        run_source("""
            import importlib
            import torchgrad_jax

            def deferred():
                from torch.nn import functional
                return functional

            assert deferred() is importlib.import_module("torch.nn.functional") is torchgrad_jax.nn.functional
            """)

    def test_never_import_an_installed_pytorch(self, tmp_path, run_source):
        # The script's directory comes first on sys.path, so this one would be found before any other.
        (tmp_path / "torch" / "nn").mkdir(parents=True)
        (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('PyTorch was imported')")
        (tmp_path / "torch" / "nn" / "__init__.py").write_text("")
        (tmp_path / "torch" / "foo.py").write_text("raise SystemExit('PyTorch was imported')")
        run_source("""
            import torch, torch.nn, torch.foo
            import torchgrad_jax

            assert torch is torchgrad_jax
            """)

    def test_keep_the_modules_of_torchgrad_jax_importable_under_their_own_names(self, run_source):
        run_source("""
            import importlib, sys
            import torch.nn.functional, torch.foo
            import torchgrad_jax

            assert torchgrad_jax.__spec__.name == "torchgrad_jax" and torchgrad_jax.__name__ == "torch"
            assert importlib.import_module("torchgrad_jax.nn") is sys.modules["torch.nn"]
            """)


def test_modules_that_can_be_called_still_can(tmp_path):
    script = tmp_path / "calls.py"
    script.write_text("import torch\n\n@torch.jit\ndef f(x):\n    return x * 2\n\nprint(f(torch.ones(2)).tolist(), hasattr(torch.jit, 'nothing'))\n")
    done = subprocess.run([sys.executable, "-m", "torchgrad_jax.cli", "run", str(script)], capture_output=True, text=True)
    assert done.stdout == "[2.0, 2.0] False\n", done.stderr


class TestNamesThatAreMissing:
    def test_raise_an_attribute_error_that_says_where_to_look(self, fail_source):
        error = fail_source("import torch\ntorch.no_such_function(1)\n").splitlines()
        assert error[0] == "Traceback (most recent call last):"
        assert error[2] == "    torch.no_such_function(1)"
        assert "folded" not in "".join(error)
        assert error[-1].startswith("AttributeError: torch.no_such_function is not available in torchgrad_jax")
        assert "`torchgrad-jax scan PATH` lists" in error[-1]
        assert 'python -c "import torchgrad_jax; print(dir(torchgrad_jax))"' in error[-1]

    def test_of_a_namespace_point_to_that_namespace(self, fail_source):
        error = fail_source("import torch.nn.functional as F\nF.no_such_function\n").splitlines()[-1]
        assert error.startswith("AttributeError: torch.nn.functional.no_such_function is not available")
        assert "print(dir(torchgrad_jax.nn.functional))" in error

    def test_are_absent_to_hasattr_and_getattr_however_they_were_imported(self, run_source):
        run_source("""
            import torch, torch.foo, torch.foo.bar as bar
            from torch import missing
            from torch.nn import Missing
            from torch.foo import baz

            assert not hasattr(torch, "foo") and not hasattr(torch, "missing")
            assert not hasattr(torch.nn, "Missing") and not hasattr(bar, "baz")
            assert getattr(torch, "missing", 5) == 5
            """)

    @pytest.mark.parametrize(
        "statement",
        [
            "import torch.foo",
            "import torch.foo.bar.baz",
            "import torch.foo.bar as bar",
            "import torch.nn.functional.foo",
            "from torch import foo, bar as baz",
            "from torch.foo import Bar",
            "from torch.foo import *",
            "from torch.foo.bar import Baz, qux",
            "from torch.nn import Foo",
            "from torch.nn.functional import foo",
            "from torch.nn.functional.foo import bar",
            "import importlib; importlib.import_module('torch.foo.bar')",
        ],
    )
    def test_can_be_imported(self, run_source, statement):
        run_source(statement)

    @pytest.mark.parametrize(
        "statement",
        [
            "from torch import foo",
            "import torch.foo as foo",
            "from torch.foo import bar as foo",
            "foo = __import__('importlib').import_module('torch.foo')",
        ],
    )
    @pytest.mark.parametrize("clause", ["except ImportError:", "except (KeyError, ImportError) as error:", "except:"])
    def test_raise_where_the_import_is_prepared_for_it(self, run_source, statement, clause):
        assert run_source(f"try:\n    {statement}\n{clause}\n    foo = None\nprint(foo)") == "None\n"

    def test_raise_no_error_that_a_handler_for_missing_modules_would_not_catch(self, run_source):
        prepared = "try:\n    {}\nexcept ModuleNotFoundError:\n    foo = None\nprint(foo is None)"
        assert run_source(prepared.format("import torch.foo as foo")) == "True\n"
        assert run_source(prepared.format("from torch import foo")) == "False\n"

    def test_raise_in_functions_with_other_blocks_between(self, run_source):
        printed = run_source("""
            import contextlib

            def f():
                try:
                    with contextlib.nullcontext():
                        try:
                            from torch import foo
                        finally:
                            print("finally")
                except ImportError:
                    return "none"
                return foo

            print(f())
            """)
        assert printed == "finally\nnone\n"

    @pytest.mark.parametrize("clause", ["except ValueError:", "except Exception:", "finally:"])
    def test_are_imported_where_other_errors_are_expected(self, run_source, clause):
        assert run_source(f"try:\n    from torch import foo\n{clause}\n    pass\nprint(foo)") == "<torch.foo: not available in torchgrad_jax>\n"

    def test_are_imported_in_a_handler(self, run_source):
        source = "try:\n    raise ImportError\nexcept ImportError:\n    from torch import foo\nprint(foo)"
        assert run_source(source) == "<torch.foo: not available in torchgrad_jax>\n"

    def test_are_imported_by_modules_with_many_names(self, run_source):
        # Beyond 256 names the import instruction carries an extended argument.
        names = ", ".join(f"missing_{i}" for i in range(300))
        run_source(f"from torch import {names}\nassert missing_299 is not missing_0")

    @pytest.mark.parametrize(
        "use",
        [
            "Foo(1)",
            "Foo.bar",
            "Foo.bar()",
            "Foo[int]",
            "class Derived(Foo): pass",
            "with Foo: pass",
            "1 < Foo",
            "bool(Foo)",
            "for x in Foo: pass",
            "Foo + 1",
            "@Foo\ndef f(): pass",
            "@Foo.bar\ndef f(): pass",
        ],
    )
    def test_fail_when_used(self, run_source, use):
        message = run_source(f"""
from torch.nn import Foo
try:
    exec({use!r})
except AttributeError as error:
    print(error)
""")
        assert message.startswith("torch.nn.Foo")
        assert " is not available in torchgrad_jax; " in message
        assert "print(dir(torchgrad_jax.nn))" in message

    def test_have_no_instances(self, run_source):
        """Programs ask whether they were given one of a kind that cannot exist here, and go on."""
        run_source("""
            from torch.nn import Foo
            assert not isinstance(1, Foo) and isinstance(1, (int, Foo)) and not issubclass(int, (str, Foo))
            """)

    def test_of_a_missing_module_are_named_in_full(self, run_source):
        message = run_source("""
            import torch.foo.bar as bar
            try:
                bar.is_available()
            except AttributeError as error:
                print(error)
            """)
        assert message.startswith("torch.foo.bar.is_available is not available in torchgrad_jax; ")
        assert "print(dir(torchgrad_jax))" in message

    def test_may_appear_in_annotations_and_as_keys(self, run_source):
        run_source("""
            from typing import Optional
            from torch import Foo, Tensor

            def f(x: Foo, y: Foo | None, z: Tensor | Foo, t: Optional[Foo]) -> list[Foo]: ...

            assert {Foo: 1, int: 2}[Foo] == 1
            """)


class TestTheProgramSees:
    def test_its_arguments_name_file_and_directory(self, tmp_path, launch):
        directory = tmp_path / "programs"
        directory.mkdir()
        script = directory / "script.py"
        script.write_text("import sys; print([__name__, __file__, sys.argv, sys.path[0], __package__, __spec__])")
        output = launch("run", "programs/script.py", "-m", "--version", "--", "x").stdout
        argv = ["programs/script.py", "-m", "--version", "--", "x"]
        assert output == f"{['__main__', str(script), argv, str(directory), None, None]}\n"

    def test_itself_as_the_main_module(self, run_source):
        run_source("""
            import pickle, sys

            class Point:
                pass

            assert sys.modules["__main__"].Point is Point
            assert type(pickle.loads(pickle.dumps(Point()))) is Point
            """)

    def test_its_globals_until_exit(self, run_source):
        source = "import atexit\nvalue = 3\natexit.register(lambda: print(value, __import__('__main__').value))"
        assert run_source(source) == "3 3\n"

    def test_no_future_imports_but_its_own(self, run_source):
        run_source("def f(x: 1 + 1): ...\nassert f.__annotations__ == {'x': 2}")

    def test_its_standard_input(self, run_source):
        assert run_source("print(input())", stdin="hello\n") == "hello\n"

    def test_its_source_encoding(self, tmp_path, launch):
        (tmp_path / "script.py").write_bytes("# coding: latin-1\nprint(ascii('é'))".encode("latin-1"))
        assert launch("run", "script.py").stdout == "'\\xe9'\n"


class TestPrograms:
    def test_can_come_from_standard_input(self, launch):
        result = launch("run", "-", "a", stdin="import sys, torch; print(sys.argv, sys.path[0] == '', torch.__spec__.name)")
        assert result.stdout == "['-', 'a'] True torchgrad_jax\n"

    def test_can_be_modules(self, tmp_path, launch):
        (tmp_path / "pkg").mkdir()
        (tmp_path / "pkg" / "__init__.py").write_text("")
        (tmp_path / "pkg" / "tool.py").write_text(
            "import sys, torch\nfrom . import __name__ as name\nprint(__name__, name, sys.argv[1:], torch.__spec__.name)"
        )
        result = launch("run", "-m", "pkg.tool", "-x", "y")
        assert result.stdout == "__main__ pkg ['-x', 'y'] torchgrad_jax\n"

    def test_behave_the_same_under_the_console_script(self, tmp_path):
        (tmp_path / "script.py").write_text("import sys, torch\nprint(sys.argv, torch.__spec__.name)\n1 / 0")
        as_module = _execute(["-m", "torchgrad_jax.cli", "run", "script.py", "a"], tmp_path)
        as_script = _execute(["-c", _AS_CONSOLE_SCRIPT, "run", "script.py", "a"], tmp_path)
        assert as_script.stdout == "['script.py', 'a'] torchgrad_jax\n"
        assert (as_module.stdout, as_module.stderr, as_module.returncode) == (
            as_script.stdout,
            as_script.stderr,
            as_script.returncode,
        )


_ENDINGS = {
    "end of the script": "pass",
    "exit without a status": "import sys; sys.exit()",
    "exit with a status": "import sys; sys.exit(3)",
    "exit with a text": "import sys; sys.exit('went wrong')",
    "exception": "def f():\n    raise ValueError('x')\nf()",
    "exception with a note": "e = ValueError('x')\ne.add_note('a note')\nraise e",
    "chained exceptions": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "exception in a handler": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    undefined",
    "suppressed context": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k') from None",
    "exception group": "raise ExceptionGroup('several', [ValueError('x'), KeyError('k')])",
    "misspelt name": "value = 1\nvalu",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "syntax error": "x = (\n",
    "syntax error in an imported module": "import broken",
    "missing module": "import no_such_module",
}


@pytest.mark.parametrize("ending", _ENDINGS)
def test_exit_status_and_messages_are_those_of_python(tmp_path, launch, ending):
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "script.py").write_text(_ENDINGS[ending])
    expected = _execute(["script.py"], tmp_path)
    result = launch("run", "script.py")
    assert result.stderr == expected.stderr
    assert result.returncode == expected.returncode


class TestTracebacks:
    _MISMATCH = "import torch\n\ndef multiply(a, b):\n    return a @ b\n\nmultiply(torch.ones(2), torch.ones(3))\n"
    _HOOK = """
        import torch

        def hook(grad):
            raise ValueError("from the hook")

        x = torch.ones(2, requires_grad=True)
        x.register_hook(hook)
        x.sum().backward()
        """

    def _files(self, error):
        return [line.split('"')[1] for line in error.splitlines() if line.startswith('  File "')]

    def test_show_the_program_and_fold_torchgrad_jax_into_one_line(self, tmp_path, fail_source):
        error = fail_source(self._MISMATCH)
        assert set(self._files(error)) == {str(tmp_path / "script.py")}
        assert error.splitlines()[-2].startswith("  [")
        assert "torchgrad_jax" in error.splitlines()[-2]
        assert error.splitlines()[-2].endswith(" folded; TORCHGRAD_JAX_TRACEBACK=full shows them]")
        assert error.splitlines()[-1].startswith("RuntimeError: ")

    def test_show_the_programs_own_callbacks_after_the_folded_frames(self, tmp_path, fail_source):
        error = fail_source(self._HOOK)
        assert self._files(error) == [str(tmp_path / "script.py")] * 2
        assert error.index("x.sum().backward()") < error.index(" folded; ") < error.index("in hook")
        assert error.endswith("ValueError: from the hook\n")

    def test_fold_every_exception_of_a_chain(self, tmp_path, fail_source):
        source = (
            self._MISMATCH.replace("multiply(torch", "try:\n    multiply(torch")
            + "except RuntimeError as error:\n    raise ValueError('outer') from error\n"
        )
        error = fail_source(source)
        assert set(self._files(error)) == {str(tmp_path / "script.py")}
        assert error.count(" folded; ") == 1
        assert "The above exception was the direct cause of the following exception:" in error
        assert error.endswith("ValueError: outer\n")

    def test_show_every_frame_when_asked_for_full_ones(self, fail_source):
        error = fail_source(self._MISMATCH, TORCHGRAD_JAX_TRACEBACK="full")
        assert any(Path(file).is_relative_to(_PACKAGE) for file in self._files(error))
        assert "folded" not in error

    def test_of_modules_show_no_frames_of_runpy(self, tmp_path, launch):
        (tmp_path / "tool.py").write_text("import torch\n1 / 0\n")
        result = launch("run", "-m", "tool")
        assert self._files(result.stderr) == [str(tmp_path / "tool.py")]
        assert "folded" not in result.stderr
        assert result.returncode == 1

    def test_leave_room_for_a_hook_of_the_program(self, fail_source):
        error = fail_source("import sys\nsys.excepthook = lambda *e: print('mine', e[0].__name__, file=sys.stderr)\n1 / 0")
        assert error == "mine ZeroDivisionError\n"


class TestTheCommand:
    def test_prints_its_version(self, launch):
        result = launch("--version")
        assert result.returncode == 0
        name, version = result.stdout.split()
        assert name == "torchgrad_jax"
        try:
            assert version == importlib.metadata.version("torchgrad_jax")
        except importlib.metadata.PackageNotFoundError:
            assert version

    @pytest.mark.parametrize("arguments", [("--help",), ("run", "--help")])
    def test_prints_its_usage(self, launch, arguments):
        result = launch(*arguments)
        assert result.returncode == 0
        assert "torchgrad-jax run [-i] [--explain] [script.py | -c command | -m module | -] [arguments ...]" in result.stdout

    @pytest.mark.parametrize("arguments", [(), ("walk",), ("--walk",), ("run", "-c"), ("run", "-m"), ("run", "-z")])
    def test_rejects_unknown_and_incomplete_commands(self, launch, arguments):
        result = launch(*arguments)
        assert result.returncode == 2
        assert result.stderr.startswith("usage: torchgrad-jax")

    def test_rejects_a_script_that_does_not_exist(self, tmp_path, launch):
        result = launch("run", "none.py")
        assert result.returncode == 2
        message = f"can't open file '{tmp_path / 'none.py'}': [Errno 2] No such file or directory"
        assert result.stderr == f"torchgrad-jax: {message}\n"

    def test_rejects_a_module_that_does_not_exist(self, launch):
        result = launch("run", "-m", "no_such_module")
        assert result.returncode == 1
        assert "No module named no_such_module" in result.stderr
        assert "Traceback" not in result.stderr
