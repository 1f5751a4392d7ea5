"""A network learns to balance a pole on a cart by deep Q-learning (Mnih et al. 2015): a small step, a look at it, thousands of times.

The cart is that of Barto, Sutton and Anderson (1983), written out below. Every step of the world asks the network for one action, so this is a
program that looks at values all the time, and whose batches are put together by indexing into a memory of what happened.

python docs/examples/cart_pole.py             # under PyTorch
torchgrad-jax run docs/examples/cart_pole.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import copy
import math
import random
import time

import matplotlib
import torch
import torch.nn.functional as F
from torch import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

LONGEST, BATCH, DISCOUNT, MEMORY = 200, 64, 0.98, 10_000


class Cart:
    """A pole of 1 m on a cart that is pushed to the left or to the right 50 times a second."""

    def begin(self):
        self.state, self.steps = [random.uniform(-0.05, 0.05) for _ in range(4)], 0
        return self.state

    def push(self, action):
        """The new state, and whether the pole has fallen or the cart has left."""
        x, v, angle, turning = self.state
        force, sin, cos = 10.0 if action else -10.0, math.sin(angle), math.cos(angle)
        part = (force + 0.05 * turning**2 * sin) / 1.1
        acceleration = (9.8 * sin - cos * part) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pushed = part - 0.05 * acceleration * cos / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * pushed, angle + 0.02 * turning, turning + 0.02 * acceleration]
        self.steps += 1
        return self.state, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21


class Memory:
    """What happened last: states, actions, the states after them, and whether that was the end."""

    def __init__(self):
        self.before, self.after = torch.zeros(MEMORY, 4), torch.zeros(MEMORY, 4)
        self.actions, self.over = torch.zeros(MEMORY, dtype=torch.int64), torch.zeros(MEMORY)
        self.count = 0

    def add(self, before, action, after, over):
        at = self.count % MEMORY
        self.before[at], self.after[at] = torch.tensor(before), torch.tensor(after)
        self.actions[at], self.over[at] = action, float(over)
        self.count += 1

    def sample(self):
        at = torch.randint(min(self.count, MEMORY), (BATCH,))
        return self.before[at], self.actions[at], self.after[at], self.over[at]


def learn(network, target, memory, optimizer):
    before, actions, after, over = memory.sample()
    found = network(before).gather(1, actions[:, None])[:, 0]
    with torch.no_grad():
        best = network(after).argmax(1, keepdim=True)  # double Q-learning (van Hasselt et al. 2016)
        wanted = 1 + DISCOUNT * (1 - over) * target(after).gather(1, best)[:, 0]
    loss = F.smooth_l1_loss(found, wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(network.parameters(), 1.0)
    optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6_000, help="of the world")
    parser.add_argument("--picture", default="cart_pole.png", metavar="FILE")
    options = parser.parse_args()

    torch.manual_seed(0)
    random.seed(0)
    network = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target, memory, cart = copy.deepcopy(network), Memory(), Cart()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    lengths, state = [], cart.begin()
    start = time.perf_counter()
    for step in range(options.steps):
        if random.random() < max(0.05, 1 - step / 2_000):
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = network(torch.tensor(state)).argmax().item()
        after, over = cart.push(action)
        memory.add(state, action, after, over)
        state = after
        if over or cart.steps == LONGEST:
            lengths.append(cart.steps)
            state = cart.begin()
            if len(lengths) % 25 == 0:
                print(f"step {step:5d}  episode {len(lengths):3d}  the last ten lasted {sum(lengths[-10:]) / 10:.1f}")
        if step >= 500 and step % 2 == 0:
            learn(network, target, memory, optimizer)
        if step % 200 == 0:
            target.load_state_dict(network.state_dict())
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s")
    print(f"the last ten episodes lasted {sum(lengths[-10:]) / 10:.1f} of {LONGEST}")

    figure, axis = plt.subplots(figsize=(7, 4))
    axis.plot(lengths)
    axis.set(xlabel="episode", ylabel="steps until the pole fell")
    figure.savefig(options.picture, dpi=100, bbox_inches="tight")


if __name__ == "__main__":
    main()
