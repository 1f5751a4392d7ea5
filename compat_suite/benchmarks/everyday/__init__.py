"""Small programs of the kinds that people write, each written out as its author would.

A program is a function of a torch-shaped namespace: it seeds the generator, builds everything, and returns the step that is timed.
"""

from collections.abc import Callable
from typing import Any

from compat_suite.benchmarks.everyday import derivatives, generative, networks, numerics, sequences, transforms

PROGRAMS: dict[str, Callable[[Any], Callable[[], float]]] = {
    program.__name__: program for family in (generative, networks, sequences, derivatives, transforms, numerics) for program in family.PROGRAMS
}
