"""An exception in every kind of code of the user's that the library calls; what is left must be what PyTorch leaves."""

from __future__ import annotations

from typing import Any

SETUP = """
class Stop(Exception): pass
calls = []
def stop(*_):
    calls.append(1)
    if len(calls) == AT: raise Stop(len(calls))
torch.manual_seed(0)
x = torch.linspace(-1, 1, 6).reshape(2, 3)
w = torch.full((3, 2), 0.5, requires_grad=True)
b = torch.zeros(2, requires_grad=True)
lin = torch.nn.Linear(2, 1)
with torch.no_grad(): [p.fill_(0.25) for p in lin.parameters()]
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t): IN_FORWARD(); return t * 2
    @staticmethod
    def backward(ctx, g): IN_BACKWARD(); return g * 2
"""

# What is registered, and what IN_FORWARD and IN_BACKWARD are.
KINDS = {
    "tensor hook": "h.register_hook(stop)",
    "hook of a leaf": "w.register_hook(stop)",
    "post-accumulate hook": "b.register_post_accumulate_grad_hook(stop)",
    "node hook": "h.grad_fn.register_hook(stop)",
    "node pre-hook": "h.grad_fn.register_prehook(stop)",
    "multi-grad hook": "torch.autograd.graph.register_multi_grad_hook([w, b], stop)",
    "module forward hook": "lin.register_forward_hook(stop)",
    "module forward pre-hook": "lin.register_forward_pre_hook(stop)",
    "module backward hook": "lin.register_full_backward_hook(stop)",
    "module backward pre-hook": "lin.register_full_backward_pre_hook(stop)",
    "pack hook": "pack = stop",
    "unpack hook": "unpack = stop",
    "Function.forward": "inside[0] = stop",
    "Function.backward": "inside[1] = stop",
}

STEP = """
h = (x @ w + b).tanh()
REGISTER
def run():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (pack(t), t)[1], lambda t: (unpack(t), t)[1]):
        out = lin(Twice.apply(h) * h).sum()
    out.backward()
"""


def left(m: Any, kind: str, at: int) -> list[Any]:
    """What a step leaves whose `at`-th call of the user's code raises, and what two more steps make of it."""
    names: dict[str, Any] = {"torch": m, "AT": at, "pack": lambda t: None, "unpack": lambda t: None, "inside": [lambda: None, lambda: None]}
    names["IN_FORWARD"], names["IN_BACKWARD"] = (lambda i=i: names["inside"][i]() for i in range(2))
    exec(SETUP, names)
    exec(STEP.replace("REGISTER", KINDS[kind]), names)
    found: list[Any] = []
    for _ in range(4):
        try:
            names["run"]()
            found.append("ran")
        except Exception as error:
            found.append(type(error).__name__)
        found.append(_state(names))
        names["h"] = (names["x"] @ names["w"] + names["b"]).tanh()
    return [*found, len(names["calls"])]


def _state(names: dict[str, Any]) -> list[Any]:
    shown = [names["w"], names["b"], *names["lin"].parameters()]
    return [[round(v, 4) for v in (t.grad if t.grad is not None else t.detach()).flatten().tolist()] + [t.grad is None, t._version] for t in shown]
