"""What the ops should give, in float64 NumPy and as plainly as it can be written."""

import numpy as np


def logits(
    x,
    axis=-1,
    scale=1.0,
    temperature=1.0,
    softcap=0.0,
    mask=None,
    lengths=None,
    causal=False,
    window=None,
):
    """z, with the rows along the last axis."""
    z = np.moveaxis(np.asarray(x, np.float64), axis, -1)

    def rows(value):
        return np.asarray(value, np.float64)[..., None] if np.ndim(value) else value

    z = z * rows(scale)
    if softcap:
        z = softcap * np.tanh(z / softcap)
    z = z / rows(temperature)
    keys = np.arange(z.shape[-1])
    hidden = np.zeros(z.shape, bool)
    for part in mask if isinstance(mask, tuple) else (mask,):
        if part is None:
            continue
        part = np.moveaxis(np.broadcast_to(part, np.shape(x)), axis, -1)
        if part.dtype.kind in "bu":
            hidden |= part == 0
        else:
            z = z + part
    if lengths is not None:
        hidden |= keys >= np.asarray(lengths)[..., None]
    if causal or window:
        queries = z.shape[-2] if z.ndim > 1 else 1
        own = np.arange(queries) + z.shape[-1] - queries
        own = own[:, None] if z.ndim > 1 else own
        left, right = window or (-1, -1)
        if causal:
            hidden |= keys > own
        if left >= 0:
            hidden |= keys < own - left
        if right >= 0:
            hidden |= keys > own + right
    return np.where(hidden, -np.inf, z)


def lse_of(z):
    top = z.max(-1, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return (np.log(np.exp(z - shift).sum(-1, keepdims=True)) + shift)[..., 0]


def softmax(x, axis=-1, **options):
    z = logits(x, axis, **options)
    lse = lse_of(z)[..., None]
    weights = np.exp(z - np.where(np.isneginf(lse), 0, lse))
    return np.moveaxis(weights, -1, axis)


def log_softmax(x, axis=-1, **options):
    z = logits(x, axis, **options)
    lse = lse_of(z)[..., None]
    return np.moveaxis(z - np.where(np.isneginf(lse), 0, lse), -1, axis)


def logsumexp(x, axis=-1, **options):
    return lse_of(logits(x, axis, **options))


def cross_entropy(
    x,
    target,
    axis=-1,
    weight=None,
    ignore_index=-100,
    label_smoothing=0.0,
    z_loss=0.0,
    reduction="mean",
    **options,
):
    z = logits(x, axis, **options)
    lse = lse_of(z)
    w = np.ones(z.shape[-1]) if weight is None else np.asarray(weight, np.float64)
    if np.asarray(target).dtype.kind == "f":
        label = np.moveaxis(np.asarray(target, np.float64), axis, -1) * w
        counts = np.ones(lse.shape)
    else:
        kept = target != ignore_index
        label = np.where(kept[..., None], target[..., None] == np.arange(z.shape[-1]), 0) * w
        counts = label.sum(-1)
    live = np.isfinite(z)
    smooth = w * live / live.sum(-1, keepdims=True)
    label = (1 - label_smoothing) * label + label_smoothing * smooth
    with np.errstate(invalid="ignore"):
        terms = np.where(label == 0, 0, label * (lse[..., None] - z))
    loss = terms.sum(-1) + z_loss * lse**2
    if np.asarray(target).dtype.kind != "f":
        loss = np.where(kept, loss, 0)
    if reduction == "none":
        return loss
    return loss.sum() / ((counts.sum() or 1) if reduction == "mean" else 1)


def topk(x, k, **options):
    """Values and indices; of equal ones the lower index first, which is what a
    stable sort gives."""
    z = logits(x, **options)
    indices = np.argsort(-z, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(z, indices, -1), indices


def attention(q, k, v, **options):
    """(o, lse) of "bhsd", one sequence after the other."""
    q_offsets, kv_offsets, pages, lengths, mask = (
        options.pop(name, None) for name in ("q_offsets", "kv_offsets", "pages", "lengths", "mask")
    )
    o, lse = np.zeros(q.shape), np.zeros(q.shape[:-1])
    parts = [part for part in (mask if isinstance(mask, tuple) else (mask,)) if part is not None]
    if pages is not None:  # side by side, in the order of each sequence
        k, v = (np.stack([np.concatenate(pool[row], axis=1) for row in pages]) for pool in (k, v))
    batch = len(q) if q_offsets is None else len(q_offsets) - 1
    all_logits = (batch, q.shape[-3], q.shape[-2], k.shape[-2])
    for b in range(batch):
        queries = b if q_offsets is None else np.s_[:, q_offsets[b] : q_offsets[b + 1]]
        first = 0 if kv_offsets is None else kv_offsets[b]
        here = b if kv_offsets is None else np.s_[:, first : kv_offsets[b + 1]]
        keys = (k[here], v[here])
        length = keys[0].shape[1] if lengths is None else lengths[b]
        rows = slice(None) if q_offsets is None else queries[1]
        own = [
            np.broadcast_to(part, all_logits)[b, :, rows, first : first + length] for part in parts
        ]
        alibi = options.get("alibi")
        mine = options | {"alibi": alibi[b] if np.ndim(alibi) == 2 else alibi}
        o[queries], lse[queries] = _one_sequence(
            q[queries], *(side[:, :length] for side in keys), own, **mine
        )
    return o, lse


def _one_sequence(q, k, v, mask, scale=None, alibi=None, sinks=None, **options):
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
    if alibi is not None:
        own = np.arange(q.shape[1]) + k.shape[1] - q.shape[1]
        distance = np.abs(np.arange(k.shape[1]) - own[:, None])
        mask = [*mask, -np.asarray(alibi)[:, None, None] * distance]
    z = logits(
        q @ k.swapaxes(1, 2),
        scale=q.shape[-1] ** -0.5 if scale is None else scale,
        mask=tuple(mask),
        **options,
    )
    if sinks is not None:  # a key more, whose value is nothing
        z = np.concatenate(
            [z, np.broadcast_to(np.asarray(sinks)[:, None, None], (*z.shape[:2], 1))], axis=2
        )
        v = np.concatenate([v, np.zeros((len(v), 1, v.shape[-1]))], axis=1)
    lse = lse_of(z)
    return np.exp(z - np.where(np.isneginf(lse), 0, lse)[..., None]) @ v, lse
