"""Names of PyTorch's that packages import or ask about, told side by side: torchvision's, and those of tools around modules and optimizers."""

import contextlib
import copy
import gc
import pickle
import subprocess
import sys
from importlib import import_module

import pytest
from side_by_side import caught, like_pytorch, tj, torch

pytestmark = pytest.mark.operators


def part(m, name):
    return import_module(f"{m.__name__}.{name}")


# ---------------------------------------------------------------------- what torchvision imports


@like_pytorch
def test_a_library_that_is_not_there_cannot_be_loaded(m):
    m.ops.load_library("/nonexistent.so")


def test_a_library_that_is_there_cannot_be_loaded_either():
    with pytest.raises(OSError, match=r"^Could not load this library: .*\n.*torch.library"):
        tj.ops.load_library(__file__)
    assert tj.ops.loaded_libraries == set()


@like_pytorch
def test_sets_of_dispatch_keys(m):
    K, S = m._C.DispatchKey, m._C.DispatchKeySet
    both = S(K.AutocastCPU) | S(K.CPU)
    told = str(K.CPU), repr(K.AutocastCPU), both.has(K.CPU), (both - S(K.CPU)).has(K.CPU), both & S(K.CPU) == S(K.CPU), both.remove(K.CPU).has(K.CPU)
    return [*told, S(K.CPU).add(K.CUDA).has(K.CUDA), repr(S(K.AutocastCPU))]


@pytest.mark.parametrize("call", ["_C.DispatchKeySet(3)", "_C._ExcludeDispatchKeyGuard(3)"])
def test_what_is_no_dispatch_key_is_refused(call):
    assert caught(lambda: eval(f"m.{call}", {"m": tj})) == caught(lambda: eval(f"m.{call}", {"m": torch}))


@like_pytorch
def test_without_the_key_of_autocasting_nothing_is_cast(m):
    guard, x, seen = m._C._ExcludeDispatchKeyGuard(m._C.DispatchKeySet(m._C.DispatchKey.AutocastCPU)), m.ones(2, 2), []
    with m.autocast("cpu"):
        with guard:
            seen += [m.is_autocast_enabled("cpu"), str((x @ x).dtype)]
        seen += [m.is_autocast_enabled("cpu"), str((x @ x).dtype)]
    return seen


def test_without_the_keys_of_autograd_there_is_no_grad_to_be_used_instead():
    with pytest.raises(NotImplementedError, match="AutogradCPU: use torch.no_grad"):
        tj._C._ExcludeDispatchKeyGuard(tj._C.DispatchKeySet(tj._C.DispatchKey.AutogradCPU)).__enter__()


@like_pytorch
def test_decorators_for_exports_give_back_the_function(m):
    @part(m, "onnx.symbolic_helper").parse_args("v", "i")
    def f(g, x): ...

    return f.__name__, callable(m.jit._script_if_tracing(f))


@like_pytorch
def test_types_for_torchscript(m):
    names = part(m, "jit.annotations")
    return [names.BroadcastingList1[int], names.BroadcastingList2[int], names.BroadcastingList3[float], str(names.List[int])]


@like_pytorch
def test_classes_of_fx_are_there_for_annotations_and_questions(m):
    fx, node, proxy = part(m, "fx"), part(m, "fx.node"), part(m, "fx.proxy")
    asked = issubclass(fx.GraphModule, m.nn.Module), isinstance(m.nn.Linear(1, 1), fx.GraphModule), isinstance(3, node.Node)
    return [fx.Node is node.Node, fx.Proxy is proxy.Proxy, *asked, str(node.Target)]


@pytest.mark.skipif(tj.cuda.is_available(), reason="there is a GPU")
def test_memory_is_pinned_for_an_accelerator_only():
    assert caught(lambda: tj.ones(1).pin_memory()) == caught(lambda: torch.ones(1).pin_memory())


@pytest.mark.skipif(not tj.cuda.is_available(), reason="there is no GPU")
def test_with_a_gpu_pinned_memory_is_memory():
    x = tj.ones(1)
    assert x.pin_memory() is x
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.cuda().pin_memory()


# ---------------------------------------------------------------------- what tools ask


