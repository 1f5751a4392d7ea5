"""`torch._inductor`: the options of PyTorch's code generator, which are kept and change nothing. XLA_FLAGS has XLA's."""

from torchgrad_jax.runtime.passing_through import Options

__all__ = ["config"]

config = Options(
    triton=Options(cudagraphs=False, unique_kernel_names=True), cpp=Options(threads=-1), cuda=Options(), aot_inductor=Options(),
    trace=Options(enabled=False),
    max_autotune=False, coordinate_descent_tuning=False, fx_graph_cache=True, epilogue_fusion=True, freezing=False, shape_padding=True, debug=False,
)  # fmt: skip
