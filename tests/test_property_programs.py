"""Random programs of views, in-place writes, hooks and backward passes behave as in PyTorch, in both execution modes.

TORCHGRAD_JAX_PROGRAMS=5000 in the environment runs that many of them.
"""

from __future__ import annotations

import os
import random
import sys
import time
from functools import partial

import pytest
from programs import Run, asked, difference

import torchgrad_jax
from torchgrad_jax.runtime import execution_mode

torch = pytest.importorskip("torch")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

PROGRAMS = int(os.environ.get("TORCHGRAD_JAX_PROGRAMS", "60"))
LARGEST = 64  # elements: an expand of an expand must not grow without bound


class Writer:
    """Writes a program line by line, running each through PyTorch to know what tensors there are. `pick` chooses from a sequence."""

    def __init__(self, pick):
        self.pick = pick
        self.run = Run(torch)
        self.program = []
        self.count = 0

    def write(self, length):
        """A program of that many statements after its leaves."""
        shapes = [(), (4,), (2, 3), (2, 3), (2, 2, 2)]
        for _ in range(self.pick([1, 2, 2])):
            shape = self.pick(shapes)
            flag = self.pick(["", "", ", requires_grad=False"])
            self.line(f"{self.fresh()} = leaf({''.join(f'{n}, ' for n in shape)}seed={self.count}{flag})")
        for _ in range(length):
            line = self.pick(KINDS)(self)
            if line is not None:
                self.line(self.pick(["", "", "", "", "", "", "", "with torch.no_grad(): "]) + line)
        return self.program

    def line(self, line):
        before = self.run.tensors()
        self.run.do(line)
        self.program.append(line)
        # Results in other orders than the row-major one are none of these programs' business: XLA has no strides.
        for name, x in self.run.tensors().items():
            if name not in before and x._base is None and not x.is_contiguous():
                self.run.do(f"{name} = plain({name})")
                self.program[-1] += f"; {name} = plain({name})"

    def fresh(self):
        self.count += 1
        return f"x{self.count}"

    def some(self, wanted=lambda x: True):
        """The name of a tensor, often a late one; None where there is none such."""
        names = [n for n, x in self.run.tensors().items() if x.numel() <= LARGEST and wanted(x)]
        if not names:
            return None
        return self.pick(names + names[-3:] + names[-1:])

    def of(self, name):
        return self.run.space[name]

    def number(self):
        return self.pick([0.5, 2, -1.5, 3.0, 0.25])

    def dim(self, name, extra=0):
        ndim = self.of(name).dim() + extra
        return self.pick(range(-ndim, ndim)) if ndim else 0

    # ------------------------------------------------------------------ statements

    def arithmetic(self):
        a = self.some()
        other = self.pick([self.some, self.some, self.number])()
        operation = self.pick(["+", "-", "*", "*", "/"])
        return f"{self.fresh()} = {self.pick([f'{a} {operation} {other}', f'{a} {operation} {other}', f'{other} {operation} {a}'])}"

    def function(self):
        return f"{self.fresh()} = {self.some()}.{self.pick(['tanh()', 'exp()', 'clone()', 'sum()', 'mean()', 'sin()', 'neg()', 'square()'])}"

    def reduction(self):
        a = self.some()
        return f"{self.fresh()} = {a}.sum({self.dim(a)}{self.pick(['', ', keepdim=True'])})"

    def product(self):
        a, b = self.some(lambda x: x.dim() in (1, 2)), self.some(lambda x: x.dim() in (1, 2))
        if a is None or b is None or self.of(a).shape[-1] != self.of(b).shape[-2 if self.of(b).dim() > 1 else -1]:
            return None
        return f"{self.fresh()} = {a} @ {b}"

    def key(self, a):
        shape = self.of(a).shape
        keys = []
        for n in shape:
            keys.append(self.pick(["int", ":", ":", "slice", "slice", "stop"]))
            if keys[-1] == "int":
                keys[-1] = str(self.pick(range(-n, n))) if n else ":"
            elif keys[-1] == "slice":
                keys[-1] = self.pick(["1:", ":2", "::2", ":-1", "0:0", "1:3", "-2:"])
            elif keys[-1] == "stop":
                keys.pop()
                break
        extra = self.pick(["", "", "", "None", "..."])
        if extra:
            keys.insert(self.pick(range(len(keys) + 1)), extra)
        return ", ".join(keys) or "..."

    def view(self):
        a = self.some()
        x = self.of(a)
        dim = self.dim(a)
        made = self.pick(VIEWS)
        if made == "getitem":
            return f"{self.fresh()} = {a}[{self.key(a)}]"
        if made in ("select", "narrow") and not x.dim():
            return None
        if made == "select":
            n = x.shape[dim]
            return f"{self.fresh()} = {a}.select({dim}, {self.pick(range(-n, n))})" if n else None
        if made == "narrow":
            n = x.shape[dim]
            start = self.pick(range(n + 1))
            return f"{self.fresh()} = {a}.narrow({dim}, {start}, {self.pick(range(n - start + 1))})"
        if made == "transpose":
            return f"{self.fresh()} = {a}.transpose({dim}, {self.dim(a)})"
        if made == "permute":
            order = list(range(x.dim()))
            order = [order.pop(self.pick(range(len(order)))) for _ in range(x.dim())]
            return f"{self.fresh()} = {a}.permute({tuple(order)})"
        if made in ("view", "reshape"):
            n = x.numel()
            sizes = [(n,), (-1,), (n, 1), (1, n)] + [(m, n // m) for m in (2, 3, 4) if n and n % m == 0] + [tuple(x.shape[::-1])]
            return f"{self.fresh()} = {a}.{made}({self.pick(sizes)})"
        if made == "unsqueeze":
            return f"{self.fresh()} = {a}.unsqueeze({self.dim(a, 1)})" if x.dim() < 3 else None
        if made == "squeeze":
            return f"{self.fresh()} = {a}.squeeze({self.pick(['', dim])})"
        if made == "expand":
            size = tuple(self.pick([-1, 2, 3]) if n == 1 else self.pick([-1, n]) for n in x.shape)
            front = self.pick([(), (), (2,), (1,)])
            return f"{self.fresh()} = {a}.expand({front + size})" if x.numel() < 20 and x.dim() < 3 else None
        if made == "diagonal":
            return f"{self.fresh()} = {a}.diagonal({self.pick(['', 1, -1])})" if x.dim() > 1 else None
        return f"{self.fresh()} = {a}.{made}"

    def several(self):
        a = self.some(lambda x: x.dim())
        if a is None:
            return None
        dim = self.dim(a)
        n = self.of(a).shape[dim]
        made = self.pick([f"unbind({dim})", f"split(2, {dim})", f"chunk(2, {dim})", f"split([1, {n - 1}], {dim})"])
        count = len(eval(f"a.{made}", {"a": torch.zeros(self.of(a).shape)})) if n else 0
        return "".join(f"{self.fresh()}, " for _ in range(count)) + f"= {a}.{made}" if count else None

    def source(self, a):
        """A tensor to write into `a`. What overlaps it under other indices is left out: PyTorch reads there what it has just written."""
        b = self.some()
        shared = self.of(a).untyped_storage().data_ptr() == self.of(b).untyped_storage().data_ptr()
        return b if a == b or not shared else self.number()

    def write_in_place(self):
        a = self.some()
        operation = self.pick(["add_", "mul_", "sub_", "copy_", "div_"])
        return f"{a}.{operation}({self.source(a) if self.pick([True, True, False]) else self.number()})"

    def write_function(self):
        return f"{self.some()}.{self.pick(['zero_()', 'fill_(2.5)', 'tanh_()', 'exp_()', 'neg_()', 'clamp_(min=0.0)', 'sigmoid_()'])}"

    def write_item(self):
        a = self.some()
        return f"{a}[{self.key(a)}] {self.pick(['=', '=', '=', '*=', '+='])} {self.pick([lambda: self.source(a), self.number])()}"

    def write_masked(self):
        a = self.some(lambda x: 0 not in x.stride())
        if a is None:
            return None
        return f"{a}.masked_fill_({a} > 0, {self.number()})"

    def gather(self):
        a = self.some(lambda x: x.dim() and x.shape[0] > 1 and 0 not in x.stride())
        if a is None:
            return None
        key = self.pick(["[0, 1, 0]", "torch.tensor([1, -1])", f"{a} > 0.1", "torch.tensor([[0, 1]]), ...", "None, [1, 0]"])
        return self.pick([f"{self.fresh()} = {a}[{key}]", f"{a}[{key}] = {self.number()}", f"{a}[{key}] *= 2"])

    def twin(self):
        return f"{self.fresh()} = {self.some()}.{self.pick(['detach()', 'detach()', 'data', 'contiguous()'])}"

    def flag(self):
        return f"{self.some()}.{self.pick(['requires_grad_()', 'requires_grad_()', 'detach_()', 'retain_grad()', 'retain_grad()'])}"

    def data(self):
        return f"{self.some()}.data.{self.pick(['mul_(2)', 'zero_()', 'add_(1)'])}"

    def hook(self):
        # PyTorch itself crashes on a hook of a view that requires a gradient only because its base does.
        a = self.some(lambda x: x._base is None or isinstance(asked(lambda: x.grad_fn), torch.autograd.graph.Node))
        if a is None:
            return None
        return f"{a}.register_hook(hook({self.count}{self.pick(['', ', 2.0', ', -0.5'])}))"

    def backward(self):
        root = self.some(lambda x: x.requires_grad) if self.pick([True] * 6 + [False]) else self.some()
        if root is None:
            return None
        root = root if self.of(root).dim() == 0 and self.pick([True, False]) else f"{root}{self.pick(['.sum()', '.square().sum()', '.sin().sum()'])}"
        return f"{root}.backward({self.pick(['', '', 'retain_graph=True', 'create_graph=True'])})"

    def gradient(self):
        out, to = self.some(lambda x: x.requires_grad), self.some(lambda x: x.requires_grad)
        if out is None:
            return None
        options = self.pick(["", ", allow_unused=True", ", retain_graph=True", ", create_graph=True", ", create_graph=True"])
        return f"{self.fresh()} = plain(*grad({out}{self.pick(['.sum()', '.square().sum()', '.exp().sum()'])}, {to}{options}))"

    def forget(self):
        a = self.some()
        return f"del {a}" if len(self.run.tensors()) > 3 else None

    def clear(self):
        return f"{self.some()}.grad = None"


VIEWS = (
    ["getitem"] * 5
    + ["select", "narrow", "transpose", "t()", "T", "permute", "view", "view", "reshape", "unsqueeze", "squeeze", "expand"]
    + ["diagonal", "flatten()", "view_as(x1)", "expand_as(x1)", "movedim(0, -1)", "mT", "unfold(0, 2, 1)"]
)  # fmt: skip
KINDS = (
    [Writer.arithmetic] * 5 + [Writer.function] * 3 + [Writer.reduction, Writer.product] + [Writer.view] * 8 + [Writer.several]
    + [Writer.write_in_place] * 4 + [Writer.write_function] * 2 + [Writer.write_item] * 3 + [Writer.write_masked, Writer.gather]
    + [Writer.twin] * 2 + [Writer.flag] * 2 + [Writer.data, Writer.hook, Writer.hook]
    + [Writer.backward] * 2 + [Writer.gradient, Writer.gradient, Writer.forget, Writer.clear]
)  # fmt: skip


def compare(program, each):
    """The first difference from PyTorch in either execution mode; None where there is none."""
    expected = Run(torch).trace(program, each)
    for mode in ("fused", "eager"):
        with execution_mode(mode):
            found = difference(Run(torchgrad_jax).trace(program, each), expected)
        if found is not None:
            return f"{found} ({mode}, {'looked at after each line' if each else 'looked at in the end'})"
    return None


@settings(max_examples=PROGRAMS, deadline=None, derandomize=PROGRAMS <= 100, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_programs_behave_as_in_pytorch(data):
    program = Writer(lambda choices: data.draw(st.sampled_from(list(choices)))).write(data.draw(st.integers(1, 14)))
    found = compare(program, data.draw(st.booleans()))
    assert found is None, "\n".join(["", *program, found])


def ordinary(program):
    """Whether all results are in row-major order."""
    run = Run(torch)
    for line in program:
        run.do(line)
        if any(x._base is None and not x.is_contiguous() for x in run.tensors().values()):
            return False
    return True


def shortened(program, each):
    """The program without the lines that its difference does not need."""
    i = 0
    found = compare(program, each)
    while i < len(program):
        tried = program[:i] + program[i + 1 :]
        now = compare(tried, each) if ordinary(tried) else None
        if now is not None and now.split(":")[-1:] and ("NameError" in now) == ("NameError" in found):
            program, found = tried, now
            i = 0
        else:
            i += 1
    return program, found


def _choose(chance, choices):
    return chance.choice(list(choices))


def main(seed, seconds, length):
    """Print the short programs that random search finds different."""
    end = time.time() + seconds
    count = 0
    seen = set()
    while time.time() < end:
        seed += 1
        chance = random.Random(seed)
        program = Writer(partial(_choose, chance)).write(chance.randint(3, length))
        each = chance.random() < 0.4
        count += 1
        found = compare(program, each)
        if found is not None:
            program, found = shortened(program, each)
            kind = program[-1]
            if kind not in seen:
                seen.add(kind)
                print("\n".join([f"--- {seed}", *program, f"    {found}"]), flush=True)
            if len(seen) > 12:
                break
    print(count, "programs", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
