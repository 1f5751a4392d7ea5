"""Writes to parts by ints and slices, and writes that are recalled, held against PyTorch."""

import random
import threading
import warnings
from functools import partial

import numpy as np
import pytest

import torchgrad_jax as torch
from torchgrad_jax.calling.entries import _all, forget_all
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.runtime import baseline_tier
from torchgrad_jax.runtime.recorder import per_thread

pytorch = pytest.importorskip("torch")
DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool", "float16", "bfloat16", "complex64"]


def same(ours, theirs):
    assert list(ours.shape) == list(theirs.shape) and str(ours.dtype) == str(theirs.dtype)
    assert repr(ours.tolist()) == repr(theirs.tolist())


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def key_of(rng, shape):
    """An index of ints, slices, None and ..., now and then one that is out of range or of too many."""
    keys = []
    for n in shape[: rng.randint(1, len(shape))]:
        pick = rng.randrange(8)
        if pick < 3:
            keys.append(rng.randint(-n, n - 1 + (pick == 0 and rng.random() < 0.1)))
        elif pick < 7:
            ends = [None, *range(-n - 1, n + 2)]
            keys.append(slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, 3])))
        else:
            keys.append(slice(None))
    for extra in (None, Ellipsis):
        if rng.random() < 0.2:
            keys.insert(rng.randint(0, len(keys)), extra)
    return tuple(keys) if len(keys) > 1 or rng.random() < 0.3 else keys[0]


def write(lib, t, key, kind, number, drawn):
    """Writes a number or a tensor, as `kind` says, and gives the version."""
    part = t[key].shape
    if kind < 2:
        value = number
    elif kind == 2:
        value = lib.tensor(drawn[0]).to(t.dtype)
    elif kind == 3:
        value = (lib.arange(int(np.prod(part))) % 2).reshape(part).to(t.dtype if drawn[1] else lib.float32)
    else:
        value = t[key] * 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t[key] = value
    return t._version


@pytest.mark.operators
@pytest.mark.parametrize("seed", range(120))
def test_parts_that_are_written_to_are_pytorchs(seed):
    if seed % 6:
        write_at_random(seed)
    else:
        with baseline_tier(False):
            write_at_random(seed)


def write_at_random(seed):
    rng = random.Random(seed)
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 4))]
    name = rng.choice(DTYPES)
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 7
    pairs = [lib.tensor(numbers.tolist()).to(getattr(lib, name)) for lib in (torch, pytorch)]
    for _ in range(8):
        key, kind = key_of(rng, shape), rng.randrange(5)
        number = rng.choice([0, 1, 2, True, -0.0, 2.5, 100]) if name not in ("uint8", "bool") else rng.choice([0, 1, True])
        drawn = [random.Random(seed).randint(0, 1) for _ in range(3)]
        results = []
        for lib, t in zip((torch, pytorch), pairs, strict=True):
            results.append(outcome(partial(write, lib, t, key, kind, number, drawn)))
        assert results[0] == results[1]
        if rng.random() < 0.4:
            same(*pairs)
    same(*pairs)


def names_since(before):
    """The operations that were recorded since a Step, the last one first."""
    names, step = [], per_thread.recorder.epoch.step
    while step is not before:
        names.append(step.signature.bop.operator.name if step.signature is not None else "")
        step = step.parent
    return names


@pytest.mark.operators
def test_a_write_to_a_part_is_one_operation():
    z = torch.zeros(4, 5)
    z[0, 0] = 1.0
    before = per_thread.recorder.epoch.step
    for i in range(3):
        z[i, 1:4] = float(i)
        z[i] = torch.arange(5.0)
    names = names_since(before)
    assert sum(name.startswith("put_part") for name in names) == 6 and "select" not in names
    assert z.tolist() == [[0, 1, 2, 3, 4]] * 3 + [[0] * 5]


