"""Programs that the cold benchmark starts in fresh processes, unmodified users of PyTorch; `catalog.py` lists them."""
