"""Programs as executables of XLA: what is told to its compiler, and what is made simpler for it before."""
