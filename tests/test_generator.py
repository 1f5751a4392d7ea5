"""`torchgrad_jax.operators.kernels.generator` against PyTorch's CPU generator, live and by stored samples."""

import random
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from torchgrad_jax.operators.kernels import choosing, drawing, normals, twister
from torchgrad_jax.operators.kernels.generator import Generator

pytestmark = pytest.mark.operators

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BF16]
INTS = [np.dtype(n) for n in ("int64", "int32", "int16", "int8", "uint8", "bool")]


def seeded(seed):
    return Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


class Pair:
    """One stream in both libraries; every comparison also compares the states."""

    def __init__(self, torch, seed):
        self.torch = torch
        self.ours = seeded(seed)
        self.theirs = torch.Generator().manual_seed(seed)

    def dtype(self, dtype):
        return getattr(self.torch, dtype.name)

    def tensor(self, array):
        if array.dtype == BF16:
            return self.torch.from_numpy(array.astype(np.float32)).to(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def check(self, ours, theirs, libm=False):
        want = theirs.float().numpy().astype(BF16) if theirs.dtype == self.torch.bfloat16 else theirs.numpy()
        assert ours.dtype == want.dtype
        assert ours.shape == want.shape
        if libm and ours.dtype in (np.float64, np.complex128):
            np.testing.assert_allclose(ours, want, rtol=1e-13, atol=1e-15)
        else:
            np.testing.assert_array_equal(ours, want)
        np.testing.assert_array_equal(self.ours.get_state(), self.theirs.get_state().numpy())


# ---- stored samples -------------------------------------------------------------------------------------------------


def test_stored_samples():
    np.testing.assert_array_equal(
        seeded(0).uniform(4),
        np.float32([0.49625658988952637, 0.7682217955589294, 0.08847743272781372, 0.13203048706054688]),
    )
    np.testing.assert_array_equal(
        seeded(0).uniform(3, np.float64),
        [0.9700530018065531, 0.707819864399788, 0.45938294312745087],
    )
    np.testing.assert_array_equal(
        seeded(0).normal(3),
        np.float32([1.5409960746765137, -0.293428897857666, -2.1787893772125244]),
    )
    np.testing.assert_array_equal(
        seeded(0).normal(17)[[0, 1, 2, 16]],
        np.float32([-1.1258398294448853, -1.6959311962127686, 0.5666506290435791, 0.9318265914916992]),
    )
    np.testing.assert_array_equal(seeded(0).randint(0, 100, 8), [44, 39, 33, 60, 63, 79, 27, 3])
    np.testing.assert_array_equal(seeded(0).random(2, np.int64), [900450186894289455, 3969543146641149120])
    np.testing.assert_array_equal(seeded(0).randperm(10), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2])


# Masks that users of PyTorch's MKL builds published: issues 94388 and 15714 of pytorch/pytorch, 57 of
# rasbt/LLMs-from-scratch.
@pytest.mark.parametrize(
    ("seed", "p", "mkl", "mt19937"),
    [
        (314159, 0.75, "100110111111111", None),
        (0, 0.5, "10011", "00100"),
        (123, 0.5, "111111010000001010110001100001010000", "110110000101111101011001010101011110"),
    ],
)
def test_bernoulli_recipes_published(monkeypatch, seed, p, mkl, mt19937):
    for method, want in (("mkl", mkl), ("mt19937", mt19937)):
        if want is None:
            continue
        g = seeded(seed)
        g.bernoulli_method = method
        assert "".join(map(str, g.bernoulli(p, len(want), np.uint8))) == want
        monkeypatch.setenv("TORCHGRAD_JAX_BERNOULLI", method)
        assert "".join(map(str, seeded(seed).bernoulli(p, len(want), np.uint8))) == want


def test_mkl_recipe_takes_one_draw():
    g, h = seeded(4), seeded(4)
    g.bernoulli_method = "mkl"
    g.bernoulli(0.3, 1000)
    h.random32(1)
    np.testing.assert_array_equal(g.get_state(), h.get_state())


