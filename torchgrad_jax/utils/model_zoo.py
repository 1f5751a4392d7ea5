"""`torch.utils.model_zoo`: the older name of `torch.hub`'s download of weights."""

from torchgrad_jax.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
