"""`__torch_function__`: how a public function finds out that an argument's class, or a mode, wants to answer the call itself.

Every public function is a guard around its implementation (or is `unary` or `binary`, which look at the types of their operands anyway and have the
guard as their long way). The library's own code calls implementations. A guard finds nothing to do for Tensors and Python's own types, which costs
about 0.1 us; else it asks the active modes and then the classes of the arguments, subclasses before their superclasses and otherwise left to right.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

from torchgrad_jax.calling.convention import Convention, PythonConvention, convention
from torchgrad_jax.calling.guards import (
    PLAIN,
    active,
    around,
    around_factory,
    around_getter,
    around_item,
    around_look,
    around_put,
    around_setter,
    hold_plain,
    ways,
)
from torchgrad_jax.calling.shown import Shown
from torchgrad_jax.calling.told_by_shapes import recalls
from torchgrad_jax.core.autocasting import as_one_operator
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import refuse_part
from torchgrad_jax.declaration.autocast import name_of_function
from torchgrad_jax.runtime.recorder import FUNCTIONS, Recorder, per_thread
from torchgrad_jax.runtime.user_code import warn_user


class _State(threading.local):
    """modes: those active in this thread, the innermost last. subclasses, everything: how many blocks have switched off the classes' answers, or
    those and the modes'. once: whether nobody is asked of the next call, whose own calls are asked for again."""

    def __init__(self) -> None:
        self.modes: list[Any] = []
        self.subclasses = 0
        self.everything = 0
        self.once = False

    def passed_over(self) -> bool:
        """Whether nobody is asked of this call; the next one is asked for."""
        once, self.once = self.once, False
        return once


state = _State()
_entering = threading.Lock()


def enter_mode(mode: Any) -> None:
    """Ask `mode` in this thread from here on."""
    state.modes.append(mode)
    per_thread.recorder.rare += 1
    with _entering:
        active.modes += 1


def leave_mode() -> None:
    """Ask the innermost mode no more."""
    with _entering:
        active.modes -= 1
    per_thread.recorder.rare -= 1
    state.modes.pop()


def watch_calls(rec: Recorder) -> None:
    """Let every call of a public function come by `rec.flags.watch`, as calls come by modes."""
    rec.rare += 1
    with _entering:
        active.modes += 1


def watch_calls_no_more(rec: Recorder) -> None:
    """The end of `watch_calls`."""
    with _entering:
        active.modes -= 1
    rec.rare -= 1


class DisableTorchFunctionSubclass:
    """Within the block, classes with `__torch_function__` are not asked; modes still are."""

    def __enter__(self) -> None:
        state.subclasses += 1

    def __exit__(self, *exc: object) -> None:
        state.subclasses -= 1


class DisableTorchFunction:
    """Within the block, neither classes with `__torch_function__` nor modes are asked."""

    def __enter__(self) -> None:
        state.everything += 1

    def __exit__(self, *exc: object) -> None:
        state.everything -= 1


class _Disabled:
    """As a class's `__torch_function__`: the class never answers, and results of its tensors are plain Tensors. It is no method, so that subclasses
    reach it by ``super()``, too."""

    def __call__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_pytorchs(func):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


_disabled_torch_function_impl = _Disabled()


# ---------------------------------------------------------------------- who wants to answer


def overrides(kind: type) -> bool:
    """Whether arguments of this type are asked: it has a `__torch_function__` of its own."""
    if kind in PLAIN:
        return False
    found = getattr(kind, "__torch_function__", None)
    return found is not None and found is not _disabled_torch_function_impl and not is_tensor_of_pytorchs(kind)


def is_pytorchs(func: Any) -> bool:
    """Whether a function is PyTorch's own, which cannot take our tensors: it asked them only since they have a `__torch_function__`."""
    home = getattr(func, "__module__", None) or getattr(getattr(func, "__objclass__", None), "__module__", None) or ""
    return home.partition(".")[0] == "torch" and func not in publics


def is_tensor_of_pytorchs(kind: type) -> bool:
    """Whether it is PyTorch's own Tensor: none of ours, nor a number, since its graph would be lost."""
    return any(k.__name__ == "TensorBase" and k.__module__ == "torch._C" for k in kind.__mro__)


