"""Inside of transforms and of compiled functions tensors lie where they lie outside: `storage_offset`, `stride`, `as_strided`."""

import pytest

import torchgrad_jax as torch

WHERE = {
    "vmap": lambda f, x: torch.vmap(f)(x),
    "grad": lambda f, x: torch.func.grad(lambda x: (f(x) * x.detach() * x).sum())(x) / x,
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,))[0],
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda x: (f(x) * x).sum()))(x),
    "vmap of vmap": lambda f, x: torch.vmap(torch.vmap(f))(x),
    "jit": lambda f, x: f(x),
}


@pytest.mark.parametrize("transform", WHERE)
def test_where_a_part_of_memory_begins_is_told_at_each_call(transform):
    """By the memory outside, whichever part it is."""
    memory = torch.arange(1.0, 25.0)

    def begin(t):
        return torch.ones_like(t) * t.storage_offset()

    def second(t):
        return torch.ones_like(t) * t.select(-1, 1).storage_offset()

    for f, more in ((begin, 0), (second, 1)):
        if more and transform == "vmap of vmap":
            continue  # of numbers
        called = torch.jit(f) if transform == "jit" else f
        for i in range(6):
            found = WHERE[transform](called, memory[2 * i : 2 * i + 4].view(2, 2))
            assert found.tolist() == [[2 * i + more] * 2] * 2


def test_inside_grad_strides_are_those_outside():
    x = torch.arange(24.0)[4:16].view(3, 4)
    told = []

    def f(t):
        told.append((t.stride(), t[1:].storage_offset(), t.as_strided((2, 2), (1, 4), 5).tolist(), t.as_strided((2,), (4,)).tolist()))
        return (t.as_strided((2, 2), (4, 1), 5) * t[:2, 1:3]).sum()

    gradients = torch.func.grad(f)(x)
    assert told == [((4, 1), 8, [[5, 9], [6, 10]], [4, 8])]
    assert gradients.tolist() == [[0, 10, 12, 0], [0, 18, 20, 0], [0, 0, 0, 0]]
    torch.func.grad(lambda t: (told.append(t.stride()), t.sum())[1])(x.t())
    assert told[-1] == (1, 4)


@pytest.mark.operators  # of what is compiled
def test_a_compiled_function_that_asks_for_strides_takes_any_part_of_a_memory():
    memory = torch.arange(24.0)
    compiled = torch.jit(lambda t: t * t.stride(0), fullgraph=True)
    for i in range(6):
        assert compiled(memory[2 * i : 2 * i + 4].view(2, 2)).tolist() == (memory[2 * i : 2 * i + 4].view(2, 2) * 2).tolist()
    assert compiled.explain().startswith("1 traced")
