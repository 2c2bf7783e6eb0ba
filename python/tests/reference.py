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
    pages = options.pop("pages", None)
    if pages is not None:  # side by side, in the order of each sequence
        k, v = (np.stack([np.concatenate(pool[row], axis=1) for row in pages]) for pool in (k, v))
    o, lse = np.zeros((*q.shape[:-1], v.shape[-1])), np.zeros(q.shape[:-1])
    for queries, keys, length, _, mine in _sequences(q, k, **options):
        one = (q[queries], *(side[keys][:, :length] for side in (k, v)))
        o[queries], lse[queries] = _one_sequence(*one, **mine)
    return o, lse


def attention_backward(q, k, v, d_o, d_lse=0, **options):
    """d_q, d_k, d_v and, by name, what sinks and the floating mask have, from the formulas."""
    d_q, d_k, d_v = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    d_sinks = np.zeros(q.shape[-3])
    d_lse = np.broadcast_to(d_lse, q.shape[:-1])
    part = [part for part in _parts(options.get("mask")) if part.dtype.kind == "f"]
    batch = _batch(q, options.get("q_offsets"))
    d_mask = np.zeros((batch, q.shape[-3], q.shape[-2], k.shape[-2]))
    for queries, keys, length, place, mine in _sequences(q, k, **options):
        one = (q[queries], *(side[keys][:, :length] for side in (k, v)))
        grads = _one_gradient(*one, d_o[queries], d_lse[queries], **mine)
        d_q[queries] = grads[0]
        d_k[keys][:, :length], d_v[keys][:, :length] = grads[1:3]
        d_mask[place] = grads[3]
        d_sinks += grads[4]
    extra = {"sinks": d_sinks} | ({"mask": _narrow(d_mask, part[0].shape)} if part else {})
    return d_q, d_k, d_v, extra


def merge_attention_backward(a, lse_a, b, lse_b, d_o, d_lse=0):
    """(d_a, d_lse_a, d_b, d_lse_b), from the formulas."""
    top = np.maximum(lse_a, lse_b)
    top = np.where(np.isfinite(top), top, 0)
    w_a, w_b = (np.exp(lse - top) for lse in (lse_a, lse_b))
    total = np.where(w_a + w_b == 0, 1, w_a + w_b)
    w_a, w_b = w_a / total, w_b / total
    apart = (d_o * (a - b)).sum(-1)
    return (
        w_a[..., None] * d_o,
        w_a * (w_b * apart + d_lse),
        w_b[..., None] * d_o,
        w_b * (-w_a * apart + d_lse),
    )


def _parts(mask):
    return [part for part in (mask if isinstance(mask, tuple) else (mask,)) if part is not None]


def _batch(q, q_offsets):
    return len(q) if q_offsets is None else len(q_offsets) - 1


def _narrow(whole, shape):
    """Sums over what a shape broadcasts."""
    whole = whole.sum(axis=tuple(range(whole.ndim - len(shape))))
    axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return whole.sum(axis=axes, keepdims=True)


def _sequences(q, k, q_offsets=None, kv_offsets=None, lengths=None, mask=None, **options):
    """For each sequence: where its queries and its keys are, how many keys count, its place in a
    mask for all, and its options."""
    batch = _batch(q, q_offsets)
    all_logits = (batch, q.shape[-3], q.shape[-2], k.shape[-2])
    for b in range(batch):
        queries = b if q_offsets is None else np.s_[:, q_offsets[b] : q_offsets[b + 1]]
        first = 0 if kv_offsets is None else kv_offsets[b]
        last = k.shape[-2] if kv_offsets is None else kv_offsets[b + 1]
        keys = b if kv_offsets is None else np.s_[:, first:last]
        length = last - first if lengths is None else lengths[b]
        rows = slice(None) if q_offsets is None else queries[1]
        place = np.s_[b, :, rows, first : first + length]
        own = [np.broadcast_to(part, all_logits)[place] for part in _parts(mask)]
        alibi = options.get("alibi")
        mine = {"alibi": alibi[b] if np.ndim(alibi) == 2 else alibi, "mask": own}
        yield queries, keys, length, place, options | mine


def _one_sequence(q, k, v, mask, scale=None, alibi=None, sinks=None, **options):
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
    weights, lse = _weights(q, k, mask, scale, alibi, sinks, **options)
    return weights[..., : k.shape[1]] @ v, lse


def _one_gradient(q, k, v, d_o, d_lse, softcap=0.0, scale=None, **options):
    kv_heads, keys, group = *k.shape[:2], q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    weights, _ = _weights(q, k, scale=scale, softcap=softcap, **options)
    own, sink = weights[..., :keys], weights[..., keys:].sum(-1)
    moved = (d_o * (own @ v)).sum(-1) - d_lse
    dz = own * (d_o @ v.swapaxes(1, 2) - moved[..., None])
    slope = 1 - np.tanh(q @ k.swapaxes(1, 2) * scale / softcap) ** 2 if softcap else 1
    ds = dz * slope * scale
    d_k, d_v = ds.swapaxes(1, 2) @ q, own.swapaxes(1, 2) @ d_o
    shared = [d.reshape(kv_heads, group, *d.shape[1:]).sum(1) for d in (d_k, d_v)]
    return ds @ k, *shared, dz, -(sink * moved).sum(-1)


def _weights(q, k, mask, scale=None, alibi=None, sinks=None, **options):
    """exp(z − lse), with a column more where there are sinks, and the lse."""
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
        sink = np.broadcast_to(np.asarray(sinks)[:, None, None], (*z.shape[:2], 1))
        z = np.concatenate([z, sink], axis=2)
    lse = lse_of(z)
    return np.exp(z - np.where(np.isneginf(lse), 0, lse)[..., None]), lse
