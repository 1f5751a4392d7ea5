"""A GPT that learns to write Python's reference manual, character by character, and shows what it writes.

The text is the manual's that every Python brings with it (`pydoc_data`). AdamW with decay for matrices only, a learning rate that rises and falls
with a cosine, clipped gradients: the usual recipe.

python docs/examples/character_gpt.py             # under PyTorch
torchgrad-jax run docs/examples/character_gpt.py  # under torchgrad_jax, the file unchanged
"""

import argparse
import time
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 64, 96, 4, 3, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (t.view(batch, length, HEADS, -1).transpose(1, 2) for t in self.attend(self.norm1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        self.apply(self.initialise)

    def initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def write(self, tokens, count):
        for _ in range(count):
            logits = self(tokens[:, -CONTEXT:])[:, -1]
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return tokens


def batch_of(text):
    starts = torch.randint(len(text) - CONTEXT, (BATCH,))
    pieces = text[starts[:, None] + torch.arange(CONTEXT + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--characters", type=int, default=200, help="how many to write at the end")
    options = parser.parse_args()

    torch.manual_seed(0)
    manual = "".join(topics[name] for name in sorted(topics))
    characters = sorted(set(manual))
    text = torch.tensor([characters.index(c) for c in manual[:100_000]])
    model = GPT(len(characters))
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.99))
    rising = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=options.steps // 10)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps - options.steps // 10, eta_min=3e-4)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [rising, falling], [options.steps // 10])

    start = time.perf_counter()
    for step in range(options.steps):
        x, y = batch_of(text)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}")
    seconds = time.perf_counter() - start
    print(f"{options.steps} steps in {seconds:.1f} s, {options.steps * BATCH * CONTEXT / seconds:.0f} characters a second")

    begun = torch.tensor([[characters.index("\n")]])
    written = model.eval().write(begun, options.characters)[0].tolist()
    print("".join(characters[i] for i in written))


if __name__ == "__main__":
    main()