def overloaded(arguments: Iterable[Any], tensors_too: bool = False) -> list[Any]:
    """The arguments to be asked, one of each type, in the order in which they are. `tensors_too`: with plain Tensors, which answer by the default."""
    found: list[Any] = []
    for a in arguments:
        kind = type(a)
        if kind is list or kind is tuple:
            for b in a:
                _add(found, b, tensors_too)
        else:
            _add(found, a, tensors_too)
    return found


def _add(found: list[Any], a: Any, tensors_too: bool) -> None:
    kind = type(a)
    if kind in PLAIN and not (tensors_too and kind is Tensor):
        return
    if not (kind is Tensor or overrides(kind)) or any(type(b) is kind for b in found):
        return
    place = next((i for i, b in enumerate(found) if issubclass(kind, type(b))), len(found))
    found.insert(place, a)


class Public:
    """A public function as handlers see it. func: the object; name: its dotted name. in_python: whether PyTorch dispatches it in Python, where
    arguments with defaults are passed on by name and the words of the error are others. by_type: whether arguments are asked by their types;
    factories are given numbers. of_data: whether a factory's first argument is data, in which nobody is looked for. with_tensors: whether the types
    that handlers see include Tensor itself."""

    __slots__ = ("func", "name", "in_python", "by_type", "of_data", "with_tensors", "signature", "known", "convention")

    def __init__(self, name: str, in_python: bool = False, by_type: bool = True) -> None:
        self.func: Any = None
        self.name, self.in_python, self.by_type, self.of_data, self.with_tensors = name, in_python, by_type, False, in_python
        self.signature: inspect.Signature | None = None
        # The combinations of types that calls were found to be in order with; how the function may be called, once that was asked.
        # For each whether that settles it: elements of sequences are looked at each time.
        self.known: dict[tuple[Any, ...], bool] = {}
        self.convention: Any = self


@functools.cache
def nowrap() -> set[Any]:
    """The attributes whose content the default `__torch_function__` gives as it is: it does not belong to the subclass."""
    return {vars(Tensor)[name].__get__ for name in ("_base", "grad", "_grad")}


# Every guarded function (and `__get__`, `__set__`, `__delete__` of every guarded attribute) that handlers may be given.
publics: dict[Any, Public] = {}


