"""Function transforms: levels, and the trees that what a function takes and returns is taken apart into."""
