"""Recurrent layers, and single steps of them: the same with JAX, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import nn
from jax import numpy as jnp

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Make, Record

SIZES = 2, 3  # of the input and of the state


def plain(activation: Callable[[Any], Any]) -> Callable[..., Any]:
    """A step of a plain layer."""
    return lambda x, h, w, u, b, d: activation(x @ w.T + b + h @ u.T + d)


def gru(x, h, w, u, b, d):
    """A step of gated recurrent units."""
    (r, z, n), (hr, hz, hn) = jnp.split(x @ w.T + b, 3, -1), jnp.split(h @ u.T + d, 3, -1)
    z = nn.sigmoid(z + hz)
    return (1 - z) * jnp.tanh(n + nn.sigmoid(r + hr) * hn) + z * h


def lstm(x, h, c, w, u, b, d):
    """A step of an LSTM."""
    i, f, g, o = jnp.split(x @ w.T + b + h @ u.T + d, 4, -1)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
    return nn.sigmoid(o) * jnp.tanh(c), c


def weights(make: Make, gates: int) -> list[Any]:
    """Those of one direction of a layer."""
    given, state = SIZES
    return [make(gates * state, given), make(gates * state, state), make(gates * state), make(gates * state)]


def cell(name: str, gates: int, step: Callable[..., Any], states: int = 1) -> Record:
    """One step."""
    ours = getattr(tj, name)
    function = ours if states == 1 else lambda x, h, c, *w: ours(x, (h, c), *w)
    return Record(name, lambda make: [(make(2, SIZES[0]), *[make(2, SIZES[1]) for _ in range(states)], *weights(make, gates))], step, function, REAL)


def layer(name: str, gates: int, step: Callable[..., Any], states: int = 1) -> Record:
    """A layer in both directions."""

    def samples(make: Make):
        yield make(4, 2, SIZES[0]), *[make(2, 2, SIZES[1]) for _ in range(states)], *weights(make, gates), *weights(make, gates)

    def function(x, *rest):
        begin = list(rest[:states])
        return getattr(tj, name)(x, begin if states > 1 else begin[0], list(rest[states:]), True, 1, 0.0, False, True, False)

    def by_jax(x, *rest):
        outputs, ends = [], []
        for i, order in enumerate((range(len(x)), reversed(range(len(x))))):
            state, w, found = [s[i] for s in rest[:states]], rest[states + 4 * i : states + 4 * i + 4], {}
            for t in order:
                made = step(x[t], *state, *w)
                state = list(made) if states > 1 else [made]
                found[t] = state[0]
            outputs.append(jnp.stack([found[t] for t in range(len(x))]))
            ends.append(state)
        return jnp.concatenate(outputs, -1), *[jnp.stack(kind) for kind in zip(*ends, strict=True)]

    return Record(name, samples, by_jax, function, REAL)


KINDS = {"lstm": (4, lstm, 2), "gru": (3, gru), "rnn_tanh": (1, plain(jnp.tanh)), "rnn_relu": (1, plain(nn.relu))}
RECORDS = [*[layer(name, *kind) for name, kind in KINDS.items()], *[cell(f"{name}_cell", *kind) for name, kind in KINDS.items()]]
