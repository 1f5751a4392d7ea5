"""Modules of activations, losses, distances, embeddings and adaptive softmax beside PyTorch; ctc_loss, linear_cross_entropy, grouped_mm,
embedding_bag; and which kernels attention may take."""

from __future__ import annotations

import inspect
import pickle

import pytest
from side_by_side import agree, error_of, like_pytorch, plain, programs, torch

import torchgrad_jax as tj

pytestmark = pytest.mark.operators
program, test_programs = programs()
FILES = ("activation", "adaptive", "distance", "loss", "sparse", "transformer")
NAMES = [name for file in FILES for name in getattr(torch.nn.modules, file).__all__]
NEEDED = {
    "Threshold": (1.0, 2),
    "MultiheadAttention": (4, 2),
    "Embedding": (4, 2),
    "EmbeddingBag": (4, 2),
    "AdaptiveLogSoftmaxWithLoss": (16, 6, [2, 4]),
}
NEEDED |= {"TransformerEncoderLayer": (4, 2, 6), "TransformerDecoderLayer": (4, 2, 6), "LinearCrossEntropyLoss": (2, 3)}


# ---------------------------------------------------------------------- how they are made and shown


@pytest.mark.parametrize("file", FILES)
def test_modules_are_in_pytorchs_files_with_its_signatures_and_constants(file):
    for name in getattr(torch.nn.modules, file).__all__:
        ours, theirs = getattr(getattr(tj.nn.modules, file), name), getattr(torch.nn, name)
        assert ours is getattr(tj.nn, name)
        assert getattr(ours, "__constants__", []) == getattr(theirs, "__constants__", []) or name in ("Softmax2d",)
        for a, b in ((ours.__init__, theirs.__init__), (ours.forward, theirs.forward)):
            wanted = inspect.signature(b).parameters
            if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in wanted.values()):
                continue  # it hands them on
            found = inspect.signature(a).parameters
            assert list(found) == list(wanted), name
            for p, q in zip(found.values(), wanted.values(), strict=True):
                assert p.kind == q.kind and (p.default == q.default or callable(q.default)), (name, p)


def made(m, name, *args, **options):
    return getattr(m.nn, name)(*(args or NEEDED.get(name, ())), **options)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("Transformer", "TransformerEncoder", "TransformerDecoder", "NLLLoss2d")])
def test_a_module_is_shown_and_pickled_with_what_pytorchs_has(name):
    def state(module):
        return repr(module), {k: v for k, v in vars(module).items() if not k.startswith("_") and not callable(v)}, list(module.state_dict())

    ours, theirs = made(tj, name), made(torch, name)
    assert state(ours) == state(theirs)
    assert state(pickle.loads(pickle.dumps(ours))) == state(ours)
    if "inplace" in inspect.signature(type(theirs)).parameters:
        assert state(made(tj, name, inplace=True)) == state(made(torch, name, inplace=True))


@program
def what_is_deprecated(m):
    m.nn.NLLLoss2d()
    m.nn.Container(a=m.nn.Tanh())
    losses = m.nn.L1Loss(size_average=False), m.nn.PoissonNLLLoss(reduce=False), m.nn.L1Loss(reduction="other")
    return [repr(m.nn.Hardtanh(min_value=-3, max_value=4)), [loss.reduction for loss in losses]]


def test_errors_are_pytorchs():
    def errors(m):
        nn, adaptive = m.nn, m.nn.AdaptiveLogSoftmaxWithLoss(16, 6, [2, 4])
        x = m.ones(3, 16)
        return [
            error_of(call)
            for call in (
                lambda: nn.Hardtanh(1, 1), lambda: nn.Softmax2d()(x), lambda: nn.MultiMarginLoss(p=3),
                lambda: nn.MultiMarginLoss(weight=m.ones(2, 2)),
                lambda: nn.TripletMarginLoss(margin=0), lambda: nn.TripletMarginWithDistanceLoss(margin=-1), lambda: nn.HuberLoss(delta=1j),
                lambda: nn.ELU(1.0, False, 3), lambda: nn.Embedding(4, 2, 4), lambda: nn.Embedding(4, 2, _weight=m.ones(2, 2)),
                lambda: nn.EmbeddingBag(4, 2, padding_idx=-5), lambda: nn.EmbeddingBag.from_pretrained(m.ones(2)),
                lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, []), lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3, 2]),
                lambda: adaptive(x, m.tensor([0, 6, 1])), lambda: adaptive(x, m.tensor([0, 1])), lambda: adaptive(x, m.tensor(1)),
                lambda: adaptive(x, m.ones(3, 1, dtype=m.int64)), lambda: nn.LinearCrossEntropyOptions(batch_chunk_size=0),
                lambda: nn.LinearCrossEntropyLoss(3, 2, weight=m.ones(3)),
                lambda: nn.LinearCrossEntropyLoss(3, 2, label_smoothing=-1),
                lambda: nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:x"), lambda: nn.LinearCrossEntropyOptions(acc_dtype=m.int32),
            )
        ]  # fmt: skip

    assert errors(tj) == errors(torch)


