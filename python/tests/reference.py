"""What the ops should give, in float64 NumPy and as plainly as it can be written."""

import numpy as np


def logits(x, axis=-1, scale=1.0, temperature=1.0, softcap=0.0, mask=None, lengths=None, causal=False, window=None):
    """z, with the rows along the last axis."""
    z = np.moveaxis(np.asarray(x, np.float64), axis, -1)
    rows = lambda value: np.asarray(value, np.float64)[..., None] if np.ndim(value) else value  # noqa: E731
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
        own = (np.arange(queries) + z.shape[-1] - queries)[:, None]
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


def cross_entropy(x, target, axis=-1, ignore_index=-100, label_smoothing=0.0, z_loss=0.0, reduction="mean", **options):
    z = logits(x, axis, **options)
    lse = lse_of(z)
    counts = target != ignore_index
    own = np.take_along_axis(z, np.where(counts, target, 0)[..., None], -1)[..., 0]
    mean = np.where(np.isfinite(z), z, 0).sum(-1) / np.isfinite(z).sum(-1)
    loss = lse - (1 - label_smoothing) * own - label_smoothing * mean + z_loss * lse**2
    loss = np.where(counts, loss, 0)
    if reduction == "none":
        return loss
    return loss.sum() / (max(counts.sum(), 1) if reduction == "mean" else 1)


def topk(x, k, **options):
    """Values and indices; of equal ones the lower index first, which is what a stable sort gives."""
    z = logits(x, **options)
    indices = np.argsort(-z, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(z, indices, -1), indices
