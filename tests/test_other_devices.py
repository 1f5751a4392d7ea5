"""Tensors on another device than the CPU, against the same on it. The other device is a second one that JAX makes of the CPU, in a process of its
own; to torchgrad_jax it is an accelerator."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax import nn
from torchgrad_jax.nn import functional as F
from torchgrad_jax.runtime import counters
from torchgrad_jax.runtime.operation import NO_YNN, compiler_options
from torchgrad_jax.runtime.tiers import costs

pytestmark = pytest.mark.operators  # runs in the usual mode, in another process

# JAX_PLATFORMS=cuda,cpu and "cuda" here: a GPU's.
OTHER = os.environ.get("TORCHGRAD_JAX_OTHER_DEVICE", "cpu:1")


def trained(make, shape, where, optimizer="Adam", steps=6, look=True):
    """The losses of some steps, in double precision: Adam makes whole steps of what is rounding in gradients that are 0. look: at each of them."""
    torch.manual_seed(0)
    net = make().to(where).double()
    x, y = torch.randn(*shape, dtype=torch.float64).to(where), torch.randint(0, 5, (shape[0],)).to(where)
    step = getattr(torch.optim, optimizer)(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        step.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        step.step()
        losses.append(loss.item() if look else loss.detach())
    losses = [float(loss) for loss in losses]
    assert {p.device for p in net.parameters()} == {p.grad.device for p in net.parameters()} == {torch.zeros(0, device=where).device}
    return losses


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(6, 8, 2, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.layer(x).mean(1))


def perceptron():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 5))


def convolutions():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))


def indices_of_the_cpu(where):
    x = torch.arange(12.0, device=where).reshape(3, 4).requires_grad_()
    mask = torch.tensor([True, False, True])
    found = [x[torch.tensor([2, 0])], x[torch.tensor([1, 1])], x[mask], x[:, torch.tensor([3])], x[torch.tensor([0, 1]), torch.tensor([2, 3])]]
    y = (x * 1).detach()
    y[torch.tensor([1, 2])] = 5.0
    y[mask] = torch.full((4,), 7.0, device=where)
    sum(f.sum() for f in found).backward()
    assert {f.device for f in found} == {x.device, y.device, x.grad.device}
    return [*[f.tolist() for f in found], x.grad.tolist(), y.tolist()]


def numbers_of_the_cpu(where):
    x = torch.arange(3.0, device=where)
    half = torch.tensor(0.5)
    found = [x * half, half * x, torch.where(x > 1, half, x), torch.clamp(x, half), torch.lerp(x, x + 1, half), x.masked_fill(x > 1, half)]
    x[0] = half
    assert {f.device for f in found} == {x.device}
    return [f.tolist() for f in [*found, x]]


def moves(where):
    x = torch.arange(6.0, requires_grad=True)
    there = x.to(where)
    back = (there * 2).cpu()
    (back * torch.arange(6.0)).sum().backward()
    large = torch.arange(300_000.0).to(where)
    data = torch.zeros(6)
    data.copy_(there.detach())
    assert (there.device.type, back.device, x.grad.device, data.device) == (torch.device(where).type, *[torch.device("cpu")] * 3)
    return [x.grad.tolist(), data.tolist(), large[-1].item(), large.cpu().sum().item(), (large + 1).to("cpu")[:2].tolist()]


def transforms(where):
    torch.manual_seed(0)
    x = torch.randn(3, 4).to(where)

    def f(x):
        return (x.sin() * x).sum()

    found = torch.func.hessian(f)(x[0]), torch.vmap(torch.func.grad(f))(x), torch.func.jacfwd(lambda x: x * x)(x[0]), torch.func.jvp(f, (x,), (x,))[1]
    assert {r.device for r in found} == {x.device}
    return [r.tolist() for r in found]


def saved(where):
    there = torch.arange(3.0, device=where, requires_grad=True)
    file = io.BytesIO()
    torch.save({"x": there}, file)
    file.seek(0)
    on_cpu = torch.load(file, map_location="cpu")["x"]
    assert on_cpu.device == torch.device("cpu")
    return [on_cpu.tolist(), copy.deepcopy(there).to("cpu").tolist(), pickle.loads(pickle.dumps(there)).tolist()]


def factorizations(where):
    torch.manual_seed(0)
    a = torch.randn(5, 5, dtype=torch.float64).to(where)
    a = (a @ a.mT + torch.eye(5, dtype=torch.float64, device=where)).requires_grad_()
    found = torch.linalg.cholesky(a).sum() + torch.linalg.inv(a).sum() + torch.linalg.eigvalsh(a).sum() + torch.linalg.solve(a, a[0]).sum()
    return [found.item(), torch.autograd.grad(found, a)[0].tolist(), torch.autograd.gradcheck(torch.linalg.det, (a,))]


def tries_again(where):
    """The index is another each time: what was remembered of the first is not taken for the second."""
    x = torch.arange(5.0, device=where)
    return [x[torch.tensor([i, i + 1])].tolist() for i in (0, 1, 2, 3)]


def wrong_classes(where):
    """They are told of where somebody looks at the latest, and what came before them stands."""
    x, y = torch.arange(12.0, device=where).reshape(3, 4).requires_grad_(), torch.tensor([1, 2, 9], device=where)
    found = []
    for _ in range(4):
        before = (x * 2).sum()
        try:
            loss = F.cross_entropy(x, y * 1)
            found.append([before.item(), loss.item()])
        except IndexError as error:
            found.append([before.item(), str(error)])
    return found


def refusals(where):
    here, there = torch.ones(3), torch.ones(3, device=where)
    net, found = nn.Linear(3, 2), []
    for call in (lambda: here + there, lambda: there @ here, lambda: net(there), lambda: torch.cat([here, there]), lambda: there.add_(here)):
        try:
            call()
        except RuntimeError as error:
            assert error.__suppress_context__ or error.__context__ is None, "how it was found out is nobody's concern"
            found.append(str(error).partition(", but")[0])
    return found


CASES = {
    "a perceptron": lambda where: trained(perceptron, (8, 6), where),
    "convolutions": lambda where: trained(convolutions, (4, 1, 8, 8), where, "SGD"),
    "attention": lambda where: trained(Attending, (3, 4, 8), where, "AdamW"),
    "an LSTM": lambda where: trained(Recurrent, (3, 4, 6), where, "RMSprop"),
    "what nobody looks at": lambda where: trained(perceptron, (9, 6), where, "SGD", steps=12, look=False),
    **{f.__name__.replace("_", " "): f for f in (
        indices_of_the_cpu, numbers_of_the_cpu, moves, transforms, saved, factorizations, tries_again, wrong_classes, refusals
    )},
}  # fmt: skip


def first_steps(width):
    """What the first steps of a program take."""
    before = counters.snapshot()
    trained(lambda: nn.Linear(width, 5), (8, width), OTHER)
    after = counters.snapshot()
    return {name: after[name] - before[name] for name in ("interpreted", "compiled", "compiled_ops")}


def main(how):
    """In a process of its own: every case, and what first steps take, as JSON. how: what is done with programs, by the prices of compiling them."""
    if how == "compiled":  # as soon as they come back
        costs.ON_ACCELERATORS = costs.Prices(1.0, 1.0, 0.0, 0.0, 0.0, 1e8)
    found = {name: case(OTHER) for name, case in CASES.items()}
    few = first_steps(6)
    costs.MOST_BYTES = 0  # all of it is too large for the interpreter
    print(json.dumps({"cases": found, "few": few, "large": first_steps(7)}))


@pytest.fixture(scope="module")
def other():
    """What `main` prints, interpreted and compiled."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "TORCHGRAD_JAX_BASELINE": "on"} | ({"XLA_FLAGS": flags} if OTHER == "cpu:1" else {})
    found = {}
    for how in ("interpreted", "compiled"):
        code = f"import sys; sys.path.insert(0, 'tests'); import test_other_devices; test_other_devices.main({how!r})"
        done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found[how] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("how", ["interpreted", "compiled"])
