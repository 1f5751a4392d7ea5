"""A GPT's training step with AdamW: modules of `torch.nn`, attention, cross entropy, and an optimizer of `torch.optim`."""

from __future__ import annotations

from typing import Any

import numpy as np

from compat_suite.benchmarks.workloads.workload import Step, Workload, hand_over, load, normal, training_step

VOCABULARY, CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 65, 64, 128, 4, 4, 12
RATE, DECAY = 1e-3, 0.01


def data(random: np.random.RandomState) -> dict[str, Any]:
    """Weights in the order of the modules' parameters below, and a batch of text."""

    def normed() -> list[np.ndarray]:
        return [np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)]

    def linear(inputs: int, outputs: int) -> list[np.ndarray]:
        return [normal(random, outputs, inputs, scale=0.05), normal(random, outputs, scale=0.05)]

    weights = [normal(random, VOCABULARY, WIDTH, scale=0.05), normal(random, CONTEXT, WIDTH, scale=0.05)]
    for _ in range(BLOCKS):
        weights += [*normed(), *normed(), *linear(WIDTH, 3 * WIDTH), *linear(WIDTH, WIDTH), *linear(WIDTH, 4 * WIDTH), *linear(4 * WIDTH, WIDTH)]
    weights += [*normed(), normal(random, VOCABULARY, WIDTH, scale=0.05)]
    return {"weights": weights, "tokens": random.randint(0, VOCABULARY, size=(BATCH, CONTEXT + 1))}


def in_torch(T: Any, make: Any, weights: list[np.ndarray], tokens: np.ndarray) -> Step:
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            q, k, v = [t.view(BATCH, CONTEXT, HEADS, -1).transpose(1, 2) for t in self.attend(self.norm1(x)).split(WIDTH, dim=2)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))
            return x + self.narrow(F.gelu(self.widen(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(T.arange(CONTEXT, device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model, batch = load(T, GPT(), weights, make), make(tokens)
    x, y = batch[:, :-1], batch[:, 1:].reshape(-1)
    optimizer = T.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    return training_step(model.parameters(), optimizer, lambda: F.cross_entropy(model(x).view(-1, VOCABULARY), y))


def in_jax(weights: list[np.ndarray], tokens: np.ndarray) -> Step:
    import jax
    import jax.numpy as jnp

    batch = jnp.asarray(tokens)
    parameters: Any = [jnp.asarray(w) for w in weights]
    states: Any = [(jnp.zeros_like(p), jnp.zeros_like(p)) for p in parameters]
    past = np.tril(np.ones((CONTEXT, CONTEXT), bool))

    def normed(x: Any, scale: Any, shift: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift

    def attention(x: Any, w: Any, b: Any) -> Any:
        q, k, v = [t.reshape(BATCH, CONTEXT, HEADS, -1).swapaxes(1, 2) for t in jnp.split(x @ w.T + b, 3, -1)]
        scores = jnp.where(past, q @ k.swapaxes(-1, -2) / (WIDTH / HEADS) ** 0.5, -jnp.inf)
        return (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(BATCH, CONTEXT, WIDTH)

    def loss_of(parameters: Any) -> Any:
        embedded, places, *rest = parameters
        x = embedded[batch[:, :-1]] + places
        for i in range(BLOCKS):
            g1, h1, g2, h2, wa, ba, wp, bp, ww, bw, wn, bn = rest[12 * i : 12 * i + 12]
            x = x + attention(normed(x, g1, h1), wa, ba) @ wp.T + bp
            x = x + jax.nn.gelu(normed(x, g2, h2) @ ww.T + bw, approximate=False) @ wn.T + bn
        scale, shift, head = rest[12 * BLOCKS :]
        found = jax.nn.log_softmax(normed(x, scale, shift) @ head.T, -1)
        return -jnp.take_along_axis(found, batch[:, 1:, None], -1).mean()

    def moved(p: Any, state: Any, grad: Any, t: Any) -> Any:
        m, v = 0.9 * state[0] + 0.1 * grad, 0.999 * state[1] + 0.001 * grad * grad
        return p * (1 - RATE * DECAY) - RATE * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), (m, v)

    @jax.jit
    def update(parameters: Any, states: Any, t: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(parameters)
        found = [moved(p, state, grad, t) for p, state, grad in zip(parameters, states, grads, strict=True)]
        return loss, grads, [p for p, _ in found], [state for _, state in found]

    taken = 0

    def step(gradients: list[Any] | None = None) -> float:
        nonlocal parameters, states, taken
        taken += 1
        loss, grads, parameters, states = update(parameters, states, float(taken))
        hand_over(gradients, grads)
        return float(loss)

    return step


WORKLOADS = {"gpt": Workload(data, in_torch, in_jax)}
