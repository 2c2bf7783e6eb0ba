"""Attention in a tiny transformer that writes token by token, with PyTorch's attention and with
ours: the same tokens.

The prompt goes through at once, under a causal mask. From then on each step has one query and a
cache with room for more keys than there are: `lengths` says how many count, so that nothing is cut
or copied. Grouped heads: four of q share one of k and v.
"""

import torch
import torch.nn.functional as F

import onepass.torch

TOKENS, WIDTH, HEADS, KV_HEADS, DIM, LAYERS, ROOM = 61, 64, 8, 2, 8, 3, 64


def torch_attention(q, k, v, length):
    """q: batch × tokens × heads × dim, the last tokens of `length`; k and v have room for more."""
    keys = torch.arange(k.shape[1])
    own = torch.arange(length - q.shape[1], length)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=keys <= own[:, None], enable_gqa=True
    ).transpose(1, 2)


def onepass_attention(q, k, v, length):
    lengths = torch.full((len(q),), length)
    return onepass.torch.attention(q, k, v, causal=True, lengths=lengths, layout="bshd")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * DIM)
        self.out = torch.nn.Linear(HEADS * DIM, WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(WIDTH),
            torch.nn.Linear(WIDTH, 4 * WIDTH),
            torch.nn.GELU(),
            torch.nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x, cache, start, attention):
        end = start + x.shape[1]
        heads = self.qkv(F.layer_norm(x, (WIDTH,))).unflatten(-1, (-1, DIM))
        q, *new = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=2)
        for kept, tokens in zip(cache, new):
            kept[:, start:end] = tokens
        x = x + self.out(attention(q, *cache, end).flatten(2))
        return x + self.mlp(x)


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(TOKENS, WIDTH)
        self.place = torch.nn.Embedding(ROOM, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.out = torch.nn.Linear(WIDTH, TOKENS)

    @torch.no_grad()
    def generate(self, prompt, steps, attention):
        caches = [torch.zeros(2, len(prompt), ROOM, KV_HEADS, DIM) for _ in self.layers]
        tokens, written, start = prompt, [], 0
        for _ in range(steps):
            end = start + tokens.shape[1]
            x = self.embed(tokens) + self.place.weight[start:end]
            for layer, cache in zip(self.layers, caches):
                x = layer(x, cache, start, attention)
            tokens, start = self.out(x[:, -1:]).argmax(-1), end
            written.append(tokens)
        return torch.cat(written, 1)


def main():
    torch.manual_seed(0)
    model = Transformer()
    prompt = torch.randint(0, TOKENS, (2, 12))
    torchs, ours = (
        model.generate(prompt, 24, attention) for attention in (torch_attention, onepass_attention)
    )
    for row, same in zip(ours.tolist(), torchs.tolist()):
        print(*row, "as PyTorch's" if row == same else f"WRONG: PyTorch's are {same}")
    return torchs, ours


if __name__ == "__main__":
    main()