# ---------------------------------------------------------------------- embeddings and adaptive softmax


@program
def tables_of_rows(m):
    m.manual_seed(1)
    bag, given = m.nn.EmbeddingBag(5, 3, mode="max", padding_idx=1), m.nn.EmbeddingBag.from_pretrained(m.ones(3, 2), freeze=False, mode="sum")
    made = bag(m.tensor([0, 1, 4, 4]), m.tensor([0, 2]))
    made.sum().backward()
    return [bag.weight, made, bag.weight.grad, given(m.tensor([[0, 1]])), repr(m.nn.EmbeddingBag(4, 3, 2.0, 3.0, True, "sum", True, None, True, 1))]


@program
def embedding_bag_of_torch(m):
    weight, index, offsets = m.arange(15.0).reshape(5, 3) % 7, m.tensor([0, 1, 2, 4, 1]), m.tensor([0, 2, 2])
    found = [m.embedding_bag(weight, index, offsets, False, mode) for mode in (0, 1, 2)]
    found += [m.embedding_bag(weight, index, offsets, False, mode, False, None, False, 1) for mode in (0, 1, 2)]
    found += [m.embedding_bag(weight, index, m.tensor([0, 2, 5]), False, 1, False, None, True)]
    return [found, m.embedding_renorm_(weight, m.tensor([0, 4, 4]), 2.5, 2.0)]


@program
def adaptive_softmax(m):
    m.manual_seed(2)
    module = m.nn.AdaptiveLogSoftmaxWithLoss(8, 9, [2, 5], div_value=2.0, head_bias=True)
    x = m.randn(6, 8, requires_grad=True)
    output, loss = module(x, m.tensor([0, 8, 3, 5, 1, 4]))
    loss.backward()
    single = module(x[0], m.tensor(7))
    return [output, loss, x.grad, [p.grad for p in module.parameters()], module.log_prob(x), module.predict(x), single.output, single.loss]


# ---------------------------------------------------------------------- ctc_loss


def scores(m):
    m.manual_seed(6)
    return m.randn(5, 2, 4, dtype=m.float64).log_softmax(2).detach().requires_grad_()


TARGETS = [[1, 2], [3, 3]]
LENGTHS = [((5, 5), (2, 2)), ((5, 2), (2, 2)), ((5, 4), (2, 1)), ((5, 0), (1, 1)), ((3, 0), (0, 0))]


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_ctc_loss_and_its_gradient_are_pytorchs(lengths, zero_infinity):
    def outcome(m):
        found = []
        for reduction in ("none", "mean", "sum"):
            x = scores(m)
            given = lengths if reduction == "none" else tuple(map(m.tensor, lengths))
            loss = m.nn.CTCLoss(reduction=reduction, zero_infinity=zero_infinity)(x, m.tensor(TARGETS), *given)
            loss.sum().backward()
            found += [loss.detach(), x.grad]
        return plain(found)

    assert agree(outcome(tj), outcome(torch))


@program
def layouts_of_targets(m):
    x, ctc = scores(m), m.nn.functional.ctc_loss
    one_after_the_other = ctc(x, m.tensor([1, 2, 3]), [5, 4], [2, 1], reduction="none")
    padded = ctc(x, m.tensor([[1, -1], [3, 2]]), (5, 5), (1, 2), blank=0, reduction="none")
    single = ctc(x[:, 0], m.tensor([1, 2]), m.tensor(5), m.tensor(2), reduction="none")
    nothing = ctc(x, m.zeros(0, dtype=m.int64), (5, 5), (0, 0))
    return [one_after_the_other, padded, single, nothing, m.ctc_loss(x, m.tensor(TARGETS), (5, 5), (2, 2), 1, 0)]