def test_what_a_graph_follows_is_written_with_one():
    for lib in (torch, pytorch):
        x = lib.ones(3, requires_grad=True)
        z = lib.zeros(2, 3)
        z[0] = x * 2
        z[1, 2] = 5.0
        z.sum().backward()
        assert x.grad.tolist() == [2, 2, 2] and z.grad_fn.name().endswith("CopySlices")
        with pytest.raises(RuntimeError, match="leaf Variable"):
            x[0] = 1.0
        with lib.no_grad():
            x[0] = 7.0
        assert x.tolist() == [7, 1, 1] and x._version == 1
        y = lib.tensor([1.0, 2.0], requires_grad=True) * 1
        square = y * y
        with lib.no_grad():
            y[0] = 3.0
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()


def test_views_and_bases_see_writes_to_parts():
    for lib in (torch, pytorch):
        z = lib.zeros(3, 4)
        row, flat, twin = z[1], z.view(-1), z.detach()
        z[1, 2] = 3.0
        assert row.tolist() == [0, 0, 3, 0] and flat[6] == 3 and twin[1, 2] == 3
        row[0] = 4.0
        z[:, 1] = row[:3]
        assert z[:, 1].tolist() == [4, 0, 3]
        z[0] = z[1]
        z[0:2] = z[1:3] * 1
        with pytest.raises(RuntimeError, match="single memory location"):
            z[0:2] = z[1:3]
        assert flat.tolist() == z.flatten().tolist()


# ---------------------------------------------------------------------- writes that are recalled

WRITES = {
    "index_add_": lambda lib, z, i, v, n: z.index_add_(0, i, v, alpha=2),
    "index_copy_": lambda lib, z, i, v, n: z.index_copy_(0, i, v),
    "index_fill_": lambda lib, z, i, v, n: z.index_fill_(1, i, n),
    "scatter_": lambda lib, z, i, v, n: z.scatter_(0, i[:, None], v[:, :1]),
    "scatter_ of a number": lambda lib, z, i, v, n: z.scatter_(0, i[:, None], n),
    "scatter_add_": lambda lib, z, i, v, n: z.scatter_add_(0, i[:, None].expand(2, 3), v),
    "copy_": lambda lib, z, i, v, n: z.copy_(v[0]),
    "masked_fill_": lambda lib, z, i, v, n: z.masked_fill_(z > 1, n),
    "addcmul_": lambda lib, z, i, v, n: z.addcmul_(v[:1], v[1:], value=0.5),
    "lerp_": lambda lib, z, i, v, n: z.lerp_(v[:1], 0.25),
    "clamp_": lambda lib, z, i, v, n: z.clamp_(-0.5, n),
    "zero_": lambda lib, z, i, v, n: z.zero_(),
    "fill_": lambda lib, z, i, v, n: z.fill_(v[0, 0]),
    "at integers": lambda lib, z, i, v, n: z.__setitem__(i, n),
    "at integers, rows": lambda lib, z, i, v, n: z.__setitem__(i, v),
    "at two": lambda lib, z, i, v, n: z.__setitem__((i, 1), n),
    "at pairs": lambda lib, z, i, v, n: z.__setitem__((i, i.flip(0)), v[:, 0]),
    "at a mask": lambda lib, z, i, v, n: z.__setitem__(z > 1, n),
    "at a mask, values": lambda lib, z, i, v, n: z.__setitem__(z > 1, v.flatten()[: int((z > 1).sum())]),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_are_recalled_are_pytorchs(name):
    forget_all()
    rng = np.random.default_rng(0)
    write = WRITES[name]
    for follows in (False, True, False, True):
        for _ in range(4):
            z, v = rng.normal(size=(3, 3)).astype("f"), rng.normal(size=(2, 3)).astype("f")
            i, number = rng.permutation(3)[:2], float(rng.choice([0.0, 1.5, 2.0]))
            found = []
            for lib in (torch, pytorch):
                leaf = lib.tensor(v.tolist(), requires_grad=follows)
                target = lib.tensor(z.tolist(), requires_grad=follows) * 1
                made = write(lib, target, lib.tensor(i.tolist()), leaf, number)
                assert made is None or made is target
                grad = None
                if target.requires_grad and target.sum().grad_fn is not None:
                    (grad,) = lib.autograd.grad(target.pow(2).sum(), leaf, allow_unused=True)
                node = None if target.grad_fn is None else target.grad_fn.name()
                found.append((target.detach().tolist(), grad if grad is None else grad.tolist(), target._version, node))
            assert found[0][2:] == found[1][2:] and (found[0][1] is None) == (found[1][1] is None)
            np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
            if found[0][1] is not None:
                np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)


