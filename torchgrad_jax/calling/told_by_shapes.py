"""Of which public functions it is told by shapes what a call comes to: see `recalled.py`."""

from __future__ import annotations

from torchgrad_jax.calling.entries import Calls

# Where functions written by hand are found of which this is true. (Of what is made from a declaration it always is.) Not among them: what asks a
# tensor for its elements, draws random numbers, or does otherwise under a flag, unless a change of that flag forgets what is known (`forget_all`).
_SPACES = frozenset(("torch", "torch.functional", "torch.Tensor", "torch.linalg", "torch.fft", "torch.nn.functional"))


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOLD = _names("""
    chunk split unbind tensor_split hsplit vsplit select transpose swapaxes swapdims t permute movedim moveaxis view reshape squeeze unsqueeze
    flatten unflatten ravel expand broadcast_to diagonal unfold adjoint contiguous cat concat concatenate stack hstack vstack dstack column_stack
    where roll flip fliplr flipud rot90 repeat tile tril triu diag diag_embed clamp clip clamp_min clamp_max masked_fill add sub subtract mul
    multiply true_divide pow float_power lerp addcmul addcdiv round nan_to_num heaviside rsub sum mean max min amax amin aminmax argmax argmin std
    var std_mean var_mean norm any all prod median nanmedian mode nanmean nansum logsumexp cumsum cumprod cummax cummin logcumsumexp count_nonzero
    sort topk argsort msort kthvalue diff trapezoid matmul mm bmm mv dot vdot inner outer ger kron trace cross addmm addmv addbmm baddbmm addr
    einsum tensordot cdist cosine_similarity pairwise_distance vector_norm matrix_norm vecdot relu relu6 leaky_relu elu selu celu gelu silu mish
    softplus softsign hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink threshold glu logsigmoid softmax log_softmax softmin
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div layer_norm rms_norm normalize pad conv1d conv2d conv3d
    avg_pool1d avg_pool2d max_pool1d max_pool2d pixel_shuffle pixel_unshuffle float double half bfloat16 int long short bool to type clone
    inv inverse det slogdet logdet cholesky qr svdvals eigvalsh solve pinv matrix_exp matrix_power solve_triangular cholesky_solve
    scaled_dot_product_attention cholesky_inverse lu_factor solve_ex inv_ex cholesky_ex
    fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn ihfftn fftshift ifftshift
""")
# Of these it is true but for indices: they ask for the smallest and the largest one, where that is known.
_TOLD_WITH_BOUNDS = _names("""
    gather index_select take take_along_dim embedding one_hot nll_loss scatter scatter_add scatter_reduce index_add index_copy index_fill
""")
# Of these but for divisors that are integers: which of them are 0 is asked.
_DIVIDING = _names("div divide floor_divide remainder fmod")
_JOINING = _names("cat concat concatenate stack hstack vstack dstack column_stack")
# Functions that make tensors of numbers alone, and those that make them like another one.
_MAKING = _names("zeros ones empty full arange eye linspace fftfreq rfftfreq")
_MAKING_ALIKE = _names("zeros_like ones_like empty_like full_like new_zeros new_ones new_full new_empty")
# Functions that write, of which it is told by shapes what is written; of those with indices as above.
_WRITING = _names("""
    copy_ zero_ fill_ masked_fill_ addcmul_ addcdiv_ lerp_ addmm_ addmv_ addr_ baddbmm_ addbmm_ clamp_ clip_ clamp_min_ clamp_max_ pow_
""")
_WRITING_BY_INDEX = _names("index_add_ index_copy_ index_fill_ scatter_ scatter_add_")


def recalls(name: str, declared: bool) -> Calls | None:
    """What is known of the calls of a public function, by its dotted name; None for one that is not looked for there. declared: whether it is made
    from a declaration."""
    space, _, own = name.rpartition(".")
    if space == "torch.Tensor" and own in _WRITING | _WRITING_BY_INDEX:
        return Calls(own in _WRITING_BY_INDEX, writes=True)
    if own.endswith("_") or not (declared or (space in _SPACES and own in _TOLD | _TOLD_WITH_BOUNDS | _DIVIDING | _MAKING | _MAKING_ALIKE)):
        return None
    makes, alike = own in _MAKING | _MAKING_ALIKE, own in _MAKING_ALIKE
    return Calls(own in _TOLD_WITH_BOUNDS and not declared, makes, alike, joins=own in _JOINING, divides=own in _DIVIDING)
