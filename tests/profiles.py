"""Programs to profile, and how their events are compared."""

from torchgrad_jax.autograd.profiler import profile

# What is a step of PyTorch's own kernels, or of ours, and no operation of the user's.
INNER = {f"aten::{name}" for name in (
    "transpose", "as_strided", "expand", "copy_", "resolve_conj", "resolve_neg", "clamp_min", "empty", "empty_like", "empty_strided", "fill_", "to",
    "_to_copy", "detach", "zero_", "normal_", "uniform_",
)} | {"detach", "xla::compile"}  # fmt: skip


def tree(events, inner=INNER):
    """The events as nested pairs of a name and what is within it, without those that are `inner`."""

    def within(event):
        below = [t for child in event.cpu_children for t in within(child)]
        return below if event.name in inner else [(event.name, below)]

    return [t for event in events if event.cpu_parent is None for t in within(event)]


def named(events, name):
    return [e for e in events if e.name == name]


def profiled(program, **options):
    with profile(**options) as p:
        program()
    return p


def without_compiling(events):
    return [e.name for e in events if e.name != "xla::compile"]


def linear_step(m):
    m.manual_seed(0)
    lin = m.nn.Linear(4, 3)
    x = m.ones(2, 4, requires_grad=True)
    return lambda: (lin(x).relu() * 2).sum()


def forward_and_backward(m):
    loss = linear_step(m)
    return lambda: loss().backward()
