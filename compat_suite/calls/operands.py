"""What stands for what in the text of a call: tensors of either library by short names, made anew for each call."""

from __future__ import annotations

from typing import Any

import numpy as np

# Each an expression of `torch`, which is either library.
OPERANDS = {
    "A": "torch.arange(1., 10).reshape(3, 3) / 10", "V": "torch.tensor([0.3, 0.1, 0.2])", "S": "torch.tensor(0.5)",
    "P": "torch.tensor([[4., 1, 0], [1, 4, 1], [0, 1, 4]])", "I": "torch.zeros(3, 3, dtype=torch.int64)",
    "J": "torch.tensor([0, 2, 1])", "M": "torch.tensor([[True, False, True]] * 3)", "C": "torch.complex(torch.ones(3, 3), torch.ones(3, 3))",
    "T": "(torch.arange(24.) / 24).reshape(2, 3, 4)", "B": "(torch.arange(18.) / 18).reshape(2, 3, 3)",
    "Q": "(torch.arange(96.) / 96).reshape(2, 3, 4, 4)", "R": "torch.arange(1., 7).reshape(3, 2)",
    "PIVOTS": "torch.tensor([1, 2, 3], dtype=torch.int32)",
    "D": "torch.ones(3, 3, dtype=torch.float64)", "E": "torch.empty(0)", "K": "torch.tensor([1, 2, 3], dtype=torch.int32)",
    "N": "(torch.arange(3.) + 1).repeat(3, 1).log_softmax(1)",
    # operands of the same content in other orders of memory
    "A_t": "(torch.arange(1., 10).reshape(3, 3) / 10).t()", "P_t": "torch.tensor([[4., 1, 0], [1, 4, 1], [0, 1, 4]]).t()",
    "I_t": "torch.zeros(3, 3, dtype=torch.int64).t()", "M_t": "torch.tensor([[True, False, True]] * 3).t()",
    "C_t": "torch.complex(torch.ones(3, 3), torch.ones(3, 3)).t()", "T_t": "(torch.arange(24.) / 24).reshape(4, 3, 2).permute(2, 1, 0)",
    "B_t": "(torch.arange(18.) / 18).reshape(2, 3, 3).transpose(1, 2)", "R_t": "torch.arange(1., 7).reshape(2, 3).t()",
    "D_t": "torch.ones(3, 3, dtype=torch.float64).t()", "N_t": "torch.ones(3, 3).log_softmax(1).t()",
    "Q_c": "(torch.arange(96.) / 96).reshape(2, 3, 4, 4).to(memory_format=torch.channels_last)",
    "Q_t": "(torch.arange(96.) / 96).reshape(2, 3, 4, 4).transpose(1, 3)",
    **{f"{k}_e": f"torch.ones(1, {n}, dtype=torch.{d}).expand({m}, {n})" for k, n, m, d in (
        ("A", 3, 3, "float32"), ("P", 3, 3, "float32"), ("I", 3, 3, "int64"), ("M", 3, 3, "bool"), ("C", 3, 3, "complex64"), ("R", 2, 3, "float32"),
        ("D", 3, 3, "float64"), ("N", 3, 3, "float32"))},
    **{f"{k}_e": f"torch.ones(1, {n}).expand({m}, {n})" for k, n, m in (("T", "3, 4", 2), ("B", "3, 3", 2), ("Q", "3, 4, 4", 2))},
}  # fmt: skip


class Operands(dict[str, Any]):
    """The names of one call: the library, and operands made when they are first named."""

    def __init__(self, library: Any) -> None:
        super().__init__(torch=library, np=np, inf=float("inf"))

    def __missing__(self, name: str) -> Any:
        if name not in OPERANDS:
            raise KeyError(name)
        made = self[name] = eval(OPERANDS[name], {"torch": self["torch"]})
        return made
