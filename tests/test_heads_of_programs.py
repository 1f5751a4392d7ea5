"""What programs ask and set before they begin: flags, devices, versions, decorators, threads, checks; against PyTorch where it answers alike."""

import copy
import importlib
import logging
import math
import subprocess
import sys
import threading
import warnings
import weakref

import pytest
from side_by_side import like_pytorch, programs

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


@program
def checks(m):
    found = []
    for name in ("_check", "_check_index", "_check_value", "_check_type", "_check_not_implemented"):
        getattr(m, name)(True)
        for arguments in ((False,), (False, lambda: "why"), (3,)):
            try:
                getattr(m, name)(*arguments)
            except Exception as error:
                found.append([type(error).__name__, str(error)])
    m._assert(m.tensor(True), "no")
    with pytest.raises(AssertionError, match="why"):
        m._assert(m.tensor(False), "why")
    return found


@program
def versions(m):
    version = m.torch_version.TorchVersion
    texts = ("2.13.0+cpu", "2.13.0", "2.13", "2.1", "1.13.1", "2.13.0a0", "2.13.0rc1", "2.13.0.dev2", "2.13.0.post1", "parrot", "10.0", "2.13.0+cu12")
    pairs = [[version(a) < b, version(a) >= b, version(a) == b, version(a) != version(b)] for a in texts for b in texts]
    return [pairs, version("2.1.0") > (2, 0), version("2.1.0") <= (2, 1), version("2.1.0") == (2, 1, 0), hash(version("2.1")) == hash("2.1")]


@program
def futures(m):
    first, second, third = m.futures.Future(), m.futures.Future(), m.futures.Future()
    later = first.then(lambda done: done.value() + 1)
    before = later.done()
    first.set_result(3)
    second.set_exception(ValueError("no"))
    third.set_result("c")
    errors = []
    for call in (second.wait, lambda: first.set_result(4)):
        try:
            call()
        except Exception as error:
            errors.append([type(error).__name__, str(error)])

    def fails(done):
        raise KeyError()

    waiting, others = m.futures.Future(), [m.futures.Future() for _ in range(3)]
    after, together = waiting.then(fails), m.futures.collect_all(others)
    waiting.add_done_callback(lambda done: errors.append(done is waiting))
    waiting.set_result(0)
    for call in (waiting.wait, after.wait, lambda: waiting.then(lambda: 0).wait(), lambda: waiting.then(3), lambda: copy.copy(waiting)):
        try:
            errors.append(call())
        except Exception as error:
            errors.append([type(error).__name__, str(error).partition("At:")[0].partition("with:")[0]])
    others[2].set_exception(ValueError("third"))
    others[1].set_exception(ValueError("second"))
    errors.append(together.done())
    others[0].set_result(1)
    try:
        together.wait()
    except ValueError as error:
        errors.append([together.done(), str(error)])
    kinds = [m.torch is m] + [isinstance(x, kind) for x in (waiting, after, m.jit.Future()) for kind in (m.Future, m.futures.Future)]
    return [before, later.wait(), errors, m.futures.wait_all([first, third]), len(m.futures.collect_all([first, third]).wait()), kinds]


@program
def names_of_types(m):
    kinds = (m.ones(1), m.ones(1).long(), m.ones(1).bool(), m.ones(1).double(), m.ones(1).bfloat16(), 3, "a", None, int, [])
    return [m.typename(kind) for kind in kinds] + [m.is_storage(m.ones(1).untyped_storage()), m.is_storage(m.ones(1)), m.get_device(m.ones(1))]


@program
def default_types(m):
    found = []
    kinds = (m.DoubleTensor, "torch.HalfTensor", "torch.FloatTensor", m.LongTensor, "torch.LongTensor", "torch.cuda.FloatTensor", m.float32, m.Tensor)
    for kind in (*kinds, *([] if m.cuda.is_available() else [m.cuda.HalfTensor, m.cuda.IntTensor])):
        try:
            m.set_default_tensor_type(kind)
        except TypeError as error:
            found.append(str(error))
        found.append(str(m.get_default_dtype()))
    return found


test_like_pytorch = pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")(test_like_pytorch)


