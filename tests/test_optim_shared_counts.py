"""Parameters that have one count of steps: it counts the step of each, before its update, or where all are updated at once before all of them."""

import pytest

import torchgrad_jax as torch

OPTIMIZERS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.Adagrad, torch.optim.ASGD]


def one(i):
    return torch.nn.Parameter(torch.arange(1.0, 4.0) + i)


def step(optimizer, params):
    for p in params:
        p.grad = 2 * p.detach()
    optimizer.step()


def trained(kind, share, steps, **settings):
    params = [one(i) for i in range(3)]
    optimizer = kind(params, lr=0.1, **settings)
    for i in range(steps):
        step(optimizer, params)
        if i == 2:
            share(optimizer, params)
    return optimizer, params


def share_one(optimizer, params):
    for p in params:
        optimizer.state[p]["step"] = optimizer.state[params[0]]["step"]


def share_views(optimizer, params):
    for p in params[1:]:
        optimizer.state[p]["step"] = optimizer.state[params[0]]["step"].view(())


def share_by_loading(optimizer, params):
    state = optimizer.state_dict()
    for of_one in state["state"].values():
        of_one["step"] = state["state"][0]["step"]
    optimizer.load_state_dict(state)


def keep_apart_in_one_memory(optimizer, params):
    counts = torch.full((3,), 3.0)
    for p, count in zip(params, counts, strict=True):
        optimizer.state[p]["step"] = count


@pytest.mark.parametrize("share", [share_one, share_views, share_by_loading])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_each_update_counts(kind, share):
    optimizer, params = trained(kind, share, 9)
    alone = [one(i) for i in range(3)]
    optimizers = [kind([p], lr=0.1) for p in alone]
    for i in range(9):
        for a, p in zip(optimizers, alone, strict=True):
            if i == 3:
                a.state[p]["step"] = optimizers[0].state[alone[0]]["step"]
            step(a, [p])
    assert [optimizer.state[p]["step"].item() for p in params] == [3 + 6 * 3] * 3
    for p, expected in zip(params, alone, strict=True):
        torch.testing.assert_close(p, expected)


@pytest.mark.parametrize("settings", [{"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("share", [share_one, share_by_loading])
def test_where_all_are_updated_at_once_all_are_counted_before(share, settings):
    optimizer, params = trained(torch.optim.Adam, share, 9, **settings)
    alone, plain = trained(torch.optim.Adam, lambda *_: None, 3)
    for _ in range(6):
        for p in plain:
            alone.state[p]["step"].add_(2)
        step(alone, plain)
    assert [optimizer.state[p]["step"].item() for p in params] == [21] * 3
    for p, expected in zip(params, plain, strict=True):
        torch.testing.assert_close(p, expected)


def test_counts_beside_each_other_in_one_memory_are_apart():
    optimizer, params = trained(torch.optim.Adam, keep_apart_in_one_memory, 9)
    _, expected = trained(torch.optim.Adam, lambda *_: None, 9)
    assert [optimizer.state[p]["step"].item() for p in params] == [9] * 3
    for p, q in zip(params, expected, strict=True):
        torch.testing.assert_close(p, q)
