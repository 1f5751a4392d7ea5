"""torch.nn.utils.prune against PyTorch's: the same masks from the same seed, the same hooks, names and errors."""

from __future__ import annotations

import copy
import pickle

import pytest
from side_by_side import plain, programs

import torchgrad_jax as tj

pytestmark = pytest.mark.operators

program, test_like_pytorch = programs()


def caught(call):
    try:
        return plain(call())
    except Exception as error:
        return [type(error).__name__, str(error).replace("torchgrad_jax", "torch")]


def linear(m, rows=3, columns=4):
    m.manual_seed(0)
    return m.nn.Linear(columns, rows)


def conv(m):
    m.manual_seed(0)
    return m.nn.Conv2d(2, 3, 2)


def prune_of(m):
    if m is tj:
        return tj.nn.utils.prune
    import torch.nn.utils.prune as theirs

    return theirs


@program
def a_pruned_parameter(m):
    prune, layer = prune_of(m), linear(m)
    weight = layer.weight
    made = prune.l1_unstructured(layer, "weight", amount=3)
    hook = next(iter(layer._forward_pre_hooks.values()))
    found = [
        made is layer, list(layer.state_dict()), layer.weight, layer.weight_mask, layer.weight_orig is weight, type(hook).__name__, vars(hook),
        "weight" in vars(layer), layer.weight.grad_fn.name(), prune.is_pruned(layer), prune.is_pruned(m.nn.Sequential(layer)),
    ]  # fmt: skip
    layer(m.ones(1, 4)).sum().backward()
    found.append(layer.weight_orig.grad)
    with m.no_grad():
        layer.weight_orig.fill_(1)
    layer(m.ones(1, 4))
    found.append(layer.weight)
    prune.remove(layer, "weight")
    return [*found, list(layer.state_dict()), layer.weight is weight, layer.weight, len(layer._forward_pre_hooks), prune.is_pruned(layer)]


@program
def functions_of_pruning(m):
    prune, inf = prune_of(m), float("inf")
    scores = m.arange(12.0).reshape(3, 4)
    acts = [
        lambda x: prune.random_unstructured(x, "weight", 0.3), lambda x: prune.random_unstructured(x, "weight", 5),
        lambda x: prune.identity(x, "weight"),
        lambda x: prune.l1_unstructured(x, "weight", 0.5), lambda x: prune.l1_unstructured(x, "weight", 0),
        lambda x: prune.l1_unstructured(x, "weight", 12),
        lambda x: prune.l1_unstructured(x, "weight", 2, importance_scores=scores), lambda x: prune.random_structured(x, "weight", 2, 0),
        lambda x: prune.random_structured(x, "weight", 0.5, -1), lambda x: prune.ln_structured(x, "weight", 1, 2, 0),
        lambda x: prune.ln_structured(x, "weight", 0.5, 1, -1), lambda x: prune.ln_structured(x, "weight", 1, "fro", 1),
        lambda x: prune.ln_structured(x, "weight", 1, inf, 1), lambda x: prune.ln_structured(x, "weight", 1, -inf, 0),
        lambda x: prune.ln_structured(x, "weight", 1, 1, -2, importance_scores=scores), lambda x: prune.ln_structured(x, "weight", 0, 2, 0),
        lambda x: prune.custom_from_mask(x, "weight", scores > 4), lambda x: prune.custom_from_mask(x, "weight", mask=(scores % 2)),
        lambda x: prune.l1_unstructured(x, "bias", 1), lambda x: prune.ln_structured(x, "weight", 1, "nuc", 0),
        lambda x: prune.l1_unstructured(x, "w", 1),
        lambda x: prune.l1_unstructured(x, "weight", -1), lambda x: prune.l1_unstructured(x, "weight", 1.5),
        lambda x: prune.l1_unstructured(x, "weight", 13),
        lambda x: prune.l1_unstructured(x, "weight", "a"), lambda x: prune.random_structured(x, "bias", 1, 0),
        lambda x: prune.random_structured(x, "weight", 1, 5), lambda x: prune.random_structured(x, "weight", 5, 0),
        lambda x: prune.l1_unstructured(x, "weight", 2, importance_scores=m.ones(2)), lambda x: prune.custom_from_mask(x, "bias", m.ones(2)),
        lambda x: prune.remove(x, "weight"), lambda x: prune.l1_unstructured(x, "weight", [1]), lambda x: prune.l1_unstructured(x, "in_features", 1),
    ]  # fmt: skip
    found = []
    for act in acts:
        layer = linear(m)
        result = caught(lambda act=act, x=layer: repr(act(x)))
        found.append([result, {k: plain(v) for k, v in layer.state_dict().items()}, len(layer._forward_pre_hooks)])
    return found


@program
def pruned_again_and_again(m):
    prune, layer, found = prune_of(m), linear(m, 4, 5), []
    acts = [
        lambda x: prune.l1_unstructured(x, "weight", 2), lambda x: prune.random_unstructured(x, "weight", 0.25),
        lambda x: prune.ln_structured(x, "weight", 1, 2, 0), lambda x: prune.random_structured(x, "weight", 0.5, 1),
        lambda x: prune.custom_from_mask(x, "weight", m.arange(20).reshape(4, 5) != 7), lambda x: prune.l1_unstructured(x, "bias", 1),
        lambda x: prune.identity(x, "weight"), lambda x: prune.l1_unstructured(x, "weight", 1),
    ]  # fmt: skip
    for act in acts:
        act(layer)
        hooks = list(layer._forward_pre_hooks.values())
        found.append([layer.weight_mask, [[type(h).__name__, h._tensor_name] for h in hooks]])
    container = next(h for h in hooks if h._tensor_name == "weight")
    found.append([len(container), [type(h).__name__ for h in container], type(container[0]).__name__, layer.bias_mask])
    layer = conv(m)
    prune.ln_structured(layer, "weight", 1, 2, 0)
    prune.ln_structured(layer, "weight", 1, 1, 0)
    prune.random_unstructured(layer, "weight", 3)
    return [*found, layer.weight, list(layer.state_dict())]