@program
def classes_of_tensors(m):
    t, found = m.tensor([1, 2]), []
    for place in (m, m.cuda):
        for name in ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double"):
            kind = getattr(place, f"{name}Tensor")
            found.append([str(kind), str(kind.dtype), str(kind.layout), kind.is_cuda, kind.is_sparse, isinstance(t, kind)])
    named = ("torch.Tensor", "torch.HalfTensor", "torch.ComplexFloatTensor", "HalfTensor", "other.HalfTensor", "torch.float32", "Tensor")
    calls = [
        *(lambda name=name: t.type(name) for name in named), lambda: t.type(m.Tensor), lambda: t.type(m.DoubleTensor),
        lambda: t.type(m.float16, True),
        lambda: t.type(dtype=m.Tensor, non_blocking=True), lambda: t.type(m.float16, more=1), lambda: t.type(object),
        lambda: m.FloatTensor(2, 3, device="cpu").shape, lambda: m.FloatTensor([2], device="meta"), lambda: t.new(2, device="meta"),
        lambda: m.nn.Linear(1, 1).type(m.Tensor).weight.dtype is m.float64,
    ]  # fmt: skip
    if not m.cuda.is_available():
        calls += [lambda: m.cuda.FloatTensor(2), lambda: m.cuda.ByteTensor([2])]
    for default in (m.float32, m.float64):
        m.set_default_dtype(default)
        found.append([attempt(call) for call in calls])
    m.set_default_dtype(m.float32)
    return found


def attempt(call):
    try:
        return call()
    except Exception as error:
        return [type(error).__name__, str(error)]


@program
def warn_always(m):
    before = m.is_warn_always_enabled()
    m.set_warn_always(True)
    during = m.is_warn_always_enabled()
    m.set_warn_always(False)
    return [before, during, m.set_warn_always(3)]


@program
def warnings_of_numbers_that_lose_something(m):
    x, z = m.tensor([2.0], requires_grad=True), m.tensor([1 + 2j])
    calls = [
        lambda: float(x), lambda: float(x * 2), lambda: complex(x), lambda: math.sqrt(x), lambda: f"{x[0]:.2f}", lambda: x.item(), lambda: int(x),
        lambda: bool(x), lambda: float(x.detach()), lambda: m.no_grad()(lambda: float(x))(),
        lambda: m.tensor([x, x]), lambda: z.float(), lambda: z.to(m.int32), lambda: z.to(m.complex128),
        lambda: z.bool(), lambda: z.real, lambda: z.type(m.float64), lambda: z.requires_grad_().float().sum().backward(),
    ]  # fmt: skip
    m.set_warn_always(True)
    try:
        return [told(call) for call in calls]
    finally:
        m.set_warn_always(False)


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [[w.category.__name__, str(w.message).partition(" (Triggered internally")[0]] for w in caught]


@program
def switches(m):
    found = [m.utils.deterministic.fill_uninitialized_memory]
    try:
        m.utils.deterministic.fill_uninitialized_memory = 3
    except RuntimeError as error:
        found.append(str(error))
    for name in ("zzz", "allow_tf32"):
        try:
            setattr(m.backends.cuda.matmul, name, True)
        except AttributeError as error:
            found.append(str(error))
    m.backends.cuda.matmul.allow_tf32 = False
    return [*found, m.get_float32_matmul_precision()]


@program
def devices_that_are_not_there(m):
    found = [m.get_device_module("cpu").is_available(), m.accelerator.is_available(), m.cuda.memory_cached()]
    for call in (
        lambda: m.accelerator.synchronize(), lambda: m.accelerator.current_device_index(), lambda: m.accelerator.set_device_index(0),
        lambda: m.accelerator.memory_stats(), lambda: m.accelerator.current_stream(), lambda: m.cuda.Stream(), lambda: m.cuda.Event(),
        lambda: m.cuda.CUDAGraph(), lambda: m.cuda.nvtx.range_push("a"),
    ):  # fmt: skip
        try:
            call()
        except Exception as error:
            found.append([type(error).__name__, str(error)])
    with m.cuda.stream(None), m.cuda.device(-1):
        return [*found, issubclass(m.cuda.OutOfMemoryError, RuntimeError), m.OutOfMemoryError is m.cuda.OutOfMemoryError]


