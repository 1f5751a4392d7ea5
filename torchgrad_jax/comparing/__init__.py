"""What differs between two ways of computing the same: through this package, through PyTorch, through plain JAX.

`figures` measures how far two results are from each other. `calls` keeps one call of an operator, and computes it anew with its derivatives. `noting`
notes every public function that a program calls; `finding` holds two such notes against each other and names the first operator that differs.
`functions` compares functions. What runs under both libraries takes the library as its argument `torch` and uses what is public in both.
"""