def test_bernoulli_method_unknown():
    g = seeded(0)
    g.bernoulli_method = "philox"
    with pytest.raises(ValueError, match="Bernoulli method"):
        g.bernoulli(0.5, 3)


# ---- seed and state -------------------------------------------------------------------------------------------------


def test_an_unseeded_process_has_a_seed_of_its_own():
    """As PyTorch's has. A new generator begins with the same one."""
    code = "import torchgrad_jax as torch; print(torch.initial_seed(), torch.Generator().initial_seed(), torch.rand(2).tolist())"
    first, second = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split(maxsplit=2) for _ in range(2)
    ]
    assert first[1] == second[1] == "67280421310721"
    assert first[0] != second[0] and first[2] != second[2]


def test_seed_and_state():
    g = Generator()
    assert g.initial_seed() == 67280421310721
    assert g.manual_seed(-3) is g
    assert g.initial_seed() == 2**64 - 3
    assert g.seed() == g.initial_seed()
    g.normal(3)
    state = g.get_state()
    assert state.shape == (5056,)
    assert state.dtype == np.uint8
    first, clone = g.normal(5), g.clone_state()
    g.set_state(state)
    np.testing.assert_array_equal(g.normal(5), first)
    np.testing.assert_array_equal(g.get_state(), clone.get_state())


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda g: g.manual_seed(2**64), ValueError, "Overflow when unpacking long long"),
        (lambda g: g.manual_seed(1.5), RuntimeError, "manual_seed expected a long, but got float"),
        (lambda g: g.manual_seed(True), RuntimeError, "manual_seed expected a long, but got bool"),
        (lambda g: g.set_state(None), TypeError, "expected a torch.ByteTensor, but got NoneType"),
        (lambda g: g.set_state(np.zeros(5)), TypeError, "RNG state must be a torch.ByteTensor"),
        (
            lambda g: g.set_state(np.zeros(5, np.uint8)),
            RuntimeError,
            "Expected a CPUGeneratorImplState of size 5056 but found the input RNG state size to be 5",
        ),
        (lambda g: g.set_state(np.zeros(5056, np.uint8)), RuntimeError, "Invalid mt19937 state"),
        (
            lambda g: g.randint(5, 5, 3),
            RuntimeError,
            "random_ expects 'from' to be less than 'to', but got from=5 >= to=5",
        ),
        (lambda g: g.randint(0, 300, 3, np.uint8), RuntimeError, "to - 1 is out of bounds for unsigned char"),
        (lambda g: g.randint(0, 2**63, 3), ValueError, "Overflow when unpacking long long"),
        (lambda g: g.bernoulli(1.5, 3), RuntimeError, "bernoulli_ expects p to be in [0, 1], but got p=1.5"),
        (
            lambda g: g.dropout_mask(3, 1.5),
            RuntimeError,
            "dropout probability has to be between 0 and 1, but got 1.5",
        ),
        (
            lambda g: g.uniform(3, np.float32, 2, 1),
            RuntimeError,
            "uniform_ expects to return a [from, to) range, but found from=2 > to=1",
        ),
        (lambda g: g.uniform(3, np.float32, 0, 1e39), RuntimeError, "to is out of bounds for float"),
        (lambda g: g.uniform(3, np.int32), NotImplementedError, "\"check_uniform_bounds\" not implemented for 'Int'"),
        (lambda g: g.normal(3, np.int32), NotImplementedError, "\"normal_kernel_cpu\" not implemented for 'Int'"),
        (lambda g: g.normal(3, std=-1), RuntimeError, "normal expects std >= 0.0, but found std -1"),
        (lambda g: g.normal(-3), RuntimeError, "Trying to create tensor with negative dimension -3: [-3]"),
        (lambda g: g.randperm(-1), RuntimeError, "Trying to create tensor with negative dimension -1: [-1]"),
        (lambda g: g.randperm(3000, np.float16), RuntimeError, "n cannot be greater than 2049 for Half type."),
        (lambda g: g.exponential(3, lambd=0), RuntimeError, "exponential_ expects lambda > 0.0, but found lambda=0"),
        (lambda g: g.geometric(1.0, 3), RuntimeError, "geometric_ expects p to be in (0, 1), but got p=1"),
        (lambda g: g.cauchy(3, sigma=0), RuntimeError, "cauchy_ expects sigma > 0.0, but found sigma=0"),
        (lambda g: g.poisson(np.float32([-1])), RuntimeError, "invalid Poisson rate, expected rate to be non-negative"),
        (
            lambda g: g.multinomial(np.ones(3, np.float32), 5),
            RuntimeError,
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        ),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error) as caught:
        call(Generator())
    assert str(caught.value) == text