def answer(public: Public, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the implementation, unless a mode or an argument's class answers instead. TypeError where all of these decline."""
    watch = per_thread.recorder.flags.watch
    if watch is not None:
        return watch.calls(public, lambda: _answer(public, implementation, args, kwargs), args, kwargs)
    return _answer(public, implementation, args, kwargs)


def _answer(public: Public, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if state.passed_over() or state.everything:
        return held(public, implementation, args, kwargs)
    asked: list[Any] = []
    if not state.subclasses:
        asked = overloaded(kwargs.values() if public.of_data else (*args, *kwargs.values()))
    if not asked and not state.modes:
        return held(public, implementation, args, kwargs)
    if public.with_tensors:
        asked = overloaded((*args, *kwargs.values()), True)
    if public.in_python:
        args, kwargs = _by_name(public, implementation, args, kwargs)
        return ask(public.func, asked, args, kwargs)
    return ask(public.func, asked, args, kwargs or None)


def ask(func: Any, asked: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """The first answer of a mode or of the arguments `asked` that is not NotImplemented. TypeError where there is none."""
    kinds = tuple(map(type, asked))
    named = () if kwargs is None else (kwargs,)  # functions of C pass none on where there are none, so that a handler's own default is what it sees
    mode = None
    if state.modes and not state.everything:
        mode = state.modes.pop()  # what the mode itself calls is asked of the modes outside it
        try:
            found = mode.__torch_function__(func, kinds, args, *named)
        finally:
            state.modes.append(mode)
        if found is not NotImplemented:
            return found
        if all(kind is Tensor for kind in kinds):  # their default would call the function, which would ask the mode again
            asked, kinds = [], ()
    for a in asked:
        method = a.__torch_function__
        if getattr(method, "__self__", None) is a:
            _warn_of_plain_method()
        found = method(func, kinds, args, *named)
        if found is not NotImplemented:
            return found
    error = TypeError(_declined(func, kinds, mode))
    error.torch_function_declined = True  # type: ignore[attr-defined] - operators leave the call to the other operand then
    raise error


def is_declined(error: TypeError) -> bool:
    """Whether it says that every class and mode that was asked returned NotImplemented."""
    return getattr(error, "torch_function_declined", False)


def _warn_of_plain_method() -> None:
    warn_user(
        "Defining your `__torch_function__` as a plain method is deprecated and will be an error in future, please define it as a classmethod.",
        UserWarning,
    )


def _declined(func: Any, kinds: tuple[type, ...], mode: Any) -> str:
    public = publics.get(func)
    if public is None or public.in_python:
        name = f"{func.__module__}.{func.__name__}" if public is None else _python_name(public.name)
        return f"no implementation found for '{name}' on types that implement __torch_function__: {list(kinds)}" + (
            "" if mode is None else f" nor in mode {mode}"
        )
    lines = [] if mode is None else [f"  - mode object {mode}"]
    lines += [f"  - tensor subclass {kind}" for kind in kinds]
    return "\n".join([
        f"Multiple dispatch failed for '{public.name}'; all __torch_function__ handlers returned NotImplemented:", "", *lines, "",
        "For more information, try re-running with TORCH_LOGS=not_implemented",
    ])  # fmt: skip


def _python_name(name: str) -> str:
    return name.replace("torch.Tensor.", "torch._tensor.")


def _by_name(public: Public, implementation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as PyTorch's functions written in Python pass them on: those that have defaults by name, also where they were not given."""
    if public.name == "torch.functional.einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])  # it is asked of the operands, however they are given
    if public.signature is None:  # PyTorch's where that is known: ours may take more
        known = convention_of(public)
        public.signature = inspect.signature(known.binds if isinstance(known, PythonConvention) else implementation)
    try:
        bound = public.signature.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    bound.apply_defaults()
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in public.signature.parameters.items():
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named.update(value)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(value)
        else:
            named[name] = value
    return tuple(positional), named


# ---------------------------------------------------------------------- guards


def guard(implementation: Callable[..., Any], public: Public) -> Callable[..., Any]:
    """The function that looks for overrides before it calls the implementation. `public.func` is the guard itself, unless it says otherwise."""
    declared = hasattr(implementation, "schema")
    implementation = as_one_operator(implementation, name_of_function(public.name))
    return _made_public(around(implementation, public, recalls(public.name, declared)), implementation, public)


def _looked_through(public: Public, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], settled: bool) -> Any:
    """A call of known types that has sequences, which may hold what answers, or `out`."""
    if not settled and not (hold_plain(args) and hold_plain(kwargs.values())):
        return answer(public, implementation, args, kwargs)
    if kwargs.get("out") is not None:
        _check_out(public, args, kwargs["out"])
    try:
        return implementation(*args, **kwargs)
    except TypeError:
        if not settled:  # an element may be the reason
            held(public, _nothing, args, kwargs)
        raise


# Functions that do not ask, as PyTorch's do not, whether what they write is part of what they read.
_READS_FIRST = frozenset((
    "amax", "amin", "chain_matmul", "cond", "diag", "diff", "hfft", "hfft2", "hfftn", "histc", "inner", "irfft", "irfft2", "irfftn", "linear",
    "log_softmax", "logsigmoid", "logsumexp", "matmul", "matrix_norm", "matrix_rank", "max", "mean", "min", "mm", "multigammaln", "mv", "mvlgamma",
    "nanmean", "nanquantile", "nansum", "narrow_copy", "ndtr", "norm", "pinv", "prod", "quantile", "softmax", "std", "sum", "svdvals", "threshold",
    "tril", "triu", "var", "vector_norm",
))  # fmt: skip


def _check_out(public: Public, args: tuple[Any, ...], out: Any) -> None:
    """TypeError for a method: those take no `out`. RuntimeError where part of an operand would be written while it is read."""
    if public.name.startswith("torch.Tensor."):
        raise TypeError(f"{public.name[13:]}() got an unexpected keyword argument 'out'")
    short = public.name.rpartition(".")[2]
    if short.endswith("_copy") or short in _READS_FIRST:
        return
    for target in out if isinstance(out, (tuple, list)) else (out,):
        for operand in args:
            for t in operand if isinstance(operand, (tuple, list)) else (operand,):
                if isinstance(t, Tensor) and isinstance(target, Tensor) and t is not target:
                    refuse_part(target, t)


def convention_of(public: Public) -> Convention | None:
    """How PyTorch has the function called, looked up when it is asked for first."""
    if public.convention is public:
        public.convention = convention(public.name)
    return public.convention


def _at_first(public: Public, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], kinds: tuple[Any, ...]) -> Any:
    """A call whose types are new."""
    if not active.modes and hold_plain(args) and hold_plain(kwargs.values()):
        return held(public, implementation, args, kwargs, kinds)
    return answer(public, implementation, args, kwargs)


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _is_attribute_of(first: Any, public: Public) -> bool:
    """Whether the first argument stands there only since the function is an attribute of its class, ``act = torch.tanh``, and was called as a method.
    PyTorch's that are not written in Python are never bound so."""
    if public.in_python or isinstance(first, Tensor):
        return False
    return any(value is public.func for kind in type(first).__mro__ for value in vars(kind).values())


def held(
    public: Public, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], kinds: tuple[Any, ...] | None = None
) -> Any:
    """Call the implementation, if PyTorch's function may be called so. TypeError with PyTorch's text otherwise."""
    if args and type(args[0]) not in PLAIN and _is_attribute_of(args[0], public):
        return public.func(*args[1:], **kwargs)
    settled, known = True, convention_of(public)
    if known is not None:
        args, kwargs, settled = known.respelt(implementation, args, kwargs)
    if kwargs.get("out") is not None:
        _check_out(public, args, kwargs["out"])
    if settled and kinds is not None:
        public.known[kinds] = list not in kinds and tuple not in kinds
    return implementation(*args, **kwargs)


def guard_item(implementation: Callable[..., Any], public: Public) -> Callable[..., Any]:
    """`guard` for `__getitem__` and `__setitem__`: loops index much."""
    around = around_put if public.name.endswith("__setitem__") else around_item
    return _made_public(around(implementation, public), implementation, public)


# Methods without arguments that ask for what has been computed.
_LOOKS = frozenset(("__bool__", "__float__", "__int__", "item", "numpy", "tolist"))


def guard_look(implementation: Callable[..., Any], public: Public) -> Callable[..., Any]:
    """`guard` for methods without arguments that loops call much."""
    return _made_public(around_look(implementation, guard(implementation, public)), implementation, public)


def guard_for_modes(implementation: Callable[..., Any], public: Public) -> Callable[..., Any]:
    """`guard` for factories: of those whose arguments are data, only modes and what is given by name are asked."""
    public.by_type, public.of_data = False, public.name.rpartition(".")[2] in _OF_DATA
    made = around_factory(implementation, public, _made_at_first, recalls(public.name, False), not public.of_data)
    return _made_public(made, implementation, public)


def _made_at_first(public: Public, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], kinds: tuple[Any, ...]) -> Any:
    """A call of a factory whose types are new, or are sequences that may hold what answers."""
    if state.subclasses or state.everything or not overloaded(kwargs.values() if public.of_data else (*args, *kwargs.values())):
        return held(public, implementation, args, kwargs, kinds)
    return answer(public, implementation, args, kwargs)


