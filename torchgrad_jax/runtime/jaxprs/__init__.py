"""Jaxprs that are written down: those of the element-wise operations that programs begin with, which a trace takes ten times as long to find.

`table.txt` has one line for each: what the operation is, what its operands are, and the jaxpr that its trace gives. What is not in it is traced. The
interpreter makes its plan of either; what XLA compiles is always traced. ``python -m compat_suite.jaxprs`` writes the table.
"""

from torchgrad_jax.runtime.jaxprs.reading import VERSION, Found, find, key_of, specs_text, table, write
from torchgrad_jax.runtime.jaxprs.writing import NotWritten, written

__all__ = ["VERSION", "Found", "NotWritten", "find", "key_of", "specs_text", "table", "write", "written"]
