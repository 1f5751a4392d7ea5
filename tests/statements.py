"""Statements of random programs about views, in-place writes, hooks and backward passes, written one at a time for the tensors that there are."""

from __future__ import annotations

import torch
from programs import Run, asked

LARGEST = 64  # elements: an expand of an expand must not grow without bound
MODES = ["no_grad", "no_grad", "enable_grad", "inference_mode"]


def overlaps_itself(x):
    """Whether two elements that are not `expand`'s copies are one place in memory."""
    x = x.detach()[tuple(0 if s == 0 and n else slice(None) for s, n in zip(x.stride(), x.shape, strict=True))]
    places = torch.arange(x.storage_offset() + sum(s * (n - 1) for s, n in zip(x.stride(), x.shape, strict=True)) + 1 if x.numel() else 0)
    return x.numel() != len(set(places.as_strided(x.shape, x.stride(), x.storage_offset()).flatten().tolist())) if x.numel() else False


def memory(x):
    """Where a tensor's memory is."""
    return x.untyped_storage().data_ptr()


class Author:
    """Writes a program, running each line through PyTorch to know what tensors there are. `pick` chooses from a sequence."""

    def __init__(self, pick):
        self.pick = pick
        self.run = Run(torch)
        self.count = 0
        self.viewed: set[int] = set()
        self.twinned: set[int] = set()
        self.lines = []

    def line(self, statement):
        """The statement as it is to be run: in a grad mode, its results in row-major order; and what PyTorch says of it."""
        mode = self.pick([None] * 7 + [self.pick(MODES)])
        if "leaf(" in statement and mode == "inference_mode":  # what then requires a gradient is no leaf to PyTorch, nor anything else
            mode = None
        where = "" if mode is None else f"with torch.{mode}(): "
        line = where + statement
        before = self.run.tensors()
        raised = self.run.do(line)
        # Results in other orders than the row-major one are none of these programs' business: XLA has no strides.
        for name, x in self.run.tensors().items():
            if x is not before.get(name) and x._base is None and not x.is_contiguous() and not any(x is t for t in before.values()):
                self.run.do(f"{where}{name} = plain({name})")
                line += f"; {name} = plain({name})"
        self.viewed |= {memory(x) for x in self.run.tensors().values() if x._base is not None and x.requires_grad}
        self.lines.append(line)
        return line, raised

    # ------------------------------------------------------------------ parts of statements

    def fresh(self, letter="x"):
        self.count += 1
        return f"{letter}{self.count}"

    def named(self, kind, wanted=lambda x: True):
        """The name of an object of the program, often a late one; None where there is none such."""
        names = [n for n, x in self.run.space.items() if isinstance(x, kind) and wanted(x) and n not in ("torch",)]
        return self.pick(names + names[-3:] + names[-1:]) if names else None

    def some(self, wanted=lambda x: True):
        return self.named(torch.Tensor, lambda x: x.numel() <= LARGEST and wanted(x))

    def target(self, wanted=lambda x: True):
        """A tensor to write to. Where elements overlap under other indices, PyTorch reads what it has just written."""
        return self.some(lambda x: not overlaps_itself(x) and wanted(x))

    def viewable(self, wanted=lambda x: True):
        """A tensor to view. Where `data` was taken of it, that is left out for tensors that require a gradient: see `twinnable`."""
        return self.some(lambda x: not (x.requires_grad and memory(x) in self.twinned) and wanted(x))

    def viewable_target(self):
        """A tensor to write to a view of."""
        return self.viewable(lambda x: not overlaps_itself(x))

    def twinnable(self, wanted=lambda x: True):
        """A tensor to write to by way of `data`. To PyTorch what was saved of views is then the new content, to us the old one."""
        name = self.some(lambda x: memory(x) not in self.viewed and wanted(x))
        self.twinned |= set() if name is None else {memory(self.of(name))}
        return name

    def of(self, name):
        return self.run.space[name]

    def number(self):
        return self.pick([0.5, 2, -1.5, 3.0, 0.25])

    def dim(self, name, extra=0):
        ndim = self.of(name).dim() + extra
        return self.pick(range(-ndim, ndim)) if ndim else 0

    def source(self, a):
        """A tensor to write into `a`. What overlaps it under other indices is left out: PyTorch reads there what it has just written."""
        shape = self.of(a).shape
        b = self.pick([self.some, lambda: self.some(lambda x: x.shape == shape)])() or a
        shared = self.of(a).untyped_storage().data_ptr() == self.of(b).untyped_storage().data_ptr()
        return b if a == b or not shared else self.number()

    def key(self, a):
        keys = []
        for n in self.of(a).shape:
            kind = self.pick(["int", ":", ":", "slice", "slice", "stop"])
            if kind == "stop":
                break
            if kind == "int":
                kind = str(self.pick(range(-n, n))) if n else ":"
            elif kind == "slice":
                kind = self.pick(["1:", ":2", "::2", ":-1", "0:0", "1:3", "-2:"])
            keys.append(kind)
        extra = self.pick(["", "", "", "None", "..."])
        if extra:
            keys.insert(self.pick(range(len(keys) + 1)), extra)
        return ", ".join(keys) or "..."

    # ------------------------------------------------------------------ new tensors

    def leaf(self):
        shape = self.pick([(), (4,), (2, 3), (2, 3), (2, 2, 2), (1, 3)])
        flag = self.pick(["", "", ", requires_grad=False"])
        return f"{self.fresh()} = leaf({''.join(f'{n}, ' for n in shape)}seed={self.count}{flag})"

    def arithmetic(self):
        a = self.some()
        other = self.pick([self.some, lambda: self.some(lambda x: x.shape == self.of(a).shape), self.number])()
        operation = self.pick(["+", "-", "*", "*", "/"])
        return f"{self.fresh()} = {self.pick([f'{a} {operation} {other}', f'{a} {operation} {other}', f'{other} {operation} {a}'])}"

    def function(self):
        return f"{self.fresh()} = {self.some()}.{self.pick(['tanh()', 'exp()', 'clone()', 'sum()', 'mean()', 'sin()', 'neg()', 'square()'])}"

    def reduction(self):
        a = self.some()
        return f"{self.fresh()} = {a}.sum({self.dim(a)}{self.pick(['', ', keepdim=True'])})"

    def product(self):
        a, b = self.some(lambda x: x.dim() == 2), self.some(lambda x: x.dim() == 2)
        if a is None or b is None or self.of(a).shape[1] != self.of(b).shape[0]:
            return None
        return f"{self.fresh()} = {a} @ {b}"

    def gather(self):
        a = self.target(lambda x: x.dim() and x.shape[0] > 1)
        if a is None:
            return None
        key = self.pick(["[0, 1, 0]", "torch.tensor([1, -1])", f"{a} > 0.1", "torch.tensor([[0, 1]]), ...", "None, [1, 0]"])
        return self.pick([f"{self.fresh()} = {a}[{key}]", f"{a}[{key}] = {self.number()}", f"{a}[{key}] *= 2"])

    def twin(self):
        made = self.pick(["detach()", "detach()", "data", "contiguous()", "clone()"])
        a = self.twinnable() if made == "data" else self.some()
        return a and f"{self.fresh()} = {a}.{made}"

    def name(self):
        a = self.some()
        return self.pick([f"{self.fresh()} = {a}", f"del {a}"]) if len(self.run.tensors()) > 3 else None

    # ------------------------------------------------------------------ views

    def item(self):
        a = self.viewable()
        if a is None:
            return None
        return f"{self.fresh()} = {a}[{self.key(a)}]"

    def part(self):
        a = self.viewable(lambda x: x.dim())
        if a is None:
            return None
        dim = self.dim(a)
        n = self.of(a).shape[dim]
        start = self.pick(range(n + 1))
        selected = f"select({dim}, {self.pick(range(-n, n))})" if n else "narrow(0, 0, 0)"
        return f"{self.fresh()} = {a}.{self.pick([selected, f'narrow({dim}, {start}, {self.pick(range(n - start + 1))})'])}"

    def reorder(self):
        a = self.viewable()
        if a is None:
            return None
        order = list(range(self.of(a).dim()))
        order = [order.pop(self.pick(range(len(order)))) for _ in order[:]]
        transposed = f"transpose({self.dim(a)}, {self.dim(a)})"
        made = self.pick([transposed, "t()", "T", f"permute({tuple(order)})", "movedim(0, -1)", "mT", self.like(a, "view_as")])
        return f"{self.fresh()} = {a}.{made}"

    def like(self, a, name):
        """`view_as` or `expand_as` of a tensor that fits."""
        fits = self.some(lambda x: asked(lambda: getattr(self.of(a).detach(), name)(x).shape) == x.shape)
        return "T" if fits is None else f"{name}({fits})"

    def sizes(self, a):
        n = self.of(a).numel()
        return self.pick([(n,), (-1,), (n, 1), (1, n), tuple(self.of(a).shape[::-1])] + [(m, n // m) for m in (2, 3, 4) if n and n % m == 0])

    def reshape(self):
        a = self.viewable()
        if a is None:
            return None
        return f"{self.fresh()} = {a}.{self.pick(['view', 'reshape'])}({self.sizes(a)})"

    def stretch(self):
        a = self.viewable(lambda x: x.numel() < 20 and x.dim() < 3)
        if a is None:
            return None
        size = tuple(self.pick([-1, 2, 3]) if n == 1 else self.pick([-1, n]) for n in self.of(a).shape)
        made = self.pick([f"expand({self.pick([(), (), (2,), (1,)]) + size})", f"unsqueeze({self.dim(a, 1)})", self.like(a, "expand_as")])
        return f"{self.fresh()} = {a}.{made}"

    def shrink(self):
        a = self.viewable()
        if a is None:
            return None
        diagonal = f"diagonal({self.pick(['', 1, -1])})"
        made = self.pick(["squeeze()", f"squeeze({self.dim(a)})", diagonal, diagonal, "flatten()", "unfold(0, 2, 1)"])
        return f"{self.fresh()} = {a}.{made}"

    def strided(self):
        a = self.viewable(lambda x: x.numel())
        size, stride = self.pick([((2,), (1,)), ((2,), (2,)), ((2, 2), (1, 2)), ((4,), (1,)), ((3,), (0,))])
        return None if a is None else f"{self.fresh()} = {a}.as_strided({size}, {stride}{self.pick(['', '', ', 0'])})"

    def several(self):
        a = self.viewable(lambda x: x.dim())
        if a is None:
            return None
        dim = self.dim(a)
        n = self.of(a).shape[dim]
        made = self.pick([f"unbind({dim})", f"split(2, {dim})", f"chunk(2, {dim})", f"split([1, {n - 1}], {dim})", "split(9)"])
        count = len(eval(f"a.{made}", {"a": torch.zeros(self.of(a).shape)})) if n else 0
        return "".join(f"{self.fresh()}, " for _ in range(count)) + f"= {a}.{made}" if count else None

    # ------------------------------------------------------------------ writes

    def write(self):
        a = self.target()
        if a is None:
            return None
        operation = self.pick(["add_", "mul_", "sub_", "copy_", "div_"])
        return f"{a}.{operation}({self.source(a) if self.pick([True, True, False]) else self.number()})"

    def write_function(self):
        a = self.target()
        return a and f"{a}.{self.pick(['zero_()', 'fill_(2.5)', 'tanh_()', 'exp_()', 'sin_()', 'neg_()', 'clamp_(min=0.0)', 'sigmoid_()'])}"

    def write_item(self):
        a = self.viewable_target()
        if a is None:
            return None
        return f"{a}[{self.key(a)}] {self.pick(['=', '=', '=', '*=', '+='])} {self.pick([lambda: self.source(a), self.number])()}"

    def write_masked(self):
        a = self.target()
        if a is None:
            return None
        return self.pick([f"{a}.masked_fill_({a} > 0, {self.number()})", f"{a}[{a} > 0] = {self.number()}"])

    def write_data(self):
        a = self.twinnable(lambda x: not overlaps_itself(x))
        return a and f"{a}.data.{self.pick(['mul_(2)', 'zero_()', 'add_(1)'])}"

    def set_data(self):
        # A view with new memory is no view here; whose memory an inference tensor's is, is not a tensor's own matter here. What was saved of a tensor
        # without a gradient is told from what was saved of its twins only where it never had any.
        a = self.twinnable(lambda x: x._base is None and not x.is_inference() and x.requires_grad)
        if a is None:
            return None
        # Another shape is an error only later, and not always the same; memory of another tensor's view has no way back to a base.
        shape = self.of(a).shape
        whole = self.twinnable(
            lambda x: x.shape == shape and x._base is None and not x.is_inference() and x.untyped_storage().nbytes() == 8 * x.numel()
        )
        if whole is None:
            return None
        made = self.pick([whole, whole, f"plain({whole}.detach() * 2)", self.number()])
        return f"{a}.data = {made} if not torch.is_inference_mode_enabled() else {a}"

    def out(self):
        a = self.target()
        if a is None:
            return None
        b = self.source(a)
        if b not in self.run.space or self.of(b).shape != self.of(a).shape:
            return None
        return f"torch.{self.pick(['mul', 'add'])}({a}, {b}, out={a})"

    def write_layout(self):
        # Without grad mode a graph would be left with another shape.
        a = self.some(lambda x: not x.is_inference())
        if a is None:
            return None
        kinds = [f"transpose_({self.dim(a)}, {self.dim(a)})", "t_()", f"unsqueeze_({self.dim(a, 1)})", "squeeze_()", f"squeeze_({self.dim(a)})"]
        return f"{a}.{self.pick(kinds)} if torch.is_grad_enabled() else None"

    # ------------------------------------------------------------------ autograd

    def flag(self):
        flags = ["requires_grad_()", "requires_grad_()", "requires_grad_(False)", "detach_()", "retain_grad()", "retain_grad()"]
        return f"{self.some()}.{self.pick(flags)}"

    def scale(self):
        return self.pick(["", "", ", 2.0", ", -0.5"])

    def hook(self):
        # PyTorch itself crashes on a hook of a view that requires a gradient only because its base does.
        a = self.some(lambda x: x._base is None or isinstance(asked(lambda: x.grad_fn), torch.autograd.graph.Node))
        if a is None:
            return None
        kind = self.pick([f"register_hook(hook({self.count}{self.scale()}))"] * 3 + [f"register_post_accumulate_grad_hook(after({self.count}))"])
        return f"{self.fresh('h')} = {a}.{kind}"

    def node_hook(self):
        a = self.some(lambda x: isinstance(asked(lambda: x.grad_fn), torch.autograd.graph.Node))
        if a is None:
            return None
        kind = self.pick([f"register_hook(hook_of_node({self.count}{self.scale()}))", f"register_prehook(prehook({self.count}{self.scale()}))"])
        return f"{self.fresh('h')} = {a}.grad_fn.{kind}"

    def unhook(self):
        handle = self.named(torch.utils.hooks.RemovableHandle)
        return None if handle is None else f"{handle}.remove()"

    def scalar(self, a):
        return a if self.of(a).dim() == 0 and self.pick([True, False]) else f"{a}{self.pick(['.sum()', '.square().sum()', '.sin().sum()'])}"

    def backward(self):
        root = self.some(lambda x: x.requires_grad) if self.pick([True] * 6 + [False]) else self.some()
        if root is None:
            return None
        options = ["", "", "", "retain_graph=True", "retain_graph=True", f"inputs=[{self.some()}, {self.some()}]"]
        return f"{self.scalar(root)}.backward({self.pick(options + self.second_order('create_graph=True'))})"

    def second_order(self, option):
        """`option`, once in a program: which gradients of gradients require a gradient is not compared."""
        return [] if any("create_graph" in line for line in self.lines) else [option]

    def gradient(self):
        out, to = self.some(lambda x: x.requires_grad), self.some(lambda x: x.requires_grad)
        if out is None:
            return None
        to = self.pick([to, to, f"[{to}, {self.some()}]"])
        options = ["", ", allow_unused=True", ", retain_graph=True", ", retain_graph=True, allow_unused=True"]
        options = self.pick(options + self.second_order(", create_graph=True"))
        names = ", ".join(self.fresh() for _ in to.split(","))
        return f"{names} = second(*grad({self.scalar(out)}, {to}{options}))"

    def grad(self):
        a = self.some(lambda x: asked(lambda: x.is_leaf) is True and x.grad is not None)
        if a is None:
            return f"{self.some()}.grad = None"
        return self.pick([f"{a}.grad = None", f"{self.fresh()} = second({a}.grad)", f"{a}.grad.mul_(2)",
                          f"{a}.grad.zero_()", f"{a}.grad = {a}.grad.detach() * 2"])  # fmt: skip


STATEMENTS = [getattr(Author, name) for name in (
    "arithmetic", "function", "reduction", "product", "gather", "twin", "name", "item", "part", "reorder", "reshape", "stretch", "shrink",
    "strided", "several", "write", "write_function", "write_item", "write_masked", "write_data", "set_data", "out", "write_layout", "flag",
    "hook", "node_hook", "unhook", "backward", "gradient", "grad", "leaf",
)]  # fmt: skip