@pytest.mark.parametrize("name", [name for name in CASES if name != "refusals"])
def test_results_are_those_of_the_cpu(name, how, other):
    def same(a, b):
        if isinstance(a, str):
            assert a == b
        elif isinstance(a, list):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                same(x, y)
        else:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)

    same(other[how]["cases"][name], CASES[name]("cpu"))


@pytest.mark.parametrize("how", ["interpreted", "compiled"])
def test_what_is_on_two_devices_is_refused(how, other):
    assert other[how]["cases"]["refusals"] == ["Expected all tensors to be on the same device"] * 5


def test_what_is_new_is_interpreted_as_on_the_cpu(other):
    assert other["interpreted"]["few"]["interpreted"]
    assert not other["interpreted"]["few"]["compiled"] and not other["interpreted"]["few"]["compiled_ops"]


def test_what_comes_back_is_compiled(other):
    assert other["compiled"]["few"]["compiled"]


def test_products_on_a_gpu_are_not_timed_kernel_by_kernel(monkeypatch):
    assert jax.jit(lambda x: x + 1, compiler_options={"xla_gpu_enable_triton_gemm": False})(1) == 2, "XLA knows it"
    monkeypatch.setenv("XLA_FLAGS", "")
    assert compiler_options([], torch.device("cuda")) == {"xla_gpu_enable_triton_gemm": False}
    assert compiler_options([], torch.device("cpu")) == NO_YNN
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=true")
    assert compiler_options([], torch.device("cuda")) is None, "whoever sets it has it"


def test_what_is_too_large_to_be_read_is_not(other):
    large = other["interpreted"]["large"]
    assert not large["interpreted"] and large["compiled"] + large["compiled_ops"]