@program
def types_of_torchscript(m):
    cases = [([1], list[int]), ([1.0], list[int]), ({"a": 1}, dict[str, int]), ({1: 1}, dict[str, int]), ((1, "a"), tuple[int, str]), (3, int)]
    with m.jit.fuser("fuser1"), m.jit.optimized_execution(False):
        return [m.jit.isinstance(value, kind) for value, kind in cases] + [m.jit.annotate(list[int], [3]), list(m.jit.Attribute(3, int)[:1])]


@program
def what_modules_for_torchscript_take(m):
    internal, pool = m._jit_internal, m.nn.functional.max_pool1d
    choose = internal.boolean_dispatch("flag", 1, True, lambda x, flag=True: [x], lambda x, flag=True: x, "here", "choose")
    kinds = {"x": internal.Optional[m.Tensor], "y": internal.List[int], "z": internal.Tuple[int, int], "w": internal.BroadcastingList2[int]}
    kept = [decorate(pool) is pool for decorate in (internal.unused, internal.ignore, internal.export, internal._copy_to_script_wrapper)]
    return choose(1), choose(1, False), choose(1, flag=False), choose.__name__, choose.__module__, len(kinds), *kept


@program
def scripts_of_modules(m):
    class Twice(m.jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.weight = m.nn.Parameter(m.ones(1))

    return [
        isinstance(Twice(), m.jit.ScriptModule),
        isinstance(Twice(), m.nn.Module),
        isinstance(m.nn.ReLU(), m.jit.ScriptModule),
        list(Twice().state_dict()),
    ]


@program
def measurements(m):
    kind = importlib.import_module(f"{m.__name__}.utils.benchmark")
    specs = [
        kind.TaskSpec("f(x)", "pass", "", "label", size, way, None, threads) for way in ("a", "b") for size in ("s", "large") for threads in (1, 4)
    ]
    made = [kind.Measurement(2, [1e-6 * (i + 1) * (1 + 0.02 * k) for k in range(9)], spec) for i, spec in enumerate(specs)]
    table = kind.Compare(made)
    texts = [str(table)]
    table.trim_significant_figures()
    texts.append(str(table))
    single = [kind.Measurement(1, times, kind.TaskSpec("y\nz", "a = 1")) for times in ([3.1e-3], [1e-6, 2e-6, 9e-6, 3e-5, 2e-6])]
    shown = [repr(one).split("\n")[1:] for one in (*made, *single, *kind.Measurement.merge(made * 2))]
    return [
        texts,
        shown,
        [one.significant_figures for one in (*made, *single)],
        kind.trim_sigfig(123456, 3),
        kind.select_unit(0.002),
        kind.ordered_unique([2, 1, 2]),
    ]


@program
def flattened(m):
    tensors = [m.arange(4.0).reshape(2, 2).t(), m.ones(3)]
    flat = m._utils._flatten_dense_tensors(tensors)
    return [flat, *m._utils._unflatten_dense_tensors(flat, tensors)]


@program
def functions_that_take_all_gradients_at_once(m):
    class Pair(m.autograd.Function):
        boxed_grads_call = True
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, grads):
            (x,) = ctx.saved_tensors
            with pytest.raises(RuntimeError, match="saved_tensors can only be accessed once"):
                ctx.saved_tensors  # noqa: B018 - the second time
            return x * (2 * grads[0] + 3 * grads.pop())

    x = m.tensor([1.0, 2.0], requires_grad=True)
    a, b = Pair.apply(x)
    (a + 2 * b).sum().backward()
    return [x.grad, all(hasattr(m.autograd.Function, name) for name in ("name", "metadata", "next_functions", "saved_tensors", "register_hook"))]


@program
def hooks_that_are_not_pickled(m):
    x = m.ones(2, requires_grad=True)
    m.utils.hooks.warn_if_has_hooks(x)
    x.register_hook(m.utils.hooks.unserializable_hook(lambda grad: grad))
    m.utils.hooks.warn_if_has_hooks(x)
    told, layer = [], m.nn.Linear(2, 1, bias=False)
    m.nn.init.ones_(layer.weight)
    hook = m.utils.hooks.BackwardHook(layer, [lambda *a: told.append([t.tolist() for t in (*a[1], *a[2])])], [lambda *a: told.append(len(a[1]))])
    hook.setup_output_hook(layer.forward(*hook.setup_input_hook((x[None],)))).sum().backward()
    return told


