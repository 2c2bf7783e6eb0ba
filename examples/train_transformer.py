"""Trains a small causal transformer with PyTorch's attention, then with ours: the loss falls in the
same way. On the GPU if there is one.

Grouped heads: two of q share one of k and v. Tokens come before heads, as the projections write
them, and no tensor is copied on the way.
"""

import torch
import torch.nn.functional as F

import onepass.torch

TEXT = "attention keeps a maximum and a sum per query, and never the scores. " * 20
ALPHABET = sorted(set(TEXT))
LENGTH, BATCH, WIDTH, HEADS, KV_HEADS, DIM, LAYERS = 48, 16, 64, 4, 2, 16, 2


def torch_attention(q, k, v):
    """batch × tokens × heads × dim."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


def onepass_attention(q, k, v):
    return onepass.torch.attention(q, k, v, causal=True, layout="bshd")


class Layer(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.qkv = torch.nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * DIM)
        self.out = torch.nn.Linear(HEADS * DIM, WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(WIDTH),
            torch.nn.Linear(WIDTH, 4 * WIDTH),
            torch.nn.GELU(),
            torch.nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x):
        heads = self.qkv(F.layer_norm(x, (WIDTH,))).unflatten(-1, (-1, DIM))
        q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=2)
        x = x + self.out(self.attention(q, k, v).flatten(2))
        return x + self.mlp(x)


class Transformer(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.embed = torch.nn.Embedding(len(ALPHABET), WIDTH)
        self.place = torch.nn.Embedding(LENGTH, WIDTH)
        self.layers = torch.nn.Sequential(*(Layer(attention) for _ in range(LAYERS)))
        self.out = torch.nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, tokens):
        return self.out(self.layers(self.embed(tokens) + self.place.weight))


def loss_curve(attention, device, steps=40):
    torch.manual_seed(0)
    model = Transformer(attention).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.tensor([ALPHABET.index(letter) for letter in TEXT])
    losses = []
    for _ in range(steps):
        starts = torch.randint(0, len(tokens) - LENGTH - 1, (BATCH, 1))
        batch = tokens[starts + torch.arange(LENGTH + 1)].to(device)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torchs, ours = (loss_curve(attend, device) for attend in (torch_attention, onepass_attention))
    print("step   torch  onepass")
    for step in (*range(0, len(ours), 10), len(ours) - 1):
        print(f"{step:4}  {torchs[step]:6.3f}  {ours[step]:7.3f}")
    return torchs, ours


if __name__ == "__main__":
    main()
