"""Statements that write to tensors and change their memory."""

from __future__ import annotations

from compat_suite.fuzz.author import Author, overlaps_itself


def write(author: Author) -> str | None:
    a = author.target()
    if a is None:
        return None
    operation = author.pick(["add_", "mul_", "sub_", "copy_", "div_"])
    return f"{a}.{operation}({author.source(a) if author.pick([True, True, False]) else author.number()})"


def write_function(author: Author) -> str | None:
    a = author.target()
    return a and f"{a}.{author.pick(['zero_()', 'fill_(2.5)', 'tanh_()', 'exp_()', 'sin_()', 'neg_()', 'clamp_(min=0.0)', 'sigmoid_()'])}"


def write_item(author: Author) -> str | None:
    a = author.viewable_target()
    if a is None:
        return None
    return f"{a}[{author.key(a)}] {author.pick(['=', '=', '=', '*=', '+='])} {author.pick([lambda: author.source(a), author.number])()}"


def write_masked(author: Author) -> str | None:
    a = author.target()
    if a is None:
        return None
    return author.pick([f"{a}.masked_fill_({a} > 0, {author.number()})", f"{a}[{a} > 0] = {author.number()}"])


def write_data(author: Author) -> str | None:
    # Integers may be indices that were saved: whether they are in range is told at once or not at all.
    a = author.twinnable(lambda x: x.is_floating_point() and not overlaps_itself(x))
    return a and f"{a}.data.{author.pick(['mul_(2)', 'zero_()', 'add_(1)'])}"


def set_data(author: Author) -> str | None:
    # A view with new memory is no view here; whose memory an inference tensor's is, is not a tensor's own matter here. What was saved of a tensor
    # without a gradient is told from what was saved of its twins only where it never had any.
    a = author.twinnable(lambda x: x._base is None and not x.is_inference() and x.requires_grad)
    if a is None:
        return None
    # Another shape is an error only later, and not always the same; memory of another tensor's view has no way back to a base.
    shape, dtype = author.of(a).shape, author.of(a).dtype
    whole = author.twinnable(
        lambda x: x.shape == shape and x.dtype == dtype and x._base is None and not x.is_inference()
        and x.untyped_storage().nbytes() == x.element_size() * x.numel()
    )  # fmt: skip
    if whole is None:
        return None
    made = author.pick([whole, whole, f"plain({whole}.detach() * 2)", author.number()])
    return f"{a}.data = {made} if not torch.is_inference_mode_enabled() else {a}"


def out(author: Author) -> str | None:
    a = author.target()
    if a is None:
        return None
    b = author.source(a)
    if b not in author.run.space or author.of(b).shape != author.of(a).shape:
        return None
    return f"torch.{author.pick(['mul', 'add'])}({a}, {b}, out={a})"


def write_layout(author: Author) -> str | None:
    # Without grad mode a graph would be left with another shape.
    a = author.viewable(lambda x: not x.is_inference())
    if a is None:
        return None
    author.mark(author.viewed, author.of(a))  # to us it is a view of its own memory
    kinds = [f"transpose_({author.dim(a)}, {author.dim(a)})", "t_()", f"unsqueeze_({author.dim(a, 1)})", "squeeze_()", f"squeeze_({author.dim(a)})"]
    return f"{a}.{author.pick(kinds)} if torch.is_grad_enabled() else None"


def write_indexed(author: Author) -> str | None:
    """Writes by an index."""
    a = author.target(lambda x: x.dim() and x.shape[0] > 1)
    if a is None:
        return None
    index, b = "torch.tensor([1, 0])", author.number()
    kinds = [f"index_fill_(0, {index}, {b})", f"index_add_(0, {index}, {a}[:2].clone())", f"index_copy_(0, {index}, {a}[:2].clone())",
             f"index_put_(({index},), torch.tensor({b}, dtype={a}.dtype), accumulate=True)",
             f"scatter_({author.dim(a)}, torch.zeros({tuple(author.of(a).shape)}, dtype=torch.int64), {b})",
             f"masked_scatter_({a} > 0, {a}.detach() * 2)"]  # fmt: skip
    return f"{a}.{author.pick(kinds)}"


def write_whole(author: Author) -> str | None:
    """Writes by a combination of tensors."""
    a = author.target()
    if a is None:
        return None
    b = author.source(a)
    kinds = [f"addcmul_({b}, {b}, value=0.5)", f"add_({b}, alpha=2)", f"lerp_({b}, 0.5)", f"copy_({b})", f"pow_({author.pick([2, 0.5, 3])})",
             f"clamp_({author.number()})", "relu_()", "sqrt_()", "abs_()", "round_()", "logical_not_()", f"gt_({author.number()})"]  # fmt: skip
    return f"{a}.{author.pick(kinds if b in author.run.space else kinds[4:])}"