def test_a_recalled_write_is_refused_as_any():
    forget_all()
    for lib in (torch, pytorch):
        value = lib.ones(2, 3)
        for _ in range(4):
            lib.zeros(3, 3).index_copy_(0, lib.tensor([0, 2]), value)
            lib.zeros(3, 3).copy_(value[0])
        with pytest.raises((IndexError, RuntimeError)):
            z = lib.zeros(3, 3)
            z.index_copy_(0, lib.tensor([0, 5]), value)
            z.tolist()
        with pytest.raises(RuntimeError, match="single memory location"):
            lib.zeros(1, 3).expand(3, 3).copy_(value[:1].expand(3, 3) * 1)
        with pytest.raises(RuntimeError, match="leaf Variable"):
            lib.zeros(3, 3, requires_grad=True).copy_(value[0])
        z = lib.zeros(3, 3)
        view = z[:, :]
        view.copy_(value[0])
        assert z.tolist() == [[1, 1, 1]] * 3
        with lib.inference_mode():
            inside = lib.zeros(3, 3)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            inside.copy_(value[0])


@pytest.mark.operators
def test_writes_are_recalled():
    forget_all()
    z, i = torch.zeros(3, 3), torch.tensor([0, 2])
    for n in range(4):
        z.index_add_(0, i, torch.ones(2, 3))
        z[i] = float(n)
    known = [entry.bound.name for calls in (r() for r in _all) if calls is not None and calls.writes for entry in calls.kinds()]
    assert sorted(known) == ["index_add", "index_put", "index_put", "index_put", "index_put"]
    assert z.tolist() == [[3, 3, 3], [0, 0, 0], [3, 3, 3]]


def test_several_writes_are_not_taken_for_one():
    def in_place(t, v):
        t.copy_(v)
        return t.add_(1.0)

    def to_a_part(t, v):
        t.copy_(v)
        t[0] = 7.0
        return t

    both, part = recalling(in_place, writes=True), recalling(to_a_part, writes=True)
    for n in range(4):
        v = torch.tensor([1.0, 2.0, 3.0]) * n
        assert both(torch.zeros(3), v).tolist() == [n + 1, 2 * n + 1, 3 * n + 1]
        assert part(torch.zeros(3), v).tolist() == [7, 2 * n, 3 * n]


@pytest.mark.operators
def test_what_another_thread_writes_is_not_taken_for_a_write_of_ones_own():
    other = torch.zeros(3)

    def write(t, v):
        thread = threading.Thread(target=lambda: other.index_add_(0, torch.tensor([0]), torch.ones(1)))
        thread.start()
        thread.join()
        return t.copy_(v)

    call = recalling(write, writes=True)
    for n in range(4):
        v = torch.tensor([1.0, 2.0, 3.0]) * n
        assert call(torch.zeros(3), v).tolist() == v.tolist()
    assert other[0] == 1  # from its second call on it is recalled


def nested_view(rng, t):
    """A view of a view of one, by ints and slices, and the keys."""
    keys = []
    for _ in range(rng.randint(2, 4)):
        dim = rng.randrange(max(t.ndim, 1))
        if not t.ndim or not t.shape[dim]:
            break
        n = t.shape[dim]
        own = rng.randrange(n) if rng.random() < 0.4 and t.ndim > 1 else slice(rng.randrange(n), rng.randint(0, n), rng.choice([None, 1, 2]))
        keys.append((*[slice(None)] * dim, own))
        t = t[keys[-1]]
    return keys


