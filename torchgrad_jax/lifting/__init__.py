"""Functions of tensors as something that can be transformed, compiled or handed to JAX: levels, on which `torch.func` rests, and programs of a whole
function, of which is found what they read and change while they run once, recorded."""
