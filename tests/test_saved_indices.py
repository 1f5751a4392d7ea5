"""Indices and masks that nodes save: who writes to them before backward is told, as in PyTorch, and who may."""

import pytest

from tests.side_by_side import like_pytorch, programs

program, test_like_pytorch = programs()


def _row(m):
    return m.tensor([0, 2])


def _places(m):
    return m.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])


def _mask(m):
    return m.tensor([[True, False, True, True]] * 3)


def _rows(m):
    return m.tensor([True, False, True])


def _bytes(m):
    return m.tensor([1, 0, 1], dtype=m.uint8)


def _ones(m):
    return m.ones(2, 4, dtype=m.float64)


def _zeros(m):
    return m.zeros(3, 4, dtype=m.float64)


def _written(target, index, value):
    target[index] = value
    return target


def _ctc(m, x, targets, inputs, lengths):
    return m.nn.functional.ctc_loss(x[:, None].log_softmax(-1), targets, inputs, lengths)


CALLS = {
    "x[mask]": (_mask, lambda m, x, i: x[i]),
    "x[rows]": (_rows, lambda m, x, i: x[i]),
    "x[rows][:, 0]": (_rows, lambda m, x, i: x[i][:, 0]),
    "x[bytes]": (_bytes, lambda m, x, i: x[i]),
    "x[rows, index]": (_rows, lambda m, x, i: x[i, m.tensor([1, 2])]),
    "x[view of mask]": (_mask, lambda m, x, i: x[i.view(-1).view(3, 4)]),
    "x[part of mask]": (lambda m: m.tensor([True, False, True, False]), lambda m, x, i: x[i[:3]]),
    "x[~mask]": (_mask, lambda m, x, i: x[~i]),
    "x[index]": (_row, lambda m, x, i: x[i]),
    "x[:, index]": (_row, lambda m, x, i: x[:, i]),
    "x[0-dim index]": (lambda m: m.tensor(1), lambda m, x, i: x[i]),
    "x[0-dim mask]": (lambda m: m.tensor(True), lambda m, x, i: x[i]),
    "x[mask] = 0": (_mask, lambda m, x, i: _written(x.clone(), i, 0)),
    "x[mask] = x[mask]": (_mask, lambda m, x, i: _written(x.clone(), i, x[i] * 2)),
    "x[rows] = row": (_rows, lambda m, x, i: _written(_zeros(m), i, x[0])),
    "x[index] = 0": (_row, lambda m, x, i: _written(x.clone(), i, 0)),
    "masked_select": (_mask, lambda m, x, i: m.masked_select(x, i)),
    "masked_select, broadcast": (_rows, lambda m, x, i: m.masked_select(x, i[:, None])),
    "masked_fill": (_mask, lambda m, x, i: x.masked_fill(i, 0.0)),
    "masked_fill, of a tensor": (_mask, lambda m, x, i: x.detach().masked_fill(i, x.sum())),
    "masked_scatter": (_mask, lambda m, x, i: x.masked_scatter(i, x * 2)),
    "where": (_mask, lambda m, x, i: m.where(i, x, 0.0)),
    "gather": (_places, lambda m, x, i: x.gather(0, i)),
    "take_along_dim": (_places, lambda m, x, i: m.take_along_dim(x, i, 0)),
    "take": (_row, lambda m, x, i: x.take(i)),
    "index_select": (_row, lambda m, x, i: x.index_select(0, i)),
    "embedding": (_row, lambda m, x, i: m.nn.functional.embedding(i, x)),
    "index_add, into": (_row, lambda m, x, i: x.index_add(0, i, _ones(m))),
    "index_add, of": (_row, lambda m, x, i: _zeros(m).index_add(0, i, x[:2])),
    "index_copy": (_row, lambda m, x, i: x.index_copy(0, i, _ones(m))),
    "index_fill": (_row, lambda m, x, i: x.index_fill(0, i, 1.0)),
    "index_put": (_row, lambda m, x, i: x.index_put((i,), _ones(m))),
    "index_put, of a mask": (_rows, lambda m, x, i: _zeros(m).index_put((i,), x[:2])),
    "index_put_, added": (_rows, lambda m, x, i: x.clone().index_put_((i,), _ones(m), accumulate=True)),
    "scatter": (_places, lambda m, x, i: _zeros(m).scatter(0, i, x)),
    "scatter_add, into": (_places, lambda m, x, i: x.scatter_add(0, i, _ones(m))),
    "scatter_reduce": (_places, lambda m, x, i: x.scatter_reduce(0, i, _ones(m), "amax")),
    "repeat_interleave": (lambda m: m.tensor([1, 2, 1]), lambda m, x, i: x.repeat_interleave(i, 0)),
    "nll_loss": (lambda m: m.tensor([0, 1, 2]), lambda m, x, i: m.nn.functional.nll_loss(x, i)),
    "ctc_loss, targets": (lambda m: m.tensor([[1, 2]]), lambda m, x, i: _ctc(m, x, i, m.tensor([3]), m.tensor([2]))),
    "ctc_loss, lengths": (lambda m: m.tensor([2]), lambda m, x, i: _ctc(m, x, m.tensor([[1, 2]]), m.tensor([3]), i)),
}


@pytest.mark.parametrize("name", CALLS)
def test_who_writes_to_what_was_saved_is_told(name):
    make, call = CALLS[name]

    def of(m):
        x = m.arange(12, dtype=m.float64).reshape(3, 4).clone().requires_grad_()
        found = []
        for _ in range(3):  # a graph that comes back is recognized, and walked another way
            x.grad, index = None, make(m)
            y = call(m, x, index)
            index.fill_(1)
            try:
                y.sum().backward()
                found.append(x.grad.tolist())
            except RuntimeError as error:
                found.append(str(error))
        return found

    like_pytorch(of)()


@program
def a_mask_is_written_to_through_a_part_of_it(m):
    x, mask = _ones(m).requires_grad_(), m.tensor([[True, False, True, True]] * 2)
    y = x[mask]
    mask[0].fill_(False)
    y.sum().backward()


@program
def a_mask_may_be_written_to_behind_backward_and_before_the_next_look(m):
    x, mask = _ones(m).requires_grad_(), m.tensor([[True, False, True, True]] * 2)
    x[mask].sum().backward()
    mask.logical_not_()
    x[mask].sum().backward()
    return x.grad


@program
def the_second_pass_sees_that_a_mask_was_written_to(m):
    x, mask = _ones(m).requires_grad_(), m.tensor([[True, False, True, True]] * 2)
    y = (x[mask] ** 2).sum()
    (grad,) = m.autograd.grad(y, x, create_graph=True)
    mask.fill_(True)
    m.autograd.grad(y, x, create_graph=True)


@program
def hooks_that_copy_masks_save_a_graph_from_writes(m):
    x, mask = _ones(m).requires_grad_(), m.tensor([[True, False, True, True]] * 2)
    with m.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = x[mask]
    mask.fill_(True)
    return m.autograd.grad(y.sum(), x)


@program
def a_mask_of_inference_mode_is_not_saved(m):
    with m.inference_mode():
        mask = m.tensor([[True, False, True, True]] * 2)
    x = _ones(m)
    return x[mask], x.requires_grad_().detach()[mask], x[mask]