def test_errors_of_ctc_loss_are_pytorchs():
    def errors(m):
        x, y, ctc = scores(m), m.tensor(TARGETS), m.nn.functional.ctc_loss
        calls = [
            ((6, 2), (2, 1)),
            ((5, 2), (3, 1)),
            ((5, 2, 3), (2, 1)),
            ((5, 2), (2,)),
            ((5, 2), (2, -1)),
            ((5, -2), (2, 1)),
            (m.tensor([5.0, 5.0]), m.tensor([2, 2])),
        ]
        found = [error_of(lambda given=given: ctc(x, y, *given)) for given in calls]
        for blank in (4, -1):
            found.append(error_of(lambda blank=blank: ctc(x, y, (5, 5), (2, 2), blank)))
        for other in (m.tensor([1, 2]), y[None], y[:1], y[:, :1]):
            found.append(error_of(lambda other=other: ctc(x, other, (5, 5), (2, 2))))
        for other in (x.half(), x.long(), x[None], x[:0]):
            found.append(error_of(lambda other=other: ctc(other, y, (5, 5), (2, 2))))
        found.append(error_of(lambda: ctc(x, y, (5, 5), (2, 2), reduction="other")))
        (grad,) = m.autograd.grad(ctc(x, y, (5, 5), (2, 2)), x, create_graph=True)
        found.append(error_of(lambda: grad.sum().backward()))
        found.append(str(error_of(lambda: ctc(x, y, [5, 5], m.tensor([2, 2])))[1]).split("\n")[0])
        return found

    assert errors(tj) == errors(torch)


def test_what_is_known_when_the_loss_is_computed_is_checked_then():
    with pytest.raises(IndexError, match="4 is no class of log_probs, or no length"):
        tj.nn.functional.ctc_loss(scores(tj), tj.tensor([[1, 2], [3, 4]]), tj.tensor([5, 5]), tj.tensor([2, 2])).item()
    # What is computed later may be at hand by then, and is told in PyTorch's words; else where the loss is computed.
    with pytest.raises((IndexError, RuntimeError), match="4 is no class of log_probs, or no length|to have size at least 4 at dimension 1"):
        tj.nn.functional.ctc_loss(scores(tj), tj.tensor(TARGETS), tj.tensor([5, 5]), tj.tensor([2, 2]) * 2).item()


def test_ctc_loss_is_one_program_of_any_lengths():
    loss = tj.jit(lambda x, n: tj.nn.functional.ctc_loss(x, tj.tensor(TARGETS), n, tj.tensor([2, 2])))
    for n in ([5, 5], [4, 3]):
        wanted = tj.nn.functional.ctc_loss(scores(tj), tj.tensor(TARGETS), n, [2, 2])
        assert tj.allclose(loss(scores(tj), tj.tensor(n)), wanted)


# ---------------------------------------------------------------------- linear maps


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk", [None, 1, 4, 7])
def test_linear_cross_entropy_in_chunks_is_that_of_the_whole(chunk, reduction):
    def outcome(m):
        m.manual_seed(3)
        options = m.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk)
        module = m.nn.LinearCrossEntropyLoss(3, 5, bias=True, weight=m.rand(5), ignore_index=2, reduction=reduction, options=options)
        x = m.randn(7, 3, requires_grad=True)
        loss = module(x, m.tensor([0, 4, 2, 1, 1, 3, 2]))
        loss.sum().backward()
        return plain([loss.detach(), x.grad, *[p.grad for p in module.parameters()]])

    assert agree(outcome(tj), outcome(torch))


@program
def linear_cross_entropy_of_several_dimensions(m):
    m.manual_seed(4)
    module, x = m.nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), label_smoothing=0.1, options=m.nn.LinearCrossEntropyOptions()), m.randn(5, 3)
    return [repr(module), module(x, m.tensor([[0, 1], [2, 3], [1, 1], [0, 0], [3, 2]]))]


@program
def products_of_groups(m):
    m.manual_seed(5)
    a, b, ends, product = m.randn(8, 16).round(), m.randn(2, 16, 8).round(), m.tensor([3, 8], dtype=m.int32), m.nn.functional.grouped_mm
    a.requires_grad_()
    groups = a.reshape(2, 4, 16)
    made = [product(a, b, offs=ends), product(groups, b), product(groups, b[0], offs=ends), product(a.T, m.randn(8, 16).round(), offs=ends)]
    sum((x * x).sum() for x in made).backward()
    calls = (lambda: product(a, b), lambda: product(a[0], b), lambda: product(a, b, offs=m.tensor([3, 8])), lambda: product(a, b.half(), offs=ends))
    return [made, a.grad, [error_of(call) for call in calls]]


