"""Nothing but the import: what every process pays."""

import clock
import torch


def main() -> dict[str, float]:
    return {"one": float(torch.finfo(torch.float32).max > 1)}


clock.run(main)
