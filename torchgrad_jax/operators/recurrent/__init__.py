"""Recurrent layers: the whole of one direction, over all times, as one operator. Sequences of unequal lengths, packed and unpacked."""

from torchgrad_jax.operators.recurrent import gru, lstm, packing, plain

__all__ = ["gru", "lstm", "packing", "plain"]