# ---------------------------------------------------------------------- kernels of attention


@program
def kernels_of_attention(m):
    from importlib import import_module

    attention, bias = (import_module(f"{m.__name__}.nn.attention{part}") for part in ("", ".bias"))
    kinds, found = attention.SDPBackend, []
    m.manual_seed(7)
    q, k = m.randn(2, 2, 3, 4, requires_grad=True), m.randn(2, 2, 5, 4)
    for backends in (kinds.MATH, kinds.FLASH_ATTENTION, kinds.CUDNN_ATTENTION, [kinds.MATH, kinds.FLASH_ATTENTION], [], "math"):

        def run(backends=backends):
            with attention.sdpa_kernel(backends):
                found.append(m.nn.functional.scaled_dot_product_attention(q, k, k).grad_fn.name())

        found.append(error_of(run))
    upper, lower = bias.causal_upper_left(3, 5), bias.causal_lower_right(3, 5)
    for mask in (upper, lower, bias.causal_lower_right(4, 3)):
        found.append(error_of(lambda mask=mask: m.nn.functional.scaled_dot_product_attention(q, k, k, mask, is_causal=True)))
    found += [m.nn.functional.scaled_dot_product_attention(q, k, k, mask) for mask in (upper, lower)]
    return [found, repr(upper), repr(lower), error_of(lambda: bias.causal_upper_left(3)), m.backends.cuda.flash_sdp_enabled()]


@program
def attention_lies_in_memory_as_the_queries_do(m):
    attend, found = m.nn.functional.scaled_dot_product_attention, []
    m.manual_seed(7)
    projected = m.randn(2, 3, 3 * 8, requires_grad=True)  # positions, then queries, keys and values together
    for q, k, v in (
        [x.view(2, 3, 2, 4).transpose(1, 2) for x in projected.chunk(3, -1)],
        [x.view(2, 3, 2, 4).permute(0, 2, 3, 1)[..., :2] for x in projected.chunk(3, -1)],  # features that are not together
        [m.randn(2, 6, 2, 4, requires_grad=True)[:, ::2].transpose(1, 2) for _ in range(3)],
        [m.randn(2, 1, 2, 4, requires_grad=True).transpose(1, 2) for _ in range(3)],
    ):
        for y in (attend(q, k, v), attend(q.detach(), k.detach(), v.detach(), is_causal=True)):
            found.append([y, y.stride(), y.grad_fn and y.grad_fn.name()])
    return [*found, found[0][0].transpose(1, 2).view(2, 3, 8)]


def test_implementations_of_flash_attention_are_kept_by_name():
    from torchgrad_jax.nn import attention

    class Handle:
        removed = False

        def remove(self):
            self.removed = True

    handle = Handle()
    attention.register_flash_attention_impl("mine", register_fn=lambda: handle)
    assert "mine" in attention.list_flash_attention_impls() and attention.current_flash_attention_impl() is None
    attention.activate_flash_attention_impl("mine")
    assert attention.current_flash_attention_impl() == "mine"
    attention.restore_flash_attention_impl()
    assert handle.removed and attention.current_flash_attention_impl() is None
    with pytest.raises(ValueError, match="Unknown flash attention impl 'other'"):
        attention.activate_flash_attention_impl("other")
    with pytest.raises(NotImplementedError, match="XLA compiles attention"):
        attention.activate_flash_attention_impl("FA3")


@program
def names_for_overriding(m):
    functional = m.nn.functional
    return [functional.has_torch_function((m.ones(1),)), functional.has_torch_function_variadic(1, 2), functional.Tensor is m.Tensor]


def test_activations_compute_what_pytorchs_do():
    simple = [name for name in NAMES if name in torch.nn.modules.activation.__all__ and name not in ("MultiheadAttention", "RReLU")]

    def results(m):
        x = m.linspace(-4, 4, 24, dtype=m.float64).reshape(2, 3, 2, 2)
        along = {"Softmax": {"dim": 1}, "Softmin": {"dim": 1}, "LogSoftmax": {"dim": 1}, "PReLU": {"num_parameters": 3, "dtype": m.float64}}
        found = [made(m, name, **along.get(name, {}))(x) for name in simple]
        for name in simple:
            if "inplace" in inspect.signature(getattr(torch.nn, name)).parameters:
                y = x.clone()
                assert made(m, name, inplace=True)(y) is y
        return [t.detach() for t in found]

    like_pytorch(results)()
