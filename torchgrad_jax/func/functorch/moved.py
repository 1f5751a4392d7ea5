"""What the old names say of the new ones."""

from torchgrad_jax.runtime.user_code import warn_user


def warn_of(old: str, new: str) -> None:
    """Warn the user who called `functorch.<old>`."""
    warn_user(
        f"We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{old}` is deprecated as of PyTorch 2.0 and will "
        f"be deleted in a future version of PyTorch >= 2.3. Please use `{new}` instead; see the PyTorch 2.0 release notes and/or the `torch.func` "
        "migration guide for more details https://pytorch.org/docs/main/func.migrating.html",
        FutureWarning,
    )
