"""Random sequences of statements behave as in PyTorch: views, in-place writes, layouts, hooks, grad modes and backward passes, one after another on
the same few tensors. After each statement everything that can be seen of every tensor is compared, and what the hooks were called with.

TORCHGRAD_JAX_SEQUENCES=10000 in the environment runs that many sequences.
"""

from __future__ import annotations

import os

import pytest

import torchgrad_jax
from torchgrad_jax.runtime import execution_mode

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, settings  # noqa: E402 - needs hypothesis
from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test  # noqa: E402

from compat_suite.fuzz.author import Author  # noqa: E402 - needs torch
from compat_suite.fuzz.comparison import difference  # noqa: E402
from compat_suite.fuzz.observation import Seen  # noqa: E402
from compat_suite.fuzz.programs import Run  # noqa: E402
from compat_suite.fuzz.statements import LEAVES, STATEMENTS  # noqa: E402 - needs torch

SEQUENCES = int(os.environ.get("TORCHGRAD_JAX_SEQUENCES", "60"))


class SideBySide(RuleBasedStateMachine):
    """PyTorch and torchgrad_jax run the same statements. values: whether contents are looked at after each, or only in the end."""

    def __init__(self):
        super().__init__()
        self.author = Author(None)
        self.ours = Run(torchgrad_jax)

    @initialize(data=st.data(), mode=st.sampled_from(["fused", "eager"]), values=st.booleans())
    def begin(self, data, mode, values):
        self.mode, self.values = mode, values
        for _ in range(2):
            self.take(data, LEAVES[0])

    def take(self, data, statement):
        """Write a statement and run it in both."""
        author = self.author
        author.pick = lambda choices: data.draw(st.sampled_from(list(choices)))
        made = statement(author) if author.run.tensors() else LEAVES[0](author)
        if made is None:
            return
        taken = author.line(made)
        if taken is None:
            return
        line, expected = taken
        if expected is not None and "INTERNAL ASSERT" in expected[1]:  # PyTorch's own bug: the program goes on without the line
            author.lines.pop()
            return
        with execution_mode(self.mode):
            raised = self.ours.do(line)
            self.compare((line, raised), (line, expected), self.values)

    def compare(self, ours, theirs, values):
        """Assert that both libraries raised the same and have the same to show."""
        calls = [Seen(ours[0], run.calls, run.observe(values)) for run in (self.ours, self.author.run)]
        found = difference([Seen(*ours, None), calls[0]], [Seen(*theirs, None), calls[1]], 1e-4, second=True)
        when = "at each step" if self.values else "at the end"
        assert found is None, "\n".join(["", *self.author.lines, str(found), f"({self.mode}, values looked at {when})"])

    def teardown(self):
        if hasattr(self, "mode"):
            with execution_mode(self.mode):
                self.compare(("the end", None), ("the end", None), True)


def _rule(statement):
    def take(self, data):
        self.take(data, statement)

    take.__name__ = statement.__name__
    return rule(data=st.data())(take)


for _statement in STATEMENTS:
    setattr(SideBySide, "take_" + _statement.__name__, _rule(_statement))


def test_random_sequences_behave_as_in_pytorch():
    run_state_machine_as_test(
        SideBySide,
        settings=settings(
            max_examples=SEQUENCES, stateful_step_count=16, deadline=None, derandomize=SEQUENCES <= 200, database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