@pytest.mark.operators
@pytest.mark.parametrize("seed", range(60))
def test_views_of_views_that_are_written_to_are_pytorchs(seed):
    rng = random.Random(seed)
    shape = tuple([rng.randint(1, 5) for _ in range(rng.randint(1, 4))])
    numbers = np.random.default_rng(seed).normal(size=shape)
    dtype, followed = rng.choice(["float32", "float64", "int64", "complex64"]), rng.random() < 0.5
    keys = nested_view(rng, torch.zeros(shape))

    def run(lib):
        leaf = lib.tensor(numbers).to(getattr(lib, dtype))
        follows = followed and dtype != "int64"
        whole = leaf.clone().requires_grad_(follows) * 1
        found = []
        for turn in range(7):
            part = whole
            for key in keys:
                part = part[key]
            part.mul_(2) if turn % 2 else part.add_(part.flatten()[:1].sum() if part.numel() else 1)
            found += [part.clone(), whole.clone(), part._version]
        if follows:
            start = leaf.clone().requires_grad_()
            part = whole = start * 1
            for key in keys:
                part = part[key]
            part.mul_(part.detach().clone())
            (whole * whole).abs().sum().backward()
            found.append(start.grad)
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = run(torch), run(pytorch)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, int):
            assert a == b
        else:
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4)
            assert list(a.shape) == list(b.shape)


@pytest.mark.operators
@pytest.mark.parametrize("keys", [
    (slice(1, None), (slice(None), 0)), (1, slice(2, None)), (slice(1, None), slice(1, None, 2)), (slice(2, None, 2), (slice(None), slice(1, 3))),
])  # fmt: skip
def test_a_write_to_a_view_of_a_view_is_one_operation(keys):
    t = torch.zeros(6, 6) * 1
    wanted = np.zeros((6, 6))
    part, right = t, wanted
    for key in keys:
        part, right = part[key], right[key]
    before = per_thread.recorder.epoch.step
    part.add_(1)
    written = [name for name in names_since(before) if name not in ("slice", "select")]  # the part is read first
    assert written == ["put_part" + str(1 if keys[-1] == slice(1, None, 2) else 2), "add"]
    right += 1
    np.testing.assert_array_equal(t.numpy(), wanted)


def test_a_write_to_a_view_of_a_view_within_transforms():
    def write(x):
        y = x * 1
        y[1:][:, 0].mul_(x[0, 1])
        return y

    x = torch.arange(18.0).reshape(2, 3, 3)
    for i, found in enumerate(torch.func.vmap(write)(x)):
        np.testing.assert_array_equal(found.numpy(), write(x[i]).numpy())
    jacobian = torch.func.jacrev(write)(x[0])
    np.testing.assert_allclose(torch.func.jacfwd(write)(x[0]).numpy(), jacobian.numpy())
    np.testing.assert_allclose(torch.autograd.functional.jacobian(write, x[0]).numpy(), jacobian.numpy())


PARTS = {
    "rows": lambda x: x[1].add_(x[2]),
    "columns": lambda x: x[:, 1].div_(x[:, 2]),
    "a corner": lambda x: x[:, 0].div_(x[0, 1]),
    "every other": lambda x: x[::2].sub_(x[1::2]),
    "beside": lambda x: x[2:].mul_(x[:2]),
    "the same": lambda x: x[0].add_(x[0]),
    "the same, turned": lambda x: x[0].add_(x[0].view(2, 2).view(4)),
    "shifted": lambda x: x[1:].add_(x[:-1]),
    "shifted columns": lambda x: x[:, :2].add_(x[:, 1:3]),
    "a diagonal": lambda x: x.diagonal().mul_(x[:, 1]),
    "all by one": lambda x: x.t().div_(x[1, 1]),
    "some by the first": lambda x: x[:2].sub_(x[0]),
    "a number": lambda x: x[1:, 2].div_(2),
    "a number that is no float": lambda x: x.long()[1].div_(2),
    "whole": lambda x: x.div_(x.clone()),
    "rounded": lambda x: x[1].div_(3, rounding_mode="floor"),
    "rounded wrongly": lambda x: x[1].div_(3, rounding_mode="up"),
    "nothing": lambda x: x[1].div_(),
    "sizes": lambda x: x[1].div_(x[1, :3].clone()),
}


@pytest.mark.parametrize("write", PARTS.values(), ids=PARTS)
def test_one_part_by_another_of_the_same_memory(write):
    """Of which neither is what the other has: else both refuse."""
    both = [library.arange(1.0, 17.0).reshape(4, 4) for library in (torch, pytorch)]
    for _ in range(3):
        found = [outcome(partial(write, x)) for x in both]
        if isinstance(found[1], str):
            assert found[0] == found[1]
        else:
            same(*found)
        same(*both)
