"""What scripts ask and set before they begin: torch.cuda, torch.backends, threads, precision, autocast, compile, jit."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import warnings

import pytest

import torchgrad_jax as tj
from torchgrad_jax.runtime.device import gpus

pytestmark = pytest.mark.operators

without_gpu = pytest.mark.skipif(bool(gpus()), reason="about a machine without a GPU")

# Expression -> what a build of PyTorch without CUDA answers.
ANSWERS = {
    "m.cuda.is_available()": False,
    "m.cuda.device_count()": 0,
    "m.cuda.is_initialized()": False,
    "m.cuda.is_bf16_supported()": False,
    "m.cuda.empty_cache()": None,
    "m.cuda.manual_seed(1)": None,
    "m.cuda.manual_seed_all(1)": None,
    "m.cuda.memory_allocated()": 0,
    "m.cuda.max_memory_allocated()": 0,
    "m.cuda.memory_reserved()": 0,
    "m.cuda.set_device(-1)": None,
    "m.cuda.get_rng_state_all()": [],
    "m.cuda.get_arch_list()": [],
    "m.backends.cudnn.enabled": True,
    "m.backends.cudnn.benchmark": False,
    "m.backends.cudnn.deterministic": False,
    "m.backends.cudnn.is_available()": False,
    "m.backends.cudnn.version()": None,
    "m.backends.cuda.is_built()": False,
    "m.backends.cuda.matmul.allow_tf32": False,
    "m.backends.mps.is_available()": False,
    "m.backends.mps.is_built()": False,
    "m.backends.opt_einsum.is_available()": True,
    "m.mps.is_available()": False,
    "m.xpu.is_available()": False,
    "m.xpu.device_count()": 0,
    "m.accelerator.is_available()": False,
    "m.accelerator.current_accelerator()": None,
    "m.cpu.is_available()": True,
    "m.cpu.device_count()": 1,
    "m.cpu.current_device()": "cpu",
    "m.version.cuda": None,
    "m.version.hip": None,
    "m.get_float32_matmul_precision()": "highest",
    "m.is_autocast_enabled()": False,
    "m.is_autocast_enabled('cpu')": False,
    "m.is_autocast_cache_enabled()": True,
    "str(m.get_autocast_dtype('cpu'))": "torch.bfloat16",
    "str(m.get_autocast_dtype('cuda'))": "torch.float16",
    "m.compiler.is_compiling()": False,
    "m.compiler.is_dynamo_compiling()": False,
    "m.jit.is_scripting()": False,
    "m.jit.is_tracing()": False,
    "m.amp.GradScaler('cuda', enabled=False).get_scale()": 1.0,
    "m.amp.GradScaler('cuda', enabled=False).is_enabled()": False,
    "str(m.device('cuda')), repr(m.device('cuda')), m.device('cuda').index": ("cuda", "device(type='cuda')", None),
    "str(m.device('cuda:1')), m.device('cuda', 1) == m.device('cuda:1')": ("cuda:1", True),
    "m.device('cuda') == m.device('cuda:0')": False,
    "repr(m.device('mps')), repr(m.device('meta'))": ("device(type='mps')", "device(type='meta')"),
    "str(m.zeros(2, device='cpu:0').device), str(m.zeros(2).to('cpu:0').device)": ("cpu", "cpu"),
    "m.are_deterministic_algorithms_enabled()": False,
    "m.is_deterministic_algorithms_warn_only_enabled()": False,
}


@without_gpu
@pytest.mark.parametrize("expression", ANSWERS)
def test_the_answers_are_those_of_a_build_without_cuda(expression):
    assert eval(expression, {"m": tj}) == ANSWERS[expression]


@without_gpu
@pytest.mark.parametrize("expression", ANSWERS)
def test_pytorch_gives_the_same_answers(expression):
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this PyTorch was built with CUDA")
    assert eval(expression, {"m": torch}) == ANSWERS[expression]


@without_gpu
@pytest.mark.parametrize(
    "call",
    ["m.zeros(2, device='cuda')", "m.zeros(2).to('cuda')", "m.zeros(2).cuda()", "m.nn.Linear(2, 2).cuda()", "m.tensor(1.0, device='cuda:1')",
     "m.cuda.synchronize()", "m.cuda.current_device()", "m.cuda.get_device_name(0)", "m.cuda.get_device_properties(0)"],
)  # fmt: skip
def test_a_gpu_that_is_not_there_is_refused_as_pytorch_does_and_what_is_there_is_named(call):
    with pytest.raises(AssertionError) as found:
        eval(call, {"m": tj})
    first, second = str(found.value).split("\n")
    assert first == "Torch not compiled with CUDA enabled"
    assert "its devices are:" in second and "Cpu" in second.title()


@pytest.mark.parametrize("call", ["m.ones(1).cuda('cpu')", "m.nn.Linear(1, 1).cuda(m.device('cpu'))", "m.ones(1).cuda('meta')"])
def test_cuda_moves_to_no_other_kind_of_device(call):
    torch = pytest.importorskip("torch")
    for m in (tj, torch):
        with pytest.raises(RuntimeError, match="^Invalid device, must be cuda device"):
            eval(call, {"m": m})


@without_gpu
@pytest.mark.parametrize(
    "call",
    ["m.cuda.CUDAGraph()", "m.cuda.graph(None)", "m.cuda.graph_pool_handle()", "m.cuda.make_graphed_callables(m.nn.Linear(1, 1), (m.ones(1, 1),))",
     "m.cuda.Stream()"],
)  # fmt: skip
def test_streams_and_graphs_of_a_gpu_that_is_not_there_are_refused_in_pytorchs_words(call):
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this PyTorch was built with CUDA")
    raised = []
    for m in (tj, torch):
        with pytest.raises(Exception) as found:  # noqa: B017 - which one is compared
            eval(call, {"m": m})
        raised.append((found.type, str(found.value)))
    assert raised[0] == raised[1]


def test_a_device_that_can_only_be_named_is_refused_when_it_is_used():
    with pytest.raises(NotImplementedError, match="'mps': JAX's platforms here are cpu, cuda, xla"):
        tj.zeros(2, device="mps")


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        ("m.device('foo')", RuntimeError, "device type at start of device string: foo"),
        ("m.device('cuda:')", RuntimeError, "Invalid device string: 'cuda:'"),
        ("m.device('cpu', 'a')", TypeError, r"device\(\): argument 'index' \(position 2\) must be int, not str"),
        ("m.device(1.5)", TypeError, r"device\(\) received an invalid combination of arguments - got \(float\)"),
        ("m.set_num_threads(0)", RuntimeError, "set_num_threads expects a positive integer"),
        ("m.set_num_threads('a')", RuntimeError, "set_num_threads expects an int, but got str"),
        ("m.set_num_interop_threads(0)", RuntimeError, "set_num_interop_threads expects a positive integer"),
        ("m.set_float32_matmul_precision(1)", RuntimeError, "set_float32_matmul_precision expects a str, but got int"),
        ("m.is_autocast_enabled('foo')", RuntimeError, "device type at start of device string: foo"),
    ],
)
def test_wrong_settings_are_refused_in_pytorchs_words(call, kind, text):
    with pytest.raises(kind, match=text):
        eval(call, {"m": tj})
    with pytest.raises(kind, match=text):
        eval(call, {"m": pytest.importorskip("torch")})


@pytest.mark.parametrize("name", ["tj", "torch"])
def test_a_device_is_the_default_of_a_block_and_of_a_function(name):
    m = tj if name == "tj" else pytest.importorskip("torch")
    with m.device("cpu") as inside:
        assert str(m.get_default_device()) == "cpu" and str(m.zeros(1).device) == "cpu" and str(inside) == "cpu"
    with m.device("meta"):
        assert str(m.get_default_device()) == "meta"
        with m.device("cpu"):
            assert str(m.zeros(1).device) == "cpu"
        assert str(m.get_default_device()) == "meta"
    assert str(m.get_default_device()) == "cpu"


def test_the_default_device_holds_after_an_error_and_can_be_unset():
    with pytest.raises(KeyError), tj.device("meta"):
        raise KeyError
    assert tj.get_default_device() == tj.device("cpu")
    tj.set_default_device("meta")
    try:
        assert tj.zeros(1).is_meta
    finally:
        tj.set_default_device(None)
    assert tj.device("cpu")(lambda x: tj.zeros(x))(2).shape == (2,)


# ---------------------------------------------------------------------- settings


def test_threads_are_told_as_they_are():
    count = tj.get_num_threads()
    assert count >= 1 and tj.get_num_interop_threads() == count
    tj.set_num_threads(count)
    with pytest.warns(UserWarning, match=f"set_num_threads\\({count + 1}\\) has no effect: XLA's threads are made when it starts"):
        tj.set_num_threads(count + 1)
    assert tj.get_num_threads() == count


def test_precision_of_products_has_two_names():
    try:
        tj.set_float32_matmul_precision("high")
        assert tj.get_float32_matmul_precision() == "high" and tj.backends.cuda.matmul.allow_tf32
        tj.backends.cuda.matmul.allow_tf32 = False
        assert tj.get_float32_matmul_precision() == "highest"
        with pytest.warns(UserWarning, match="foo is not one of 'highest', 'high', or 'medium'"):
            tj.set_float32_matmul_precision("foo")
        assert tj.get_float32_matmul_precision() == "highest"
    finally:
        tj.set_float32_matmul_precision("highest")


def test_switches_of_cudnn_keep_what_they_are_set_to():
    cudnn = importlib.import_module("torchgrad_jax.backends.cudnn")
    cudnn.benchmark = True
    try:
        with cudnn.flags(enabled=False, deterministic=True):
            assert not cudnn.enabled and cudnn.deterministic and not cudnn.benchmark
        assert cudnn.enabled and not cudnn.deterministic and tj.backends.cudnn.benchmark
    finally:
        cudnn.benchmark = False


@without_gpu
@pytest.mark.parametrize("name", ["tj", "torch"])
def test_mixed_precision_for_a_gpu_that_is_not_there_warns_and_is_off(name):
    m = tj if name == "tj" else pytest.importorskip("torch")
    with pytest.warns(UserWarning, match="CUDA is not available or torch_xla is imported. Disabling autocast."), m.autocast("cuda"):
        assert not m.is_autocast_enabled("cuda")
        assert (m.ones(2, 2) @ m.ones(2, 2)).dtype == m.float32
    with pytest.warns(UserWarning, match="GradScaler is enabled, but CUDA is not available.  Disabling."):
        scaler = m.amp.GradScaler("cuda")
    x = m.ones(1)
    assert scaler.scale(x) is x and not scaler.is_enabled()


# ---------------------------------------------------------------------- decorators that hand on


def test_compile_takes_the_arguments_of_pytorch():
    def f(x):
        return x + 1

    model = tj.nn.Linear(2, 2)
    assert tj.compile(f, disable=True) is f and tj.compile(model, mode="max-autotune", fullgraph=True, dynamic=True)._orig_mod is model
    assert tj.compile(fullgraph=True)(f).__wrapped__ is f and tj.compile(backend="eager")(f) is f
    with pytest.raises(NotImplementedError, match="no FX graphs"):
        tj.compile(f, backend=lambda graph, inputs: graph)
    with pytest.raises(RuntimeError, match="Invalid backend: 'nonsense'"):
        tj.compile(f, backend="nonsense")
    with pytest.raises(RuntimeError, match="can't be specified at the same time"):
        tj.compile(f, mode="default", options={})


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_decorators_of_compiler_and_jit_hand_on():
    def f(x):
        return x

    assert tj.compiler.disable(f) is f and tj.compiler.disable()(f) is f and tj.compiler.disable(recursive=False)(f) is f
    assert tj.compiler.allow_in_graph(f) is f
    for decorate in (tj.jit.script, tj.jit.unused, tj.jit.ignore, tj.jit.ignore(), tj.jit.ignore(drop=True), tj.jit.export, tj.jit.script_if_tracing):
        assert decorate(f) is f
    assert tj.jit.trace(f, (tj.ones(1),)) is f


# ---------------------------------------------------------------------- the modules


def _in_a_process(source):
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_modules_are_loaded_when_something_of_theirs_is_asked_for():
    before, read, imported, named = _in_a_process("""if True:
        import json, sys
        import torchgrad_jax as torch
        loaded = lambda name: type(sys.modules[name]).__name__ == "module"
        names = ["torchgrad_jax.cuda", "torchgrad_jax.backends", "torchgrad_jax.compiler"]
        before = [loaded(name) for name in names] + ["torchgrad_jax.cuda.amp" in sys.modules]
        hasattr(torch.compiler, "__wrapped__")  # tools ask every module such things
        read = [torch.cuda.is_available(), *map(loaded, names)]
        import torchgrad_jax.backends.cudnn as cudnn
        from torchgrad_jax.compiler import disable
        torch.types.mine = 1
        print(json.dumps([before, read, [cudnn.enabled, *map(loaded, names)], ["is_available" in dir(torch.mps), torch.types.mine]]))
    """)
    assert before == [False] * 4 and read == [False, True, False, False] and imported == [True] * 4 and named == [True, 1]


def test_modules_are_loaded_once_by_many_threads():
    assert (
        _in_a_process("""if True:
        import json, threading
        import torchgrad_jax as torch
        found = []
        threads = [threading.Thread(target=lambda: found.append(torch.jit.is_scripting())) for _ in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(json.dumps(found))
    """)
        == [False] * 8
    )


def test_a_setting_made_in_one_thread_holds_in_others():
    tj.set_float32_matmul_precision("medium")
    try:
        found = []
        thread = threading.Thread(target=lambda: found.append(tj.get_float32_matmul_precision()))
        thread.start()
        thread.join()
        assert found == ["medium"]
    finally:
        tj.set_float32_matmul_precision("highest")


def test_types_serve_in_annotations():
    assert isinstance(1, tj.types.Number) and not isinstance("a", tj.types.Number)
    assert tj.types.Tensor is tj.Tensor
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tj.types.Device is not None
