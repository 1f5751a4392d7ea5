"""A program as a script that runs unchanged with `import torch` and with `import torchgrad_jax as torch`."""

from __future__ import annotations

import ast
import re
from functools import cache

from compat_suite.fuzz.comparison import Difference
from compat_suite.fuzz.programs import HELPERS
from compat_suite.fuzz.search import Look, Pair, Step

# How what differs is shown.
SHOWN = {
    "shape": "tuple({0}.shape)", "dtype": "{0}.dtype", "version": "{0}._version", "base": "{0}._base", "strides": "{0}.stride()",
    "offset": "{0}.storage_offset()", "contiguous": "{0}.is_contiguous()", "value": "{0}.tolist()", "grad_fn": "chain({0}.grad_fn)",
    "grad's": "{0}.grad.requires_grad, {0}.grad.grad_fn",
}  # fmt: skip
CHAIN = '''def chain(node):
    """The names of a node and of those that it passes gradients on to."""
    return node and (node.name(), [(chain(n), nr) for n, nr in node.next_functions])
'''


@cache
def _helpers() -> dict[str, str]:
    """The text of each helper by its name."""
    source, found = HELPERS.read_text(), {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.Assign | ast.Import):
            name = node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.names[0])
            found[name] = ast.get_source_segment(source, node) or ""
    return found


def used(text: str) -> list[str]:
    """The helpers that a text needs, those that they need included, in their order."""
    helpers, wanted, open_ = _helpers(), {"torch"}, [text]
    while open_:
        words = set(re.findall(r"\w+", open_.pop()))
        new = (words & helpers.keys()) - wanted
        wanted |= new
        open_ += [helpers[name] for name in new]
    return [name for name in helpers if name in wanted]


def script(steps: list[Step], found: Difference) -> str:
    """The program's text, which prints what differs."""
    pair, body = Pair(()), []
    for statement, look in steps:
        if pair.ours.do(statement) or pair.theirs.do(statement) or statement == found.statement:
            inner = "\n".join("    " + row for row in statement.split("\n"))
            body.append(f"try:\n{inner}\nexcept Exception as error:\n    print(type(error).__name__, error)")
        else:
            body.append(statement)
        if look is Look.VALUES:
            body.append("str([x.tolist() for x in list(globals().values()) if isinstance(x, torch.Tensor)])  # looks at them")
        elif look is Look.GRAPH:
            body.append("[x.grad_fn for x in list(globals().values()) if isinstance(x, torch.Tensor)]  # looks at them")
    if found.name is not None:
        body.append(f"print({SHOWN.get(found.what, f'{{0}}.{found.what}').format(found.name)})")
    elif found.what == "calls":
        body.append("print(calls)")
    elif found.what == "tensors":
        body.append("print([name for name, x in list(globals().items()) if isinstance(x, torch.Tensor)])")
    text = "\n".join(body)
    helpers = _helpers()
    head = [helpers[name] for name in used(text)]
    imports = [h for h in head if h.startswith("import")]
    short = [h for h in head if not h.startswith(("import", "def"))]
    functions = [h for h in head if h.startswith("def")] + ([CHAIN.rstrip()] if "chain(" in text else [])
    return "\n\n\n".join(part for part in ["\n".join(imports) + ("\n\n" + "\n".join(short) if short else ""), *functions, text] if part) + "\n"