def _made_public(call: Any, implementation: Any, public: Public) -> Any:
    functools.update_wrapper(call, implementation)
    call.__dict__.pop("schema", None)  # a guard has the names of its own convention
    announce(call, public)
    return call


# Functions that tell another name than that under which they are found.
_NAMES = {
    "torch.Tensor.__ipow__": "pow_", "torch.Tensor.__pos__": "positive", "torch.Tensor.__pow__": "pow", "torch.Tensor.__rtruediv__": "__rdiv__",
    "torch.nn.functional.logsigmoid": "log_sigmoid",
}  # fmt: skip


def announce(func: Any, public: Public) -> None:
    """Make `func` the object that handlers are given for `public`."""
    if public.func is not None:
        publics.pop(public.func, None)
    public.func = func
    publics[func] = public
    if isinstance(func, FUNCTIONS):
        namespace, _, name = public.name.rpartition(".")
        prefix = f"{namespace[6:]}_" if namespace in ("torch.linalg", "torch.special", "torch.fft") else ""
        func.__name__ = _NAMES.get(public.name, prefix + name)
        func.__module__, func.__qualname__ = _found_at(namespace, name)
        func.__signature__ = Shown(func, public.name)  # type: ignore[attr-defined]


def _found_at(namespace: str, name: str) -> tuple[str, str]:
    """The module, and the name in it, where pickles look for what is public."""
    if namespace == "torch.Tensor":
        return "torchgrad_jax", f"Tensor.{name}"
    home = "torch" if namespace == "torch.functional" else namespace
    return f"torchgrad_jax{home.removeprefix('torch')}", name


