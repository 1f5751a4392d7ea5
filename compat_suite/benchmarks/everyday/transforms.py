"""Programs of `torch.func`: transforms of a network, and of one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _network(T: Any, inputs: int, hidden: int, outputs: int, activation: str = "Tanh") -> Any:
    T.manual_seed(0)
    return T.nn.Sequential(T.nn.Linear(inputs, hidden), getattr(T.nn, activation)(), T.nn.Linear(hidden, outputs))


def _parameters(module: Any) -> dict[str, Any]:
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


def _size(gradients: Any) -> float:
    return sum([g.square().sum() for g in gradients.values()]).item()


def per_sample_images(T: Any) -> Callable[[], float]:
    """The gradient of a small convolutional classifier for each image."""
    F, nn = T.nn.functional, T.nn
    T.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    parameters, images, classes = _parameters(net), T.randn(6, 1, 8, 8), T.randint(0, 3, (6,))

    def loss(parameters: Any, image: Any, which: Any) -> Any:
        return F.cross_entropy(T.func.functional_call(net, parameters, (image[None],)), which[None])

    gradients = T.func.vmap(T.func.grad(loss), (None, 0, 0))
    return lambda: _size(gradients(parameters, images, classes))


def jacobians(T: Any) -> Callable[[], float]:
    """Of a network, by both modes, for one input and for each of several."""
    net = _network(T, 4, 16, 3, "Softplus")
    x, both = T.randn(8, 4), (T.func.jacrev(net), T.func.jacfwd(net))

    def step() -> float:
        return (both[0](x[0]) - both[1](x[1]) + T.func.vmap(both[0])(x)).square().sum().item()

    return step


def hessians(T: Any) -> Callable[[], float]:
    """Of a network, for each of several inputs."""
    net = _network(T, 4, 16, 1)
    x, second = T.randn(8, 4), T.func.vmap(T.func.hessian(lambda x: net(x).squeeze()))
    return lambda: second(x).square().sum().item()


def laplacian(T: Any) -> Callable[[], float]:
    """By tangents of tangents."""
    net = _network(T, 3, 16, 1, "SiLU")
    x, directions = T.randn(8, 3), T.eye(3)

    def second(x: Any, v: Any) -> Any:
        return T.func.jvp(lambda y: T.func.jvp(lambda z: net(z).squeeze(-1), (y,), (v,))[1], (x,), (v,))[1]

    summed = T.func.vmap(lambda x: sum([second(x, v) for v in directions]))
    return lambda: summed(x).square().sum().item()


def ensemble(T: Any) -> Callable[[], float]:
    """Several networks at once."""
    nets = [T.nn.Sequential(T.nn.Linear(6, 16), T.nn.GELU(), T.nn.Linear(16, 2)) for _ in (T.manual_seed(0), 1, 2, 3)]
    parameters, buffers = T.func.stack_module_state(nets)
    x = T.randn(8, 6)
    outputs = T.func.vmap(lambda p, b, x: T.func.functional_call(nets[0], (p, b), (x,)), (0, 0, None))
    return lambda: outputs(parameters, buffers, x).square().sum().item()


def maml_func(T: Any) -> Callable[[], float]:
    """The gradient through a step of descent on each of several tasks, mapped."""
    F, net = T.nn.functional, _network(T, 1, 20, 1, "ReLU")
    parameters, x = _parameters(net), T.randn(4, 10, 1)
    y = T.sin(x)

    def inner(parameters: Any, x: Any, y: Any) -> Any:
        return F.mse_loss(T.func.functional_call(net, parameters, (x,)), y)

    def outer(parameters: Any) -> Any:
        def of_task(x: Any, y: Any) -> Any:
            gradients = T.func.grad(inner)(parameters, x, y)
            return inner({name: p - 0.1 * gradients[name] for name, p in parameters.items()}, x, y)

        return T.func.vmap(of_task)(x, y).mean()

    gradients = T.func.grad(outer)
    return lambda: _size(gradients(parameters))


def tangent_kernel(T: Any) -> Callable[[], float]:
    """The neural tangent kernel of some inputs, of their Jacobians."""
    net = _network(T, 5, 16, 1)
    parameters, x = _parameters(net), T.randn(6, 5)
    of_each = T.func.vmap(T.func.jacrev(lambda p, x: T.func.functional_call(net, p, (x,))), (None, 0))

    def step() -> float:
        flat = [j.flatten(2) for j in of_each(parameters, x).values()]
        return sum([T.einsum("nof,mof->nm", j, j).sum() for j in flat]).item()

    return step


def residuals(T: Any) -> Callable[[], float]:
    """The gradient of a physics-informed loss: of first and second derivatives in each point."""
    net = _network(T, 2, 16, 1)
    parameters, points = _parameters(net), T.rand(20, 2)

    def value(parameters: Any, z: Any) -> Any:
        return T.func.functional_call(net, parameters, (z,)).squeeze()

    def residual(parameters: Any, z: Any) -> Any:
        return T.func.grad(value, 1)(parameters, z)[1] - 0.1 * T.func.hessian(value, 1)(parameters, z)[0, 0]

    gradients = T.func.grad(lambda p: T.func.vmap(residual, (None, 0))(p, points).square().mean())
    return lambda: _size(gradients(parameters))


def lagrangian(T: Any) -> Callable[[], float]:
    """Accelerations of a Lagrangian network: its second derivatives, and a system of equations for each state."""
    net = _network(T, 4, 16, 1, "Softplus")
    places, speeds = T.randn(5, 2), T.randn(5, 2)

    def energy(q: Any, v: Any) -> Any:
        return net(T.cat([q, v])).squeeze()

    def acceleration(q: Any, v: Any) -> Any:
        mass, mixed = T.func.hessian(energy, 1)(q, v), T.func.jacrev(T.func.jacrev(energy, 1), 0)(q, v)
        return T.linalg.solve(mass + T.eye(2), T.func.grad(energy, 0)(q, v) - mixed @ v)

    of_each = T.func.vmap(acceleration)
    return lambda: of_each(places, speeds).square().sum().item()


PROGRAMS = (per_sample_images, jacobians, hessians, laplacian, ensemble, maml_func, tangent_kernel, residuals, lagrangian)