@program
def dispatch_once_more(m):
    with pytest.raises(RuntimeError, match="torch dispatch state"), m.overrides.enable_reentrant_dispatch():
        pass

    class Logged(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return m.overrides.redispatch_function(func, types, args, kwargs)

    return [type(m.add(m.ones(1).as_subclass(Logged), 1)) is m.Tensor]


@program
def what_a_function_calls_that_is_dispatched_once_more_is_asked_for(m):
    told = []

    def scaled(a, b):
        if m.overrides.has_torch_function((a, b)):
            return m.overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + m.sin(a)

    class Logged(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append(func.__name__)
            return m.overrides.redispatch_function(func, types, args, kwargs or {})

    class Mode(m.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            told.append(func.__name__)
            with self:
                return m.overrides.redispatch_function(func, types, args, kwargs or {})

    x = m.ones(1).as_subclass(Logged)
    results = [scaled(x, x), m.overrides.redispatch_function(scaled, (), (x, x), {})]
    with Mode():
        results.append(scaled(m.ones(1), m.ones(1)))
    return told, [type(r) is m.Tensor for r in results], m.overrides.has_torch_function((x,))


def test_switches_of_mkldnn_hold_for_a_block():
    with tj.backends.mkldnn.flags(enabled=False):
        assert not tj.backends.mkldnn.enabled
    assert tj.backends.mkldnn.enabled
    with pytest.warns(FutureWarning, match="sdp_kernel"), tj.backends.cuda.sdp_kernel(enable_flash=False):
        assert not tj.backends.cuda.flash_sdp_enabled()
    assert tj.backends.cuda.flash_sdp_enabled()


def test_the_order_of_products_is_as_opt_einsum_is_told():
    def told(m):
        o, seen = m.backends.opt_einsum, []
        steps = [(o.set_flags, False), (o.set_flags, True), (o.set_flags, None, "greedy"), (o.set_flags, None, "fast"), (o.set_flags, False, "auto")]
        for set_flags, *values in [*steps, (o.set_flags, True, "auto")]:
            try:
                seen.append(set_flags(*values))
            except ValueError as error:
                seen.append(str(error))
            seen.append((o.enabled, o.strategy))
        with o.flags(enabled=False):
            seen.append((o.enabled, o.strategy))
        return seen, o.enabled, o.strategy, o.get_opt_einsum().__name__

    like_pytorch(told)()


@pytest.mark.parametrize("strategy", [None, "auto", "greedy", "optimal"])
def test_products_in_another_order_are_the_same(strategy):
    a, b, c, d = (tj.arange(float(n * k)).view(n, k).requires_grad_() for n, k in ((2, 3), (3, 4), (4, 5), (5, 1)))
    with tj.backends.opt_einsum.flags(strategy is not None, strategy):
        found = tj.einsum("ij,jk,kl,lm->im", a, b, c, d)
        plain = tj.einsum("ij,jk,kl,lm->im", a.detach(), b.detach(), c.detach(), d.detach())
    last = found.grad_fn
    while "Bmm" not in last.name():
        last = last.next_functions[0][0]
    shapes = {(*sorted(t.shape),) for t in (last._saved_self, last._saved_mat2)}
    assert found.tolist() == plain.tolist() == (a @ b @ c @ d).tolist()
    assert ((1, 2, 5) in shapes) is (strategy is None)


def test_there_are_no_process_groups():
    dist = tj.distributed
    assert not dist.is_available() and not dist.is_initialized()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.get_rank()
    with pytest.raises(NotImplementedError, match="Start the program as one process"):
        dist.init_process_group("nccl")
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        tj.nn.parallel.DistributedDataParallel(tj.nn.Linear(1, 1))
    assert not isinstance(tj.nn.Linear(1, 1), tj.nn.parallel.DistributedDataParallel)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_needs_torchscript_says_what_to_do_instead(tmp_path):
    scripted = tj.jit.script(tj.nn.Linear(1, 1))
    for call in (scripted.save, lambda file: tj.jit.save(scripted, file), lambda _: tj.jit.load(__file__)):
        with pytest.raises(NotImplementedError, match="Save a module's state_dict"):
            call(tmp_path / "x")
    with pytest.raises(ValueError, match="does not exist"):
        tj.jit.load("no such file")
    for refused in (
        tj.onnx.export, tj.export.export, tj.export.Dim, tj.utils.cpp_extension.load,
        tj.utils.cpp_extension.CppExtension, tj._dynamo.export,
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match="is not available in torchgrad_jax: "):
            refused(scripted)


def test_no_object_is_an_exported_program():
    """Programs ask before they do something else, and name them in annotations."""

    class Mine(tj.fx.Interpreter):
        def run(self, program: tj.export.ExportedProgram | tj.fx.GraphModule) -> None: ...

    for kind in (tj.fx.GraphModule, tj.fx.Proxy, tj.export.ExportedProgram, Mine):
        assert not isinstance(tj.nn.Linear(1, 1), kind)
    with pytest.raises(NotImplementedError, match="torch.export.ExportedProgram is not available in torchgrad_jax"):
        tj.export.ExportedProgram()


def test_options_of_compilers_are_kept():
    tj._inductor.config.triton.cudagraphs = True
    with tj._inductor.config.patch({"triton.cudagraphs": False, "max_autotune": True}):
        assert not tj._inductor.config.triton.cudagraphs and tj._inductor.config.max_autotune
    with pytest.raises(tj._dynamo.exc.InvalidBackend):
        tj.compile(lambda x: x, backend="no such")
    tj._dynamo.mark_dynamic(tj.ones(2, 3), 0)
    with tj._dynamo.utils.disable_cache_limit():
        assert tj.compile(lambda x: x + 1)(tj.ones(2)).tolist() == [2, 2]
    assert tj._dynamo.disable(lambda x: x)(3) == 3 and not tj.compiler.is_compiling() and "inductor" in tj._dynamo.list_backends()
    assert tj._inductor.config.triton.cudagraphs and not tj._inductor.config.max_autotune and tj._inductor.config.no_such_option is None
    assert tj._logging.set_logs(recompiles=True, dynamo=logging.DEBUG, modules={"mine": logging.INFO}) is None
    with pytest.raises(ValueError, match="Unrecognized log level for log dynamo: x, valid level values are: 50,40,30,20,10,0"):
        tj._logging.set_logs(dynamo="x")
    with pytest.warns(UserWarning, match="change nothing here: shape_padding"):
        assert tj.compile(lambda x: x + 1, options={"shape_padding": True})(tj.ones(1)).item() == 2


def test_a_future_is_waited_for_in_another_thread():
    future = tj.futures.Future()
    thread = threading.Thread(target=future.set_result, args=(3,))
    thread.start()
    assert future.wait() == 3
    thread.join()


def test_what_a_callback_of_a_future_raises_is_logged(caplog):
    future, called = tj.futures.Future(), []

    def fails(done):
        raise ValueError("no")

    future.add_done_callback(fails)
    future.add_done_callback(called.append)
    future.set_result(3)
    assert called == [future] and "ValueError: no" in caplog.text and "fails" in caplog.text


def test_timers_wait_for_what_they_time():
    x = tj.ones(100, 100)
    timer = tj.utils.benchmark.Timer("x @ x", globals={"x": x}, label="products")
    found = timer.timeit(5)
    assert found.number_per_run == 5 and found.mean > 0 and "products" in repr(found)
    assert len(timer.blocked_autorange(min_run_time=0.01).times) >= 1
    with pytest.raises(SyntaxError):
        tj.utils.benchmark.Timer("x @")
    with pytest.raises(NotImplementedError, match="use Python's"):
        tj.utils.benchmark.Timer("x", language="c++")


def test_timers_compute_what_nobody_keeps():
    x, made, computed = tj.ones(100, 100), [], []

    def product():
        computed.extend(kept._content().readable for result in made if (kept := result()) is not None)
        result = x @ x
        made[:] = [weakref.ref(result)]
        return result

    tj.utils.benchmark.Timer("product()", "torch.ones(2)", globals={"product": product}).timeit(5)
    assert computed.count(True) >= 4 and computed.count(False) == 0


def test_the_environment_is_told():
    text = tj.utils.collect_env.get_pretty_env_info()
    assert "PyTorch version: " in text and "JAX version: " in text and f"Python version: {sys.version[:6]}" in text
    collect = tj.utils.collect_env
    assert collect.run("echo here") == (0, "here", "") and collect.run("exit 3")[0] == 3 and collect.run(["there-is-no-such-program"])[0] == 127
    assert collect.run_and_parse_first_match(collect.run, "echo one 2", r"one (\d)") == "2" and collect.get_cpu_info(collect.run)
    assert collect.run_and_read_all(collect.run, "exit 3") is collect.run_and_return_first_line(collect.run, "exit 3") is None
    kind, packages = collect.get_pip_packages(collect.run)
    assert kind == "pip3" and "jaxlib==" in packages and "[pip3]" not in packages
    assert "jaxlib" in tj.__config__.show() and "threads" in tj.__config__.parallel_info()
    tj._tensor_str.PRINT_OPTS.precision = 2
    assert repr(tj.tensor(1.23456)) == "tensor(1.23)"
    tj.set_printoptions(profile="default")


PROCESSES = """
import sys
from torchgrad_jax.multiprocessing import ProcessRaisedException, spawn
def ends_badly(i):
    raise ValueError("in a process")
if __name__ == "__main__":
    try:
        spawn(ends_badly)
    except ProcessRaisedException as error:
        lines = str(error).strip().splitlines()
        print(lines[0], lines[-1], error.error_index)
"""


ASKING = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, is_fake
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
print(is_fake(torch.ones(2)), get_proxy_mode(), torch.fx.experimental.proxy_tensor.get_proxy_mode(), torch._C._are_functorch_transforms_active())
try:
    make_fx(torch.sin)
except AttributeError as error:
    print("make_fx is not available" in str(error))
"""


def test_a_program_may_ask_whether_it_is_being_traced(tmp_path):
    script = tmp_path / "asking.py"
    script.write_text(ASKING)
    done = subprocess.run([sys.executable, "-m", "torchgrad_jax", "run", str(script)], capture_output=True, text=True)
    assert done.stdout == "False None None False\nTrue\n", done.stderr


def test_processes_tell_how_they_ended(tmp_path):
    script = tmp_path / "processes.py"
    script.write_text(PROCESSES)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.stdout == "-- Process 0 terminated with the following error: ValueError: in a process 0\n", done.stderr


HEAD = """
import os, warnings
import torch, torch._dynamo, torch.fx, torch.onnx, torch.distributed as dist, torch.multiprocessing as mp
import torch._inductor.config as inductor_config
import re
import torch.backends.cudnn as cudnn
from torch.distributed import init_process_group, ReduceOp
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.jit import Final, ScriptModule
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.torch_version import TorchVersion
from torch.utils import benchmark, model_zoo
from torch.utils.cpp_extension import CUDA_HOME, load
from torch._utils import _flatten_dense_tensors
from torch._jit_internal import Optional, boolean_dispatch
try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    print("tensorboardX" in str(error))
major, minor = map(int, torch.__version__.split("+")[0].split(".")[:2])
print((major, minor) >= (2, 1), torch.__version__ >= "2.1", torch.version.__version__ == torch.__version__, end=" ")
print(isinstance(torch.__version__, TorchVersion), all(part.isalnum() for part in re.split("[-+.]", torch.__version__)))
cudnn.deterministic = True
inductor_config.coordinate_descent_tuning = True
torch._dynamo.config.suppress_errors = True
rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
print(rank, isinstance(torch.nn.Linear(1, 1), DDP), torch._C._log_api_usage_once("x"), torch.onnx.is_in_onnx_export(), mp.get_start_method(True))
@torch.fx.wrap
def f(x):
    return x
try:
    FullyShardedDataParallel(torch.nn.Linear(1, 1))
except NotImplementedError as error:
    print("jax.sharding" in str(error))
"""


def test_a_program_with_all_of_it_runs(tmp_path):
    script = tmp_path / "head.py"
    script.write_text(HEAD)
    done = subprocess.run([sys.executable, "-m", "torchgrad_jax", "run", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line != "True"]
    assert lines[:2] == ["True True True True True", "0 False None False None"]
