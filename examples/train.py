"""A small training loop with PyTorch's softmax and cross-entropy, then with ours: the loss falls
in the same way.

A character model with one head of attention learns to continue a sentence. `loss_curve` is given
the two functions, and nothing else changes.
"""

import torch
import torch.nn.functional as F

import onepass.torch

TEXT = "the softmax of a row is a fold with an associative merge. " * 20
ALPHABET = sorted(set(TEXT))
LENGTH = 32


class Model(torch.nn.Module):
    def __init__(self, softmax, width=32):
        super().__init__()
        self.softmax = softmax
        self.embed = torch.nn.Embedding(len(ALPHABET), width)
        self.place = torch.nn.Embedding(LENGTH, width)
        self.mix = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, len(ALPHABET))

    def forward(self, tokens):
        x = self.embed(tokens) + self.place.weight
        q, k, v = self.mix(x).chunk(3, -1)
        return self.out(x + self.softmax(q @ k.mT) @ v)


def torch_attention(scores):
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return F.softmax((scores / 32**0.5).masked_fill(hidden, float("-inf")), -1)


def onepass_attention(scores):
    return onepass.torch.softmax(scores, scale=32**-0.5, causal=True)


def loss_curve(softmax, cross_entropy, steps=60):
    torch.manual_seed(0)
    model = Model(softmax)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.tensor([ALPHABET.index(letter) for letter in TEXT])
    losses = []
    for _ in range(steps):
        starts = torch.randint(0, len(tokens) - LENGTH - 1, (16, 1))
        batch = tokens[starts + torch.arange(LENGTH + 1)]
        logits = model(batch[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torchs = loss_curve(torch_attention, F.cross_entropy)
    ours = loss_curve(onepass_attention, onepass.torch.cross_entropy)
    print("step   torch  onepass")
    for step in (*range(0, len(ours), 10), len(ours) - 1):
        print(f"{step:4}  {torchs[step]:6.3f}  {ours[step]:7.3f}")
    return torchs, ours


if __name__ == "__main__":
    main()
