"""Attention of PyTorch's tensors as plainly as it can be written, for autograd to differentiate."""

import torch


def attention(q, k, v, q_offsets=None, kv_offsets=None, lengths=None, mask=None, **options):
    """(o, lse) of "bhsd", one sequence after the other."""
    parts = [part for part in (mask if isinstance(mask, tuple) else (mask,)) if part is not None]
    batch = len(q) if q_offsets is None else len(q_offsets) - 1
    parts = [part.expand(batch, q.shape[-3], q.shape[-2], k.shape[-2]) for part in parts]
    results = []
    for b in range(batch):
        rows = slice(None) if q_offsets is None else slice(q_offsets[b], q_offsets[b + 1])
        keys = slice(None) if kv_offsets is None else slice(kv_offsets[b], kv_offsets[b + 1])
        one = [q[b] if q_offsets is None else q[:, rows]]
        one += [side[b] if kv_offsets is None else side[:, keys] for side in (k, v)]
        own = [part[b, :, rows, keys] for part in parts]
        length = one[1].shape[1] if lengths is None else lengths[b]
        results.append(_one_sequence(*one, own, length, b, **options))
    if q_offsets is None:
        return tuple(torch.stack(each) for each in zip(*results))
    return tuple(torch.cat(each, 1) for each in zip(*results))


def _one_sequence(
    q,
    k,
    v,
    mask,
    length,
    b,
    scale=None,
    softcap=0.0,
    causal=False,
    window=None,
    alibi=None,
    sinks=None,
):
    group = q.shape[0] // k.shape[0]
    k, v = (side.repeat_interleave(group, 0) for side in (k, v))
    z = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    keys = torch.arange(k.shape[1], device=q.device)
    own = (torch.arange(q.shape[1], device=q.device) + length - q.shape[1])[:, None]
    if alibi is not None:
        slopes = alibi[b] if alibi.dim() == 2 else alibi
        z = z - slopes[:, None, None] * (keys - own).abs()
    seen = (keys < length).expand(z.shape)
    for part in mask:
        if part.is_floating_point():
            z = z + part
        else:
            seen = seen & (part != 0)
    left, right = window or (-1, -1)
    if causal:
        seen = seen & (keys <= own)
    if left >= 0:
        seen = seen & (keys >= own - left)
    if right >= 0:
        seen = seen & (keys <= own + right)
    z = z.masked_fill(~seen, -torch.inf)
    if sinks is not None:  # a key more, whose value is nothing
        z = torch.cat([z, sinks[:, None, None].expand(*z.shape[:2], 1).to(z.dtype)], 2)
        v = torch.cat([v, v.new_zeros(v.shape[0], 1, v.shape[2])], 1)
    nothing = (z == -torch.inf).all(-1, keepdim=True)
    weights = z.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    lse = z.masked_fill(nothing, 0).logsumexp(-1).masked_fill(nothing[..., 0], -torch.inf)
    return weights @ v, lse
