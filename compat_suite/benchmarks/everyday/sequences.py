"""Text, time series and episodes: what comes one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def gru_cell(T: Any) -> Callable[[], float]:
    """A recurrent cell in a loop over time."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    cell, head = nn.GRUCell(32, 64), nn.Linear(64, 1)
    optimizer = T.optim.SGD([*cell.parameters(), *head.parameters()], 0.01)
    x, y = T.randn(50, 32, 32), T.randn(32, 1)

    def step() -> float:
        h = T.zeros(32, 64)
        for t in range(50):
            h = cell(x[t], h)
        loss = F.mse_loss(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def lstm(T: Any) -> Callable[[], float]:
    """An LSTM that predicts from its last output."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    model, head = nn.LSTM(16, 32, 1, batch_first=True), nn.Linear(32, 1)
    optimizer = T.optim.Adam([*model.parameters(), *head.parameters()], 1e-3)
    x, y = T.randn(16, 20, 16), T.randn(16, 1)

    def step() -> float:
        loss = F.mse_loss(head(model(x)[0][:, -1]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def transformer(T: Any) -> Callable[[], float]:
    """A transformer encoder of two layers, with dropout."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = T.optim.AdamW(model.parameters(), 1e-3)
    x, y = T.randn(8, 32, 64), T.randn(8, 32, 64)

    def step() -> float:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def embedding_text(T: Any) -> Callable[[], float]:
    """A text classifier on the mean of the words' embeddings."""
    nn, F = T.nn, T.nn.functional
    T.manual_seed(0)
    embedding, head = nn.Embedding(2000, 64), nn.Linear(64, 4)
    optimizer = T.optim.SGD([*embedding.parameters(), *head.parameters()], 0.1)
    words, y = T.randint(0, 2000, (64, 40)), T.randint(0, 4, (64,))

    def step() -> float:
        loss = F.cross_entropy(head(embedding(words).mean(1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def policy_gradient(T: Any) -> Callable[[], float]:
    """REINFORCE over an episode of ten actions, each drawn and looked at."""
    nn = T.nn
    T.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = T.optim.Adam(policy.parameters(), 1e-2)

    def step() -> float:
        state, log_probabilities, rewards = T.zeros(4), [], []
        for _ in range(10):
            choices = T.distributions.Categorical(logits=policy(state))
            action = choices.sample()
            log_probabilities.append(choices.log_prob(action))
            state = state * 0.9 + (action.item() - 0.5) * T.tensor([0.1, 0.2, -0.1, 0.3])
            rewards.append(float(state.sum()))
        reward = T.tensor(rewards)
        loss = -(T.stack(log_probabilities) * (reward - reward.mean()) / (reward.std() + 1e-6)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


PROGRAMS = (gru_cell, lstm, transformer, embedding_text, policy_gradient)
