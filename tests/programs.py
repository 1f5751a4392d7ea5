"""Small programs, one statement a line, run through PyTorch and through torchgrad_jax and compared after each line or at the end."""

from __future__ import annotations

import re
import textwrap
import warnings
from functools import lru_cache

import numpy as np

import torchgrad_jax

try:
    import torch
except ImportError:
    torch = None

MESSAGE = 250  # characters of an exception's message that must agree


@lru_cache(8192)
def _compiled(line):
    return compile(line, line, "exec")


class Run:
    """A program's namespace in one library, and what was observed."""

    def __init__(self, library):
        self.library = library
        self.calls = []
        self.counts = True  # PyTorch counts what it does itself to results of inference tensors
        self.space = {
            "torch": library, "grad": library.autograd.grad, "leaf": self.leaf, "plain": self.plain, "second": self.second,
            "hook": self.hook, "after": self.after, "prehook": self.prehook, "hook_of_node": self.hook_of_node,
        }  # fmt: skip

    def leaf(self, *shape, seed=0, dtype="float64", requires_grad=True):
        """A tensor of quarters, none of them 0."""
        size = int(np.prod(shape))
        values = (((np.arange(size) * 7 + seed * 3 + 2) % 11 - 5.5) / 4).reshape(shape)
        return self.library.tensor(values.tolist(), dtype=getattr(self.library, dtype), requires_grad=requires_grad)

    def plain(self, x):
        """A copy in row-major order."""
        return x.clone() if self.library is torchgrad_jax else x.clone(memory_format=torch.contiguous_format)

    def hook(self, tag, scale=None):
        """A gradient hook that notes its call and scales."""

        def note(grad):
            self.calls.append((tag, contents(grad)))
            return None if scale is None or grad is None else grad * scale

        return note

    def after(self, tag):
        """A hook for after accumulation that notes the gradient."""
        return lambda x: self.calls.append((tag, contents(x.grad)))

    def prehook(self, tag, scale=None):
        """A node's pre-hook that notes its call and scales."""

        def note(grads):
            self.calls.append((tag, *map(contents, grads)))
            return None if scale is None else tuple(None if g is None else g * scale for g in grads)

        return note

    def hook_of_node(self, tag, scale=None):
        """A node's hook that notes its call and scales."""

        def note(inputs, outputs):
            self.calls.append((tag, tuple(map(contents, inputs)), tuple(map(contents, outputs))))
            return None if scale is None else tuple(None if g is None else g * scale for g in inputs)

        return note

    def second(self, *grads):
        """Copies of gradients. What is below them in a graph has names of its own here, which are not compared."""
        found = []
        for g in grads:
            found.append(g if g is None else self.plain(g))
            if g is not None and found[-1].grad_fn is not None:
                found[-1].grad_fn.metadata["second order"] = True
        return found[0] if len(found) == 1 else found

    def do(self, line):
        """Run a line. What it raised: class and the beginning of the message."""
        self.counts = self.counts and "inference_mode()" not in line
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(_compiled(line), self.space)
        except AssertionError:
            raise
        except Exception as error:
            return type(error).__name__, str(error)[:MESSAGE]
        return None

    def tensors(self):
        """The program's tensors by name."""
        return {name: x for name, x in self.space.items() if isinstance(x, self.library.Tensor)}

    def observe(self, values=True):
        """All that can be seen of all tensors."""
        tensors = self.tensors()
        names = {id(x): name for name, x in reversed(tensors.items())}
        return {name: _seen(x, names, values, self.counts) for name, x in tensors.items()}

    def trace(self, program, each, until=None):
        """The observations of a whole program: after each line if `each` says so, and at the end."""
        found = []
        for line in program:
            raised = self.do(line)
            found.append((line, raised, self.observe() if each else None))
        found.append(("the end", list(self.calls), self.observe()))
        return found


def contents(x):
    """A tensor's values; None for none."""
    return None if x is None else x.detach().tolist()


def chain(node, depth=4):
    """The names of a node and of those that it passes gradients on to."""
    if node is None or not depth or "second order" in node.metadata:
        return None if node is None else "..."
    return node.name(), tuple((chain(n, depth - 1), nr) for n, nr in node.next_functions)


def asked(question):
    """A property's value, or the error it raises."""
    try:
        return question()
    except RuntimeError as error:
        return str(error)


def _seen(x, names, values, counts):
    base, node = x._base, asked(lambda: x.grad_fn)
    version = asked(lambda: x._version)
    seen = {
        "shape": tuple(x.shape), "dtype": str(x.dtype), "version": version if counts or isinstance(version, str) else "counted",
        "base": None if base is None else names.get(id(base), "unnamed"),
        "requires_grad": x.requires_grad, "is_leaf": asked(lambda: x.is_leaf),
        "grad_fn": node if isinstance(node, str) else chain(node), "output_nr": x.output_nr,
        "offset": x.storage_offset() if x.numel() else None,
        "strides": tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1) if x.numel() else None,
        "contiguous": x.is_contiguous(),
    }  # fmt: skip
    if values:
        seen["value"] = x.detach().tolist()
        seen["grad"] = None
        if seen["is_leaf"] is True or x.retains_grad:
            g = x.grad
            if g is not None:
                seen["grad"] = g.detach().tolist()
                seen["grad's"] = (tuple(g.shape), g.requires_grad, g.grad_fn is None)
    return seen


def difference(ours, theirs):
    """Where two observations first differ, in words; None where they agree."""
    for (line, raised, state), (_, expected, wanted) in zip(ours, theirs, strict=True):
        if not _equal(raised, expected) and not _told_otherwise(raised, expected):
            return f"at `{line}`: {raised}, PyTorch: {expected}"
        if state is None:
            continue
        if state.keys() != wanted.keys():
            return f"at `{line}`: tensors {sorted(state)}, PyTorch: {sorted(wanted)}"
        for name in state:
            for what in wanted[name].keys() | state[name].keys():
                a, b = state[name].get(what), wanted[name].get(what)
                if not _equal(a, b):
                    return f"after `{line}`: {name}'s {what} is {a}, PyTorch: {b}"
    return None


def _told_otherwise(raised, expected):
    """Whether two refusals are of one kind: a call that is wrong in two ways, of which PyTorch tells what is saved first, and torchgrad_jax the
    shapes; or an outdated result of an in-place operation on a view, which PyTorch may name after the view."""
    if raised is None or expected is None:
        return False
    ours, theirs = raised[1], expected[1]
    if ours.startswith(("The size of tensor a", "output with shape")) and theirs.startswith("Inference tensors cannot be saved"):
        return True
    name = re.compile(r"which is output 0 of \w+, ")
    return "of AsStrided," in theirs and name.split(ours)[0] == name.split(theirs)[0]


def _equal(a, b):
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b)) or (_wild(a) and _wild(b))
    return a == b and type(a) is type(b)


def _wild(x):
    """Overflow is a matter of the last digit."""
    return x != x or abs(x) > 1e120


def lines(program):
    """A program's text as its lines."""
    return [line for line in textwrap.dedent(program).splitlines() if line.strip()]


def same(program):
    """Assert that a program behaves as in PyTorch (where that is installed), whether tensors are looked at after each line or at the end."""
    program = lines(program) if isinstance(program, str) else program
    for each in (False, True):
        ours = Run(torchgrad_jax).trace(program, each)
        if torch is not None:
            found = difference(ours, Run(torch).trace(program, each))
            assert found is None, "\n".join(["", *program, found, "looked at after each line" if each else "looked at in the end"])
