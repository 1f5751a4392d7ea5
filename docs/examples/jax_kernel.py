"""A wave on a membrane, simulated by a JAX kernel that PyTorch-style code differentiates: where was it struck?

`wave` is a JAX function: a finite-difference scheme in a `jax.lax.scan`, which a user might have had before. `from_jax` makes an operator of it, so
that `backward()` leads through all of its time steps to the initial state, which gradient descent on ordinary Tensors then finds from what four
microphones at the rim have recorded.

python docs/examples/jax_kernel.py
"""

import argparse
import time

import jax
import jax.numpy as jnp
import matplotlib

import torchgrad_jax as torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SIZE, MICROPHONES = 48, ((4, 4), (4, 43), (43, 4), (43, 43))


@torch.from_jax
def wave(first, speed, steps):
    """A wave that begins at rest as `first` (n, n), with `speed` (n, n) in cells a step: what is heard (steps, microphones), and the last state."""
    rows, columns = jnp.array(MICROPHONES).T

    def laplacian(u):
        padded = jnp.pad(u, 1)  # the rim is held
        return padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * u

    def step(state, _):
        before, now = state
        after = 2 * now - before + speed**2 * laplacian(now)
        return (now, after), after[rows, columns]

    (_, last), heard = jax.lax.scan(step, (first, first), length=steps)
    return heard, last


def bump(place, width=0.12):
    """A membrane (n, n) pushed out at `place` (2,), in units of its sides."""
    side = torch.linspace(0, 1, SIZE)
    distance = (side[:, None] - place[0]) ** 2 + (side[None, :] - place[1]) ** 2
    return torch.exp(-distance / (2 * width**2))


def draw(true, found, heard, recorded, last, path):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8))
    left.imshow(bump(true).numpy().T, origin="lower", extent=(0, 1, 0, 1), cmap="Greys")
    track = torch.stack(found).numpy()
    left.plot(track[:, 0], track[:, 1], ".-", color="tab:red", label="guesses")
    left.plot(*[[(m[i] + 0.5) / SIZE for m in MICROPHONES] for i in (0, 1)], "^", color="tab:blue", label="microphones")
    left.set(title="where it was struck", xlim=(0, 1), ylim=(0, 1))
    left.legend()
    middle.plot(recorded[:, 0].numpy(), color="black", label="recorded")
    middle.plot(heard[:, 0].detach().numpy(), "--", color="tab:red", label="simulated")
    middle.set(title="the first microphone", xlabel="step")
    middle.legend()
    right.imshow(last.detach().numpy().T, origin="lower", cmap="RdBu")
    right.set(title="the membrane at the end", xticks=[], yticks=[])
    figure.savefig(path, dpi=100, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="of gradient descent")
    parser.add_argument("--picture", default="jax_kernel.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    true, speed, times = torch.tensor([0.64, 0.38]), torch.full((SIZE, SIZE), 0.5), 120
    recorded = wave(bump(true), speed, times)[0] + 0.002 * torch.randn(times, len(MICROPHONES))

    place, momentum, found = torch.tensor([0.5, 0.5], requires_grad=True), torch.zeros(2), []
    start = time.perf_counter()
    for step in range(options.steps):
        found.append(place.detach().clone())
        heard, last = wave(bump(place), speed, times)
        loss = (heard - recorded).square().sum()
        loss.backward()
        with torch.no_grad():
            momentum.mul_(0.6).add_(place.grad)
            place.sub_(0.015 * (1 - step / options.steps) * momentum / momentum.norm().clamp(min=1.0))
            place.grad = None
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step:3d}  loss {loss.item():8.4f}  struck at {place[0].item():.3f}, {place[1].item():.3f}")
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s")
    print(f"off by {(place.detach() - true).norm().item():.4f} of a side")
    draw(true, found, heard, recorded, last, options.picture)


if __name__ == "__main__":
    main()