@like_pytorch
def test_a_transform_keeps_its_last_pair(m):
    t = m.distributions.ExpTransform(cache_size=1)
    before, x = t._cached_x_y, m.ones(2)
    y = t(x)
    return before, t._cached_x_y[0] is x, t._cached_x_y[1] is y, t.inv(y) is x


@like_pytorch
def test_a_transform_can_be_told_its_last_pair(m):
    t, x, y = m.distributions.ExpTransform(cache_size=1), m.ones(1), m.zeros(1)
    t._cached_x_y = x, y
    return t(x) is y, t.with_cache(0).with_cache(1)._cached_x_y, pickle.loads(pickle.dumps(t))(m.ones(1))


@like_pytorch
def test_a_tensor_has_a_number(m):
    x, y = m.ones(1), m.ones(1)
    return type(x._cdata).__name__, x._cdata == x._cdata, x._cdata == y._cdata


@like_pytorch
def test_an_optimizer_that_did_not_begin_as_one(m):
    class Wrapper(m.optim.Optimizer):
        def __init__(self, inner):
            self.param_groups, self.defaults, self.state = inner.param_groups, inner.defaults, inner.state

        def step(self, closure=None):
            return 3

    p = m.nn.Parameter(m.ones(2))
    o, seen = Wrapper(m.optim.SGD([p], 0.1)), []
    seen.append(o.step())
    for to_none in (False, True):
        p.grad = m.ones(2)
        o.zero_grad(to_none)
        seen.append(None if p.grad is None else p.grad.tolist())
    o.add_param_group({"params": [m.nn.Parameter(m.ones(1))]})
    return [*seen, len(copy.deepcopy(o).param_groups), repr(o).count("lr: 0.1")]


@like_pytorch
def test_switches_may_be_set_in_a_block(m):
    block = getattr(m.backends, "__allow_nonbracketed_mutation")
    with block():
        m.backends.cudnn.deterministic = False
    return m.cuda._initialized if not m.cuda.is_available() else False


@like_pytorch
def test_parts_of_modules(m):
    modules = m.nn.modules
    seen = []
    handle = modules.module.register_module_parameter_registration_hook(lambda *given: seen.append(len(given)))
    seen.append(len(modules.module._global_parameter_registration_hooks))
    handle.remove()
    keys = m.nn.Linear(1, 1).load_state_dict({}, strict=False)
    told = type(keys) is modules.module._IncompatibleKeys, repr(type(keys)).replace("torchgrad_jax", "torch"), repr(pickle.loads(pickle.dumps(keys)))
    dropouts = [issubclass(kind, modules.dropout._DropoutNd) for kind in (m.nn.Dropout, m.nn.Dropout3d, m.nn.AlphaDropout, m.nn.ReLU)]
    return [seen, *told, dropouts, [modules.transformer._get_activation_fn(name) is getattr(m.nn.functional, name) for name in ("relu", "gelu")]]


@like_pytorch
def test_an_activation_must_be_known(m):
    m.nn.modules.transformer._get_activation_fn("tanh")


