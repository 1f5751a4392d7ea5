"""`torch.export`: nothing is exported. What programs name in annotations and ask `isinstance` about is there, and no object is of it."""

from torchgrad_jax.runtime.passing_through import never_made, refused

__all__ = ["Dim", "ExportedProgram", "ShapesCollection", "UnflattenedModule", "dims", "draft_export", "export", "load", "save", "unflatten"]

_INSTEAD = "give torchgrad_jax.to_jax(module) to jax.export, which writes and reads such programs"
export, draft_export, save, load, unflatten, dims = (
    refused(f"torch.export.{name}", _INSTEAD) for name in ("export", "draft_export", "save", "load", "unflatten", "dims")
)
ExportedProgram, UnflattenedModule, Dim, ShapesCollection = (
    never_made(f"torch.export.{name}", _INSTEAD) for name in ("ExportedProgram", "UnflattenedModule", "Dim", "ShapesCollection")
)