# ---- live -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(np.complex64), np.dtype(np.complex128)], ids=str)
def test_uniform_and_normal_sizes(torch, dtype):
    pair = Pair(torch, 5)
    for n in (0, 1, 3, 15, 16, 17, 31, 32, 33, 624, 1000, 40001):
        dt = pair.dtype(dtype)
        pair.check(pair.ours.normal(n, dtype), torch.randn(n, dtype=dt, generator=pair.theirs), libm=True)
        pair.check(pair.ours.uniform((n, 2), dtype), torch.rand(n, 2, dtype=dt, generator=pair.theirs))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_and_normal_parameters(torch, dtype):
    pair = Pair(torch, 6)
    for a, b in ((-1.0, 1.0), (0.1, 0.3), (-3.7, 100.123), (1e3, 1e3 + 1), (-2, -1.9), (0, 1 / 3)):
        dt = pair.dtype(dtype)
        for n in (7, 50000):
            theirs = torch.empty(n, dtype=dt).uniform_(a, b, generator=pair.theirs)
            pair.check(pair.ours.uniform(n, dtype, a, b), theirs)
            theirs = torch.empty(n, dtype=dt).normal_(a, abs(b), generator=pair.theirs)
            pair.check(pair.ours.normal(n, dtype, a, abs(b)), theirs, libm=True)


def test_normal_tensor(torch):
    pair = Pair(torch, 8)
    mean, std = np.arange(20, dtype=np.float32)[:, None], np.arange(5, dtype=np.float32) + 0.5
    tm, ts = torch.from_numpy(mean), torch.from_numpy(std)
    pair.check(pair.ours.normal_tensor(mean, std), torch.normal(tm, ts, generator=pair.theirs))
    pair.check(pair.ours.normal_tensor(mean, 2.0), torch.normal(tm, 2.0, generator=pair.theirs))
    pair.check(pair.ours.normal_tensor(0.5, std), torch.normal(0.5, ts, generator=pair.theirs))


@pytest.mark.parametrize("dtype", INTS + FLOATS, ids=str)
def test_integers(torch, dtype):
    pair = Pair(torch, 9)
    dt = pair.dtype(dtype)
    pair.check(pair.ours.random(100, dtype), torch.empty(100, dtype=dt).random_(generator=pair.theirs))
    bounds = [(0, 1), (0, 2)]
    if dtype != np.bool_:
        bounds += [(0, 100), (3, 120)]
    if dtype.kind == "i":
        wide = [(-5, 100), (3, 2**15), (0, 2**28 - 1), (0, 2**28), (-5, 2**31), (-(2**62), 2**63 - 1)]
        info = np.iinfo(dtype)
        bounds += [(max(low, int(info.min)), min(high, int(info.max))) for low, high in wide]
    for low, high in bounds:
        theirs = torch.randint(low, high, (100,), dtype=dt, generator=pair.theirs)
        pair.check(pair.ours.randint(low, high, 100, dtype), theirs)
    if dtype != np.bool_:
        for n in (0, 1, 2, 10, 100):
            pair.check(pair.ours.randperm(n, dtype), torch.randperm(n, dtype=dt, generator=pair.theirs))


