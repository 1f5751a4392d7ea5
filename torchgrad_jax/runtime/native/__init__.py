"""What C does, in the typed core and in NumPy's BLAS, for the interpreter and for XLA's programs alike."""
