"""What autocast does to the operands of each operator: PyTorch's "Autocast Op Reference", by type of device.

A name is that of a declared operator, or of a public function, which then casts its arguments before it does anything else: `fft_fft` is
`torch.fft.fft`; functions of `torch`, of `torch.nn.functional` and methods of Tensor have their own names. What is in no list computes in the dtype
that its operands have. For the CPU this was measured on PyTorch 2.13, operator by operator; for GPUs it is what PyTorch's documentation says.
"""

from __future__ import annotations

from torchgrad_jax.declaration import dtypes

# To lower precision; to float32; to the widest dtype among the operands; not at all: it raises.
LOWER, FLOAT32, WIDEST, REFUSED = "lower", "float32", "widest", "refused"

# The lower precision that each type of device has unless another one is set; those types that autocast can be switched on for.
BY_DEFAULT = {
    "cpu": dtypes.bfloat16, "cuda": dtypes.float16, "ipu": dtypes.float16, "xpu": dtypes.float16, "hip": dtypes.float16, "maia": dtypes.bfloat16,
    "xla": dtypes.bfloat16, "mps": dtypes.float16, "hpu": dtypes.bfloat16, "mtia": dtypes.float16, "privateuseone": dtypes.float16,
}  # fmt: skip
TYPES = frozenset(BY_DEFAULT) - {"hip"}

_LISTS = {
    "cpu": {
        LOWER: """
            addbmm addmm affine_grid_generator baddbmm bmm convolution linalg_vecdot linear linear_addmm matmul mkldnn_rnn_layer mm prelu rnn_layer
            scaled_dot_product_attention""",
        FLOAT32: """
            _adaptive_avg_pool3d _adaptive_max_pool3d _avg_pool3d _max_pool3d
            _reflect_pad1d _reflect_pad2d _replicate_pad1d _replicate_pad2d _replicate_pad3d grid_sampler_2d grid_sampler_3d
            binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy hinge_embedding_loss huber_loss kl_div l1_loss
            margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
            triplet_margin_loss
            _cdist nanquantile polar prod prod_dim quantile trace view_as_complex
            fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn
            cholesky cholesky_inverse cholesky_solve geqrf linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals
            linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_lstsq_full_rank linalg_matrix_rank linalg_qr
            linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu lu_solve ormqr pinverse triangular_solve""",
        WIDEST: "_stack cat index_copy",
        REFUSED: "",
    },
    "cuda": {
        LOWER: """
            addbmm addmm addmv addr baddbmm bmm convolution linear linear_addmm matmul mm mv prelu scaled_dot_product_attention
            gru_cell gru_layer lstm_cell lstm_layer mkldnn_rnn_layer rnn_layer rnn_relu_cell rnn_tanh_cell""",
        FLOAT32: """
            acos asin cosh cumprod cumsum erfinv exp expm1 log log10 log1p log2 pow_scalar pow_tensor reciprocal rsqrt sinh tan
            dist prod prod_dim renorm sum sum_dim vector_norm norm softmax log_softmax softplus
            binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity cross_entropy hinge_embedding_loss huber_loss kl_div l1_loss
            margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
            triplet_margin_loss _cdist pdist group_norm layer_norm normalize""",
        WIDEST: """
            _stack addcdiv addcmul atan2 bilinear cat dot grid_sampler_2d grid_sampler_3d index_copy index_put linalg_cross scatter_add tensordot
            vdot""",
        REFUSED: "binary_cross_entropy",
    },
}
_policies = {where: {name: policy for policy, names in lists.items() for name in names.split()} for where, lists in _LISTS.items()}
LISTED = frozenset().union(*_policies.values())


def policies(where: str) -> dict[str, str]:
    """The policy of each operator that has one on a type of device, by its name."""
    return _policies.get(where, {})


def name_of_function(dotted: str) -> str:
    """The name that a public function has in the lists."""
    for space in ("torch.nn.functional.", "torch.Tensor.", "torch.functional.", "torch."):
        if dotted.startswith(space):
            return dotted[len(space) :].replace(".", "_")
    return dotted