def guard_attribute(name: str, attribute: property) -> property:
    """A property of Tensor whose reading, setting and deleting look for overrides."""
    fget, fset, fdel = attribute.fget, attribute.fset, attribute.fdel
    assert fget is not None
    public = [Public(f"torch.Tensor.{name}.{access}") for access in ("__get__", "__set__", "__delete__")]

    def unwritable(self: Tensor, value: Any) -> None:
        raise AttributeError(f"attribute '{name}' of 'torch._C.TensorBase' objects is not writable")

    def delete(self: Tensor) -> None:
        if fdel is None:
            raise AttributeError(f"attribute '{name}' of 'torch._C.TensorBase' objects is not writable")
        if (type(self) is Tensor or type(self) is Parameter) and not active.modes:
            fdel(self)
        else:
            answer(public[2], fdel, (self,), {})

    put = unwritable if fset is None else around_setter(fset, public[1])
    made = property(around_getter(fget, public[0]), put, delete, attribute.__doc__)
    for one, access in zip(public, (made.__get__, made.__set__, made.__delete__), strict=True):
        one.with_tensors = True
        announce(access, one)
    return made


ways.at_first, ways.looked_through, ways.answer = _at_first, _looked_through, answer


# ---------------------------------------------------------------------- where the guards are put


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What PyTorch dispatches in Python, of torch and Tensor; of nn.functional it is all but a few.
_IN_PYTHON = {
    "torch": _names("""atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul einsum lu meshgrid norm split
        tensordot unique unique_consecutive"""),
    "torch.Tensor": _names("""__array__ __array_wrap__ __contains__ __deepcopy__ __floordiv__ __format__ __ipow__ __len__ __pow__ __reduce_ex__
        __repr__ __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rpow__ __rrshift__ __rsub__ __rtruediv__ backward lu norm register_hook
        register_post_accumulate_grad_hook split unflatten unique unique_consecutive"""),
}  # fmt: skip
_FUNCTIONAL_NOT_IN_PYTHON = _names("""adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid
    native_channel_shuffle one_hot pairwise_distance pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ scaled_dot_product_attention selu_ softplus
    softshrink threshold_""")
# Those that are functions of `torch` itself: the same objects.
OF_TORCH = _names("""adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d cosine_similarity hardshrink pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_
    selu_ threshold_""")
_FACTORIES = _names("""tensor as_tensor asarray from_numpy zeros ones empty full arange linspace logspace eye rand randn randint randperm normal
    hann_window hamming_window bartlett_window blackman_window tril_indices triu_indices""")
_OF_DATA = _names("tensor as_tensor asarray from_numpy")
NEVER_ASKED = _names("""manual_seed seed initial_seed get_rng_state set_rng_state set_printoptions get_default_dtype set_default_dtype
    get_default_device set_default_device is_tensor handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic""")
