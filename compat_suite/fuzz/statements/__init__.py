"""The statements of random programs. Each writes one for the tensors that there are; None where there are none that it wants."""

from __future__ import annotations

from compat_suite.fuzz.statements import computing, differentiation, loops, views, writes

LEAVES = [computing.leaf]
# Chosen by chance, each as often as the others.
STATEMENTS = [
    *(computing.arithmetic, computing.function, computing.reduction, computing.product, computing.gather, computing.twin, computing.name),
    *(views.item, views.part, views.reorder, views.reshape, views.stretch, views.shrink, views.strided, views.several),
    *(writes.write, writes.write_function, writes.write_item, writes.write_masked, writes.write_data),
    *(writes.set_data, writes.out, writes.write_layout),
    *(differentiation.flag, differentiation.hook, differentiation.node_hook, differentiation.unhook),
    *(differentiation.backward, differentiation.gradient, differentiation.grad, computing.leaf),
    *(computing.ordered, computing.joined, computing.chosen, computing.taken, computing.cast, computing.compared),
    *(computing.integers, computing.special),
    *(writes.write_indexed, writes.write_whole, differentiation.saved_tensor, differentiation.saved_hooks, differentiation.backward),
    *(loops.training, loops.unrolled, loops.accumulated),
]