CALLS = [
    "_utils._element_size(m.complex64)", "_utils._element_size(m.bool)", "_shape_as_tensor(m.ones(2, 3))", "_shape_as_tensor(m.ones(()))",
    "_softmax(m.ones(2, 3, requires_grad=True), 1, False)", "_softmax(m.ones(2, 3), dim=0, half_to_float=False)",
    "_softmax(m.ones(2).half(), 0, False)", "_softmax(m.ones(2).half(), 0, True)", "_softmax(m.ones(2, 3, dtype=m.int32), 1, False)",
    "_softmax(m.ones(2), 3, False)", "StorageBase()", "UntypedStorage(3).nbytes()", "linalg.inv(m.zeros(2, 2))",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_calls(call):
    assert caught(lambda: eval(f"m.{call}", {"m": tj})) == caught(lambda: eval(f"m.{call}", {"m": torch}))


def test_what_samples_are_put_together_by():
    assert part(tj, "utils.data.dataloader")._collate_fn_t.__origin__ is part(torch, "utils.data.dataloader")._collate_fn_t.__origin__


@like_pytorch
def test_bases_of_storages(m):
    return isinstance(m.ones(1).untyped_storage(), m.StorageBase), issubclass(m.TypedStorage, m.StorageBase)


@like_pytorch
def test_the_error_of_linear_algebra(m):
    kind = m.linalg.LinAlgError
    again = pickle.loads(pickle.dumps(kind("text")))
    return repr(kind), kind.__qualname__, m._C._LinAlgError is kind, type(again) is kind, str(again)


# ---------------------------------------------------------------------- contexts, tables of tensors, tensors that change places


@like_pytorch
def test_a_context_manager_that_decorates(m):
    base, log = part(m, "utils._contextlib")._DecoratorContextManager, []

    class Noted(base):
        def __init__(self, name):
            self.name = name

        def clone(self):
            return type(self)(self.name)

        def __enter__(self):
            log.append(f"into {self.name}")

        def __exit__(self, *error):
            log.append(f"out of {self.name}")

    @Noted("a")
    def f(x):
        log.append(x)

    @Noted("b")
    def g():
        yield 1
        yield 2

    f(3)
    log += list(g())
    return log, f.__name__, [issubclass(kind, base) for kind in (m.no_grad, m.enable_grad, m.set_grad_enabled, m.inference_mode)]


@like_pytorch
def test_tables_of_tensors_that_are_not_kept_alive(m):
    weak = part(m, "utils.weak")
    a, b, lost = m.ones(2), m.ones(2), m.ones(2)
    table = weak.WeakTensorKeyDictionary({a: 1})
    table[b], table[lost] = 2, 3
    ref, told = weak.TensorWeakRef(lost), [len(table), table[a], table[b], lost in table, 3 in table, table.get(m.ones(2))]
    told.append(ref() is lost)
    del lost
    gc.collect()
    other = table.copy()
    told += [ref() is None, len(table), sorted(table.values()), other == table, len(table.keyrefs()), [key is a for key in table][:1]]
    del other[a]
    told += [len(other), other == table, table.pop(b), len(table), len(other | table), len(copy.deepcopy(table)), table.setdefault(b, 7)]
    return told, isinstance(table, weak.WeakIdKeyDictionary), weak.WeakIdRef(a) == weak.WeakIdRef(a), weak.WeakIdRef(a) == weak.WeakIdRef(b)


@pytest.mark.parametrize("call", ["TensorWeakRef(3)", "WeakIdKeyDictionary()['a']", "WeakIdKeyDictionary().popitem()"])
def test_what_tables_refuse(call):
    kinds = []
    for m in (tj, torch):
        with pytest.raises(Exception) as error:
            eval(call, vars(part(m, "utils.weak")).copy())
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


@like_pytorch
def test_tensors_are_swapped(m):
    p, x = m.nn.Parameter(m.ones(2)), m.zeros(3)
    p.note = "p"
    number = id(p)
    m.utils.swap_tensors(p, x)
    (x * 3).sum().backward()
    told = p.tolist(), x.tolist(), type(p) is m.Tensor, type(x) is m.nn.Parameter, x.note, hasattr(p, "note"), p.grad, x.grad.tolist()
    y = x * 2
    m.utils.swap_tensors(p, y)
    return *told, id(p) == number, p.grad_fn.name(), y.grad_fn is None, y.tolist()


@like_pytorch
def test_a_graph_does_not_outlive_the_swap_of_its_leaf(m):
    p, x = m.nn.Parameter(m.ones(2)), m.zeros(3)
    result = (p * 2).sum()
    m.utils.swap_tensors(p, x)
    result.backward()


@like_pytorch
def test_layers_whose_weights_are_swapped_learn(m):
    layer, new = m.nn.Linear(2, 1, bias=False), m.nn.Parameter(m.tensor([[1.0, 2.0]]))
    optimizer = m.optim.SGD(layer.parameters(), 0.5)
    weight = layer.weight
    m.utils.swap_tensors(weight, new)
    for _ in range(2):
        optimizer.zero_grad()
        layer(m.ones(1, 2)).sum().backward()
        optimizer.step()
    return layer.weight is weight, weight, weight.grad, m.utils.swap_tensors(weight, weight)


@like_pytorch
def test_tensors_are_not_swapped_under_weak_references(m):
    import weakref

    a, b = m.ones(2), m.ones(2)
    ref = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref associated with it"):
        m.utils.swap_tensors(a, b)
    with pytest.raises(RuntimeError, match="Cannot swap t2 because it has weakref associated with it"):
        m.utils.swap_tensors(b, a)
    return ref() is a


def test_tensors_are_not_swapped_under_views_or_within_transforms():
    a, b = tj.ones(2, requires_grad=True), tj.ones(2)
    for m, x, y in ((tj, a, b), (torch, torch.ones(2, requires_grad=True), torch.ones(2))):
        view = x.view(2)
        for pair in ((x, y), (y, x)):
            with pytest.raises(RuntimeError):
                m.utils.swap_tensors(*pair)
        del view
    with pytest.raises(RuntimeError, match="inside of a function that is transformed"):
        tj.func.grad(lambda x: tj.utils.swap_tensors(x, tj.ones(2)))(tj.ones(2))
    tj.utils.swap_tensors(a, b)
    assert b.requires_grad and not a.requires_grad


@like_pytorch
def test_what_a_tensor_is_to_transforms(m):
    F, seen = m._C._functorch, []

    def look(x):
        seen.append([F.is_batchedtensor(x), F.is_gradtrackingtensor(x), F.is_functorch_wrapped_tensor(x), F.maybe_get_level(x)])
        return x.sum()

    x = m.ones(2, 3)
    look(x)
    m.func.vmap(look)(x)
    m.func.grad(look)(x)
    m.func.vmap(m.func.grad(look))(x)
    m.func.grad(lambda x: m.func.vmap(look)(x).sum())(x)
    m.func.jvp(look, (x,), (x,))
    m.func.vmap(lambda y: look(x) + y.sum())(x)
    m.func.grad(lambda y: m.func.vmap(lambda z, w: look(w) + z.sum(), (0, None))(x, y).sum())(x)
    return seen, caught(lambda: F.is_batchedtensor(3))


# ---------------------------------------------------------------------- what is not there, and where classes are


def test_what_is_spread_over_processes_is_not_there():
    for module, name in (("fsdp", "FSDPModule"), ("fsdp", "FullyShardedDataParallel"), ("tensor", "DTensor")):
        kind = getattr(part(tj, f"distributed.{module}"), name)
        assert kind is getattr(getattr(tj.distributed, module), name)
        assert not any(isinstance(x, kind) for x in (tj.ones(1), tj.nn.Linear(1, 1), 3))
        with pytest.raises(NotImplementedError, match=f"torch.distributed.{module}.{name} is not available in torchgrad_jax"):
            kind(tj.ones(1))
    assert issubclass(tj.distributed.tensor.DTensor, tj.Tensor) and issubclass(tj.distributed.fsdp.FullyShardedDataParallel, tj.nn.Module)
    assert tj.distributed.rpc.is_available() is tj.distributed.autograd.is_available() is False


PLACES = [
    *(f"optim.lr_scheduler.{name}" for name in torch.optim.lr_scheduler.__all__), "optim.lr_scheduler._LRScheduler", "nn.MultiheadAttention",
    "amp.GradScaler", "amp.autocast", "amp.grad_scaler.OptState", "autocast", "utils.hooks.RemovableHandle", "cuda.amp.GradScaler",
]  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_classes_are_where_pytorch_has_them(name):
    ours, theirs = eval(f"m.{name}", {"m": tj}), eval(f"m.{name}", {"m": torch})
    assert repr(ours).replace("torchgrad_jax", "torch") == repr(theirs)
    assert pickle.loads(pickle.dumps(ours)) is ours


def test_pickles_that_name_the_old_places_load():
    for module, name in (
        ("optim.lr_scheduler.factors", "StepLR"), ("nn.modules.multihead", "MultiheadAttention"), ("autograd.grad_scaler", "GradScaler"),
        ("core.node", "RemovableHandle"), ("nn.modules.state", "IncompatibleKeys"),
    ):  # fmt: skip
        assert isinstance(pickle.loads(f"ctorchgrad_jax.{module}\n{name}\n.".encode()), type)


def test_a_schedule_is_pickled():
    p = tj.nn.Parameter(tj.ones(1))
    schedule = tj.optim.lr_scheduler.StepLR(tj.optim.SGD([p], 0.1), 2)
    again = pickle.loads(pickle.dumps(schedule))
    with contextlib.suppress(UserWarning):
        again.step()
    assert type(again) is type(schedule) and again.step_size == 2


# ---------------------------------------------------------------------- names that stand on PyTorch's pages


@like_pytorch
def test_masked_functions_under_the_names_of_their_examples(m):
    x, mask = m.tensor([[-3, -2, -1], [0, 1, 2]]), m.tensor([[True, False, True], [False, False, False]])
    return m.masked._ops.sum(x, 1, mask=mask), m.masked._ops.amax(x, 1, mask=mask), sorted(m.masked._ops.__all__)[:3]


@like_pytorch
def test_former_names(m):
    initial = caught(lambda: m.nn.init.eye(m.ones(2, 3)))
    space = {}
    exec(f"from {m.__name__}.nn.init import *", space)
    name = f"former_names_{m.__name__}::f"
    m.library.define(name, "(Tensor x) -> Tensor")
    renamed = caught(lambda: m.library.impl_abstract(name, lambda x: x) and None)
    return initial, "xavier_normal" in space and "eye" in space, renamed, m.functional.svd_lowrank is m.svd_lowrank


@like_pytorch
def test_threads_draw_from_the_default_generator(m):
    return m.random.thread_safe_generator(), m.rand(2, generator=m.random.thread_safe_generator()).shape


@like_pytorch
def test_classes_are_not_asked_within_a_block(m):
    class Asked(m.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return 1

    x, found = m.ones(2).as_subclass(Asked), []
    for block in (contextlib.nullcontext, m.DisableTorchFunctionSubclass, m.DisableTorchFunction):
        with block():
            found.append(type(m.add(x, 1)) is int)
    return found


# ---------------------------------------------------------------------- types that annotations name


@like_pytorch
def test_types_of_torchscript_that_nothing_is_of(m):
    kinds = m.DeviceObjType, m.ScriptObject, m.StreamObjType, m.TensorType

    def moved(x: m.Tensor, device: str | m.DeviceObjType) -> m.TensorType:
        return x

    return [isinstance(thing, kinds) for thing in (m.device("cpu"), m.ones(2), 1)], moved(m.ones(2), "cpu")


def test_a_writer_is_found_in_its_own_module(tmp_path):
    (tmp_path / "tensorboardX.py").write_text("class SummaryWriter: pass\n")
    script = tmp_path / "program.py"
    script.write_text("""\
import torch.utils.tensorboard, tensorboardX
from torch.utils.tensorboard.writer import SummaryWriter
print(torch.utils.tensorboard.SummaryWriter is SummaryWriter, issubclass(SummaryWriter, tensorboardX.SummaryWriter))
""")
    done = subprocess.run([sys.executable, "-m", "torchgrad_jax", "run", str(script)], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


# ---------------------------------------------------------------------- containers that know how they are mapped


class Pair:
    """A container that no tree knows: as tensordict's, it takes the batch off its tensors and puts it back by itself."""

    def __init__(self, left, right):
        self.left, self.right = left, right

    def each(self, function):
        return Pair(function(self.left), function(self.right))


@contextlib.contextmanager
def pairs_are_mapped(m):
    """While `vmap` goes by steps that know a Pair, which is its only argument or result."""
    steps, functorch = m._functorch.vmap, m._C._functorch
    kept = {name: getattr(steps, name) for name in ("_process_batched_inputs", "_create_batched_inputs", "_unwrap_batched")}

    def process(in_dims, args, func):
        flat, spec = steps.tree_flatten(args)
        dims = steps._broadcast_to_and_flatten(in_dims, spec)
        return (flat[0].left if isinstance(flat[0], Pair) else flat[0]).shape[dims[0]], dims, flat, spec

    def create(dims, flat, level, spec):
        def inside(dim, arg):
            if dim is not None and isinstance(arg, Pair):
                return arg.each(lambda t: functorch._add_batch_dim(t, dim, level))
            return arg if dim is None else steps._add_batch_dim(arg, dim, level)

        return steps.tree_unflatten([inside(dim, arg) for dim, arg in zip(dims, flat, strict=True)], spec)

    def unwrap(outs, out_dims, level, size, func):
        if isinstance(outs, Pair):
            return outs.each(lambda t: functorch._remove_batch_dim(t, level, size, out_dims))
        return steps._maybe_remove_batch_dim(steps._get_name(func), outs, level, size, out_dims)

    steps.__dict__.update(_process_batched_inputs=process, _create_batched_inputs=create, _unwrap_batched=unwrap)
    try:
        yield
    finally:
        steps.__dict__.update(kept)


@like_pytorch
def test_vmap_goes_by_steps_that_were_put_in_the_place_of_its_own(m):
    found = []
    with pairs_are_mapped(m):
        for i in range(4):  # also when such calls would be remembered
            pair = Pair(m.arange(6.0).view(2, 3) + i, m.ones(2, 3, requires_grad=True))
            made = m.vmap(lambda p, x: Pair(p.left * x, p.right + x), (0, None), 1)(pair, m.arange(3.0))
            total = m.vmap(lambda p: (p.left * p.right).sum())(pair)
            total.sum().backward()
            nested = m.vmap(m.vmap(lambda p: p.left + p.right), 1, 1)(pair)
            found.append((made.left, made.right, total, pair.right.grad, nested))
        refused = caught(lambda: m.vmap(lambda p: 3)(Pair(m.ones(2), m.ones(2))))
    return found, refused, m.vmap(m.sum)(m.ones(2, 3))


@like_pytorch
def test_steps_of_vmap_do_what_they_are_named_after(m):
    steps = m._functorch.vmap
    kept, seen = steps._create_batched_inputs, []

    def create(dims, flat, level, spec):
        seen.append((dims, len(flat), level))
        return kept(dims, flat, level, spec)

    steps._create_batched_inputs = create
    try:
        made = m.vmap(lambda x, both: (x + both[0], [both[1] * x[0]]), (0, (1, None)), (0, [1]))(m.ones(2, 3), (m.ones(3, 2), m.arange(2.0)))
        refused = (
            caught(lambda: m.vmap(lambda x: x, out_dims=None)(m.ones(2))),
            caught(lambda: m.vmap(lambda x: (x, x), out_dims=(0, (0, 0)))(m.ones(2))),
        )
    finally:
        steps._create_batched_inputs = kept
    return made, seen, refused


# ---------------------------------------------------------------------- private names that packages ask


@like_pytorch
def test_nothing_is_traced_nor_fused_for_torchscript(m):
    C = m._C
    switched = C._jit_override_can_fuse_on_cpu(False), C._jit_override_can_fuse_on_gpu(False), C._jit_set_texpr_fuser_enabled(True)
    return C._is_tracing(), C._jit_can_fuse_on_cpu(), C._jit_can_fuse_on_gpu(), switched


@like_pytorch
def test_functions_about_processes_are_found_where_they_are_written(m):
    d, c10d = m.distributed, part(m, "distributed.distributed_c10d")
    names = "ProcessGroup", "get_rank", "is_initialized", "all_reduce", "GroupMember"
    c10d._unpickler = None  # as avalanche does
    return [getattr(c10d, name) is getattr(d, name) for name in names], caught(c10d._get_default_group)


@like_pytorch
def test_initial_contents_by_what_initializers_are_made_of(m):
    init, w = m.nn.init, m.nn.Parameter(m.empty(2, 3))
    m.manual_seed(0)
    calls = [
        ("_no_grad_uniform_", (-0.5, 0.5)), ("_no_grad_normal_", (1.0, 0.1)), ("_no_grad_trunc_normal_", (0.0, 1.0, -2.0, 2.0)),
        ("_no_grad_fill_", (3.0,)), ("_no_grad_zero_", ()),
    ]  # fmt: skip
    filled = []
    for name, given in calls:
        made = getattr(init, name)(w, *given)
        filled.append((made is w, made.detach().clone()))
    return filled, w.is_leaf, w.requires_grad


@like_pytorch
def test_what_files_are_pickled_by(m):
    return m.serialization.pickle is pickle, m.serialization.DEFAULT_PROTOCOL


@like_pytorch
def test_steps_that_a_compiler_would_leave_alone(m):
    def step(x):
        return x + 1

    marked = m._disable_dynamo(step), m._disable_dynamo(recursive=False)(step)
    return [(f.__name__, f(1)) for f in marked]