@program
def pruning_several_parameters_as_one(m):
    prune, found = prune_of(m), []
    for kind, options in ((prune.L1Unstructured, {"amount": 5}), (prune.RandomUnstructured, {"amount": 0.5})):
        a, b = linear(m), linear(m, 2, 2)
        prune.l1_unstructured(b, "weight", 1)
        found.append(prune.global_unstructured([(a, "weight"), (b, "bias"), (b, "weight")], kind, **options))
        found.append([a.weight_mask, b.bias_mask, b.weight_mask, [type(h).__name__ for h in b._forward_pre_hooks.values()]])
    layer = linear(m)
    pair, scores = [(layer, "weight"), (layer, "bias")], {(layer, "bias"): m.full((3,), -9.0)}
    prune.global_unstructured(pair, prune.L1Unstructured, importance_scores=scores, amount=9)
    found.append([layer.weight_mask, layer.bias_mask])
    refused = [
        lambda: prune.global_unstructured(3, prune.L1Unstructured, amount=5), lambda: prune.global_unstructured(pair, prune.L1Unstructured),
        lambda: prune.global_unstructured(pair, prune.LnStructured, amount=1, n=2),
        lambda: prune.global_unstructured(pair, prune.L1Unstructured, importance_scores=3, amount=2),
    ]  # fmt: skip
    return [*found, [caught(r)[0] for r in refused], [caught(r)[1].replace("type structured", "") for r in refused[:1] + refused[3:]]]


@program
def methods_by_themselves(m):
    prune, t = prune_of(m), m.arange(6.0).reshape(3, 2)
    m.manual_seed(3)
    return [
        caught(call) for call in (
            lambda: prune.RandomUnstructured(3).prune(m.ones(5)), lambda: prune.L1Unstructured(3).prune(m.arange(5.0)),
            lambda: prune.RandomUnstructured(0.1).prune(m.ones(5)), lambda: prune.LnStructured(1, 2, 0).prune(t),
            lambda: prune.RandomStructured(1, 0).prune(t),
            lambda: prune.L1Unstructured(3).prune(m.arange(5.0), default_mask=m.tensor([1, 1, 0, 0, 1])),
            lambda: prune.L1Unstructured(1).prune(m.ones(3), importance_scores=m.tensor([3.0, 1.0, 2.0])),
            lambda: prune.L1Unstructured(1).prune(m.ones(3), importance_scores=m.ones(2)), lambda: prune.CustomFromMask(t > 2).prune(t),
            lambda: prune.Identity().prune(t), lambda: prune.BasePruningMethod(), lambda: prune.PruningContainer(3),
            lambda: prune.PruningContainer().add_pruning_method(3), lambda: len(prune.PruningContainer()), lambda: prune.LnStructured(1, 2).dim,
            lambda: prune.RandomStructured(1).dim, lambda: [k.PRUNING_TYPE for k in (prune.Identity, prune.LnStructured, prune.CustomFromMask)],
        )
    ]  # fmt: skip


@program
def methods_of_ones_own(m):
    prune = prune_of(m)

    class Alternating(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    class Odd(Alternating):
        PRUNING_TYPE = "odd"

    class Columns(Alternating):
        PRUNING_TYPE = "structured"

    class Fails(Alternating):
        def compute_mask(self, t, default_mask):
            raise KeyError("bad")

    layer = linear(m)
    Alternating.apply(layer, "weight")
    first = layer.weight_mask
    Alternating.apply(layer, "weight")
    other = linear(m)
    failed = caught(lambda: Fails.apply(other, "weight"))
    return [
        first, layer.weight_mask, caught(lambda: Odd.apply(layer, "weight")), caught(lambda: Columns.apply(linear_pruned(m), "weight")), failed,
        list(other.state_dict()), len(other._forward_pre_hooks), caught(lambda: Odd().apply_mask(layer)),
    ]  # fmt: skip


def linear_pruned(m):
    return prune_of(m).identity(linear(m), "weight")


def test_a_failed_pruning_leaves_the_one_before():
    layer = linear_pruned(tj)
    with pytest.raises(ValueError, match="amount=20"):
        tj.nn.utils.prune.l1_unstructured(layer, "weight", 20)
    assert len(layer._forward_pre_hooks) == 1 and layer.weight_mask.sum() == 12


def test_pruned_modules_are_copied_pickled_and_loaded():
    layer = tj.nn.utils.prune.l1_unstructured(linear(tj), "weight", 4)
    with tj.no_grad():
        layer(tj.ones(1, 4))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.weight_mask.tolist() == layer.weight_mask.tolist() and tj.nn.utils.prune.is_pruned(twin)
    other = tj.nn.utils.prune.identity(linear(tj), "weight")
    other.load_state_dict(layer.state_dict())
    assert other(tj.ones(1, 4)).tolist() == layer(tj.ones(1, 4)).tolist()