# Methods that are not asked for, or ask by what they call.
_ASKED_THOUGH_PRIVATE = _names("_is_view _version _base _grad _grad_fn _backward_hooks _post_accumulate_grad_hooks")
_METHODS_NEVER = _names("""__hash__ __iter__ __new__ __jax_array__ as_subclass __mod__ __add__ __radd__ __sub__ __mul__ __rmul__ __truediv__
    __matmul__ __ne__ __lt__ __le__ __gt__ __ge__ __rand__ __ror__ __rxor__""")
# Methods of which PyTorch tells modes the tensor's type, though it is Tensor itself.
_WITH_TENSORS = _names("""__bool__ __dlpack_device__ __float__ __index__ __int__ apply_ data_ptr detach detach_ dim element_size get_device is_complex
    is_floating_point is_shared item new new_tensor numel retain_grad share_memory_ storage storage_offset tolist untyped_storage""")

# Operators that leave a call which every handler declined to the other operand.
_DECLINING = _names("""__floordiv__ __rfloordiv__ __rmatmul__ __rmod__ __rpow__ __rsub__ __rtruediv__ __lshift__ __rlshift__ __rshift__
    __rrshift__""")


def _is_in_python(namespace: str, name: str) -> bool:
    if namespace == "torch.nn.functional":
        return name not in _FUNCTIONAL_NOT_IN_PYTHON
    return name in _IN_PYTHON.get(namespace, ())


def _wants_guard(function: Any, name: str) -> bool:
    """Whether a function has no guard, or one of another name: what is an alias here is a function by itself in PyTorch, with its own names of
    parameters. Operators of Python are asked for as what they stand for."""
    public = publics.get(function)
    return public is None or ("__" not in name and public.name.replace("torch.functional.", "torch.") != name)


_guards: dict[Any, Any] = {}


def guarded(namespace: str, functions: dict[str, Any]) -> dict[str, Any]:
    """The functions of a namespace with guards around those that have none of this name; other objects as they are."""
    found = {}
    for name, function in functions.items():
        shared = name in OF_TORCH and namespace in ("torch", "torch.nn.functional")
        if isinstance(function, FUNCTIONS) and name not in NEVER_ASKED and (name in _guards or _wants_guard(function, f"{namespace}.{name}")):
            in_python = _is_in_python(namespace, name)
            key = name if shared else (function, in_python, namespace, name)
            if key not in _guards:
                dotted = f"torch.functional.{name}" if in_python and namespace == "torch" else f"{'torch' if shared else namespace}.{name}"
                around = guard_for_modes if name in _FACTORIES and namespace == "torch" else guard
                _guards[key] = around(function, Public(dotted, in_python))
            function = _guards[key]
        elif shared:
            function = _guards.setdefault(name, function)
        found[name] = function
    return found


def guard_methods() -> None:
    """Put guards around the methods and attributes of Tensor that have none of their names."""
    for name, attribute in list(vars(Tensor).items()):
        private = name.startswith("_") and not name.startswith("__") and name not in _ASKED_THOUGH_PRIVATE
        if private or name in _METHODS_NEVER:
            continue
        if isinstance(attribute, property) and attribute.__get__ not in publics:
            setattr(Tensor, name, guard_attribute(name, attribute))
        elif isinstance(attribute, FUNCTIONS) and _wants_guard(attribute, f"torch.Tensor.{name}"):
            around = guard_item if name in ("__getitem__", "__setitem__") else guard_look if name in _LOOKS else guard
            method: Any = attribute
            public = Public(f"torch.Tensor.{name}", _is_in_python("torch.Tensor", name))
            public.with_tensors |= name in _WITH_TENSORS
            made = around(method, public)
            setattr(Tensor, name, _declining(made) if name in _DECLINING else made)


def _declining(function: Any) -> Any:
    """The operator as Python wants it: NotImplemented where every handler declined."""

    def dunder(self: Tensor, other: Any) -> Any:
        try:
            return function(self, other)
        except TypeError as error:
            if is_declined(error):
                return NotImplemented
            raise

    functools.update_wrapper(dunder, function)
    announce(dunder, publics[function])
    return dunder
