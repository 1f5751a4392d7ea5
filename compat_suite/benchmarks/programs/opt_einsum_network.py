"""opt_einsum: contractions of a ring of tensors along the paths it finds, with gradients of every tensor."""

import clock
import opt_einsum
import torch

BOND, OPEN, SITES, STEPS = 8, 3, 8, 12


def main():
    torch.manual_seed(0)
    sites = [(torch.randn(BOND, OPEN, BOND, dtype=torch.float64) / BOND).requires_grad_() for _ in range(SITES)]
    bonds = [opt_einsum.get_symbol(i) for i in range(SITES)]
    legs = [opt_einsum.get_symbol(SITES + i) for i in range(SITES)]
    copies = [opt_einsum.get_symbol(2 * SITES + i) for i in range(SITES)]
    upper = [bonds[i] + legs[i] + bonds[(i + 1) % SITES] for i in range(SITES)]
    lower = [copies[i] + legs[i] + copies[(i + 1) % SITES] for i in range(SITES)]
    equation = ",".join(upper + lower) + "->"
    path, _ = opt_einsum.contract_path(equation, *sites, *sites, optimize="auto-hq", memory_limit=BOND**6)
    norms = []
    for step in range(STEPS):
        squared = opt_einsum.contract(equation, *sites, *sites, optimize=path, use_blas=False)
        pair = opt_einsum.contract("iaj,jbk,kcl->iabcl", *sites[:3], use_blas=False) if step % 3 == 0 else sites[0]
        grads = torch.autograd.grad(torch.log(squared) + pair.square().sum(), sites, allow_unused=True)
        with torch.no_grad():
            for site, grad in zip(sites, grads, strict=True):
                site -= 0.02 * grad
        norms.append(squared.item())
    return {"norms": norms, "first": sites[0].abs().sum()}


clock.run(main)
