"""Data pipes: datasets that are chained by methods. The base classes and the registration; PyTorch's own pipes are not here."""