def test_randperm_large(torch):
    pair = Pair(torch, 10)
    pair.check(pair.ours.randperm(100001), torch.randperm(100001, generator=pair.theirs))


@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.5, 1.0])
def test_bernoulli(torch, p):
    pair = Pair(torch, 11)
    # Which recipe a build of PyTorch follows shows in how far a thousand samples move its stream.
    probe = Pair(torch, 0)
    torch.empty(1000).bernoulli_(0.5, generator=probe.theirs)
    probe.ours.random32(1)
    one_draw = np.array_equal(probe.ours.get_state(), probe.theirs.get_state().numpy())
    pair.ours.bernoulli_method = "mkl" if one_draw else "mt19937"
    for n in (0, 1, 7, 1000, 100001):
        for dtype in FLOATS + INTS:
            theirs = torch.empty(n, dtype=pair.dtype(dtype)).bernoulli_(p, generator=pair.theirs)
            pair.check(pair.ours.bernoulli(p, n, dtype), theirs)
    torch.manual_seed(11)
    pair.ours.manual_seed(11)
    for dtype in FLOATS:
        theirs = torch.nn.functional.dropout(torch.ones(10, 100, dtype=pair.dtype(dtype)), p)
        want = theirs.double().numpy()
        np.testing.assert_array_equal(pair.ours.dropout_mask((10, 100), p, dtype).astype(np.float64), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_distributions_over_tensors(torch, dtype):
    pair = Pair(torch, 12)
    for n in (1, 5, 1000):
        p = np.linspace(0, 1, n).astype(dtype)
        pair.check(pair.ours.bernoulli_tensor(p), torch.bernoulli(pair.tensor(p), generator=pair.theirs))
    for scale in (0.5, 5, 12, 200):
        rate = np.linspace(0, scale, 101).astype(dtype)
        pair.check(pair.ours.poisson(rate), torch.poisson(pair.tensor(rate), generator=pair.theirs))
    for shape in ((7,), (3, 9), (200,)):
        weights = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        for k, replacement in ((1, False), (1, True), (5, True), (50, True), (5, False)):
            # Ties among 16-bit keys have no defined order.
            if not replacement and k > 1 and dtype.itemsize == 2:
                continue
            theirs = torch.multinomial(pair.tensor(weights), k, replacement, generator=pair.theirs)
            pair.check(pair.ours.multinomial(weights, k, replacement), theirs)


@pytest.mark.parametrize("seed", range(8))
def test_interleavings(torch, seed):
    pair, rng = Pair(torch, seed), random.Random(seed)
    for _ in range(150):
        n = rng.choice([0, 1, 2, 5, 15, 16, 17, 40, 623, 624, 625])
        dtype = rng.choice(FLOATS)
        g, t, dt = pair.ours, pair.theirs, pair.dtype(dtype)
        kind = rng.randrange(9)
        if kind == 0:
            pair.check(g.uniform(n, dtype), torch.rand(n, dtype=dt, generator=t))
        elif kind <= 2:
            pair.check(g.normal(n, dtype), torch.randn(n, dtype=dt, generator=t), libm=True)
        elif kind == 3:
            pair.check(g.randint(-3, 9, n), torch.randint(-3, 9, (n,), generator=t))
        elif kind == 4:
            pair.check(g.randperm(n), torch.randperm(n, generator=t))
        elif kind == 5:
            pair.check(g.exponential(n, dtype, 1.5), torch.empty(n, dtype=dt).exponential_(1.5, generator=t), libm=True)
        elif kind == 6:
            pair.check(g.log_normal(n, dtype), torch.empty(n, dtype=dt).log_normal_(generator=t), libm=True)
        elif kind == 7:
            pair.check(g.geometric(0.3, n, dtype), torch.empty(n, dtype=dt).geometric_(0.3, generator=t))
            pair.check(g.cauchy(n, dtype, 1, 2), torch.empty(n, dtype=dt).cauchy_(1, 2, generator=t), libm=True)
        else:
            t.set_state(torch.from_numpy(g.get_state()))
            g.set_state(t.get_state().numpy())


@pytest.mark.parametrize("seed", range(3))
def test_rejection_by_loops_takes_the_draws_that_it_takes_in_python(seed):
    from torchgrad_jax.operators.kernels import rejecting

    ours, told = seeded(seed), seeded(seed)
    told.rejecting = rejecting
    random = np.random.RandomState(seed)
    for n in (0, 1, 2, 7, 63, 64, 300):
        concentration = random.choice([0, 0.02, 0.5, 1, 1.5, 40, 1e6], n).astype(random.choice(["f4", "f8"]))
        rate = random.choice([0, 1e-3, 2, 9.9, 10, 37, 1e5], n).astype(np.float32)
        count, p = random.choice([0, 1, 5, 30.5, 400], n), random.choice([-1, 0, 1e-3, 0.2, 0.5, 0.9, 1, 2, np.nan], n)
        weights = random.rand(3, 1 + n).astype(random.choice(["f4", "f8"]))
        for name, given in (
            ("standard_gamma", (concentration,)), ("dirichlet", (np.float32([[2, 3, 0.5]] * n),)), ("poisson", (rate,)),
            ("binomial", (count, p)), ("multinomial", (weights, 1 + n, True)), ("normal", (n % 16, np.dtype("f4"))), ("log_normal", (n,)),
        ):  # fmt: skip
            found, expected = (getattr(g, name)(*given) for g in (ours, told))
            np.testing.assert_allclose(found, expected, rtol=1e-14 if found.dtype == np.float64 else 2e-7, err_msg=name)
            np.testing.assert_array_equal(ours.get_state()[: -8 * 4], told.get_state()[: -8 * 4], name)  # but for the cached sample


@pytest.mark.parametrize("n", [16, 17, 31, 32, 1000])
def test_normal_samples_in_blocks_are_those_that_python_tells(n):
    from torchgrad_jax.operators.kernels import rejecting

    ours, told, out = seeded(5), seeded(5), np.empty(n, np.float32)
    rejecting.draw_normals(told._bits, out)
    np.testing.assert_allclose(ours.normal(n), out, rtol=0, atol=1e-6)  # C rounds a multiply-add once
    np.testing.assert_array_equal(ours.random32(3), told.random32(3))


@pytest.mark.parametrize("weights", [[[1, -1]], [[1, np.nan]], [[1, 2], [np.inf, 1]], [[1, 2], [0, 0]], np.zeros((2, 0))], ids=str)
def test_improper_weights_are_refused_with_replacement(torch, weights):
    weights = np.array(weights, np.float32)
    with pytest.raises(RuntimeError) as theirs:
        torch.multinomial(torch.from_numpy(weights), 3, True)
    with pytest.raises(RuntimeError) as ours:
        seeded(0).multinomial(weights, 3, True)
    assert str(ours.value) == str(theirs.value)


def test_samples_are_scaled_by_loops_and_in_parts_to_the_same_bits(monkeypatch):
    from torchgrad_jax.operators.kernels import drawing, rounded

    sizes = (5, 1 << 15, (1 << 15) + 1, (3 << 15) + 7)

    def samples():
        return [seeded(3).uniform((n,), np.dtype(np.float32), -0.3, 0.7) for n in sizes]

    found = samples()
    monkeypatch.setattr(drawing, "scale", rounded.fuse)
    by_parts = samples()
    monkeypatch.setattr(rounded, "_PIECE", 1 << 20)
    for first, *others in zip(found, by_parts, samples(), strict=True):
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_many_normal_samples_are_those_of_numpy_whatever_jax_is_set_to(monkeypatch):
    """They are computed by compiled functions, which need 64 bits to round as PyTorch does."""
    few = Generator().manual_seed(3).normal((4800,))
    monkeypatch.setattr(normals, "_in_c", False)
    monkeypatch.setattr(normals, "_MANY", 1)
    assert np.array_equal(few, Generator().manual_seed(3).normal((4800,)))


@pytest.mark.parametrize("span", [1, 2, 3, 7, 1000, 2**24 + 1, 2**28 - 1, 2**31])
def test_draws_turned_by_loops_are_those_of_numpy(span):
    """However many are left of a block of 624 words; and nothing else is drawn."""
    ours, theirs = np.random.MT19937(3), np.random.MT19937(3)
    assert drawing.knows(ours, ours.state["state"]["key"], ours.state["state"]["pos"])
    dtypes = {twister.UNIT: "f", twister.WIDE: "d", twister.HIT: "?", twister.REST: "q", twister.WIDE_REST: "q"}
    for n in (1, 2, 3, 310, 623, 624, 625, 5000):
        for kind, dtype in dtypes.items():
            bound = {twister.HIT: 2**63 + 2**61, twister.REST: span, twister.WIDE_REST: span * 2**20 + 1}.get(kind, 0)
            made, expected = np.empty(n, dtype), np.empty(n, dtype)
            drawing.draw(ours, kind, made, bound, -5)
            twister.draw(theirs, kind, expected, bound, -5)
            np.testing.assert_array_equal(made, expected)
        order, expected = np.arange(n), np.arange(n)
        drawing.shuffle(ours, order)
        twister.shuffle(theirs, expected)
        np.testing.assert_array_equal(order, expected)
        assert ours.random_raw(n).tolist() == theirs.random_raw(n).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_choices_by_loops_are_those_of_numpy(dtype):
    """Also where a sample is 0, or so small that the quotient is infinite; and of weights that are not fine."""
    random = np.random.default_rng(0)
    for count in range(300):
        weights = np.where(random.random((1 + count % 4, 1 + count % 37)) < 0.3, 0, random.random((1 + count % 4, 1 + count % 37))).astype(dtype)
        samples = random.exponential(size=weights.size)
        few = min(count % 3, weights.size)
        samples[:few] = [0.0, 1e-320][:few]
        if count % 10 == 9:
            weights[-1, -1] = [-1.0, np.nan, np.inf][count % 3]
        found = drawing.condition(weights)
        assert found == choosing.condition(weights)
        if found == choosing.FINE:
            places, expected = np.full(len(weights), -1), np.full(len(weights), -1)
            drawing.choose(weights, samples, places)
            choosing.choose(weights, samples, expected)
            np.testing.assert_array_equal(places, expected)


def test_nothing_is_drawn_for_weights_that_are_refused():
    generator = seeded(3)
    for weights in ([0.5, -1.0], [0.0, 0.0], [np.inf, 1.0]):
        with pytest.raises(RuntimeError, match="probability|probabilities"):
            generator.multinomial(np.array(weights, np.float32), 1)
    np.testing.assert_array_equal(generator.uniform(5), seeded(3).uniform(5))


def test_memory_of_an_engine_that_is_not_what_is_expected_is_not_touched(monkeypatch):
    monkeypatch.setattr(drawing, "knows", lambda source, key, at: False)
    generator, usual = Generator().manual_seed(5), twister
    assert generator._loops is usual
    expected = Generator().manual_seed(5)
    for n in (3, 2000):
        np.testing.assert_array_equal(generator.uniform(n), expected.uniform(n))
        np.testing.assert_array_equal(generator.randperm(n), expected.randperm(n))
        np.testing.assert_array_equal(generator.bernoulli(0.3, n), expected.bernoulli(0.3, n))
        np.testing.assert_array_equal(generator.randint(0, 2**40, n), expected.randint(0, 2**40, n))
