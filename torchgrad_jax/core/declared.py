"""What Tensor has beside what its class says, for type checkers: see `declared.pyi`, which is generated. At run time it is nothing."""
