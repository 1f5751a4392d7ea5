"""What vmap does about memory: strides, sizes and writes to what is not mapped."""

from tests.side_by_side import caught, programs

program, test_like_pytorch = programs()


def _batch(m):
    return m.arange(24, dtype=m.float32).reshape(2, 3, 4)


def _for_each_dim(m, function):
    return [caught(lambda dim=dim: m.vmap(function, in_dims=dim)(_batch(m)).tolist()) for dim in range(3)]


@program
def as_strided_reads_the_memory_of_the_batch(m):
    return [
        _for_each_dim(m, lambda a: a.as_strided((2, 2), (1, 1))),
        _for_each_dim(m, lambda a: a.as_strided((2,), (1,), 1)),
        _for_each_dim(m, lambda a: a.t().as_strided((2, 2), (2, 1))),
        _for_each_dim(m, lambda a: a[1:].as_strided((2,), (1,))),
        _for_each_dim(m, lambda a: a[1:].as_strided((2,), (1,), a[1:].storage_offset())),
        _for_each_dim(m, lambda a: a.as_strided(a.shape, a.stride())),
    ]


@program
def as_strided_of_a_part_of_a_batch(m):
    x = _batch(m)
    return m.vmap(lambda a: a.as_strided((2, 2), (2, 1)))(x[:, 1:]), m.vmap(lambda a: a.as_strided((2, 2), (2, 1), 4))(x[:, 1:])


@program
def as_strided_may_not_leave_the_tensor(m):
    x = _batch(m)
    return [
        _for_each_dim(m, lambda a: a.as_strided((5, 5), (2, 2))),
        _for_each_dim(m, lambda a: a.as_strided((50, 5), (2, 2))),
        caught(lambda: m.vmap(lambda a: a.as_strided((2, 2), (2, 1), 0))(x[:, 1:])),
    ]


@program
def as_strided_of_nested_batches(m):
    x = _batch(m)
    inner = [[m.vmap(lambda a, j=j: m.vmap(lambda b: b.as_strided((2,), (1,)), in_dims=j)(a), in_dims=i)(x) for i in range(3)] for j in range(2)]
    return inner, m.func.grad(lambda y: (m.vmap(lambda a: a.as_strided((2, 2), (1, 1)), in_dims=2)(y) ** 2).sum())(x)


@program
def strides_are_those_of_the_batch(m):
    found = []
    for dim in range(3):
        m.vmap(lambda a: found.append((a.stride(), a.stride(0), a[1:].storage_offset(), a.t().stride(), a[0].stride())) or a, in_dims=dim)(_batch(m))
    return found


@program
def what_as_strided_gives_of_a_batch_in_row_major_order_is_a_view(m):
    x = _batch(m)

    def function(a):
        a.as_strided((2,), (5,)).fill_(-1)
        return a.clone()

    return m.vmap(function)(x), x


@program
def an_argument_is_resized(m):
    x = _batch(m)
    return m.vmap(lambda a: a.resize_(3, 4).sum(0))(x).tolist(), m.vmap(lambda a: a.resize_(1, 12).shape == (1, 12) and a.sum())(x), x


@program
def what_is_mapped_may_not_be_written_to_what_is_not(m):
    def refused(write):
        return caught(lambda: m.vmap(lambda a: write(m.ones(3, 4), a))(_batch(m)))

    index = m.tensor([0, 1])
    places = m.zeros(1, 4, dtype=m.int64)
    return [
        refused(lambda y, a: y.index_fill_(0, index, a.sum())),
        refused(lambda y, a: y.index_fill_(0, a[0, :2].long() % 2, 0.0)),
        refused(lambda y, a: y.index_put_((index,), a[:2])),
        refused(lambda y, a: y.scatter_add_(0, places, a)),
        refused(lambda y, a: y.scatter_reduce_(0, places, a, "sum")),
        refused(lambda y, a: y.clamp_min_(a)),
        refused(lambda y, a: y.clamp_max_(a)),
        refused(lambda y, a: y.logical_xor_(a)),
        refused(lambda y, a: y.div_(a, rounding_mode="floor")),
        refused(lambda y, a: y.sub_(a, alpha=2)),
    ]


@program
def tangents_lie_as_what_they_belong_to(m):
    x = _batch(m)
    inside = m.vmap(lambda a: m.func.jvp(lambda b: b.as_strided((2, 2), (1, 1)) ** 2, (a,), (a,)))(x)
    return inside, m.func.jvp(lambda y: m.vmap(lambda a: a[1:].as_strided((2,), (1,)), in_dims=2)(y) ** 2, (x,), (x,))
