"""Arguments that PyTorch refuses: ours are refused, too, by an error that names the argument.

op_db has error inputs for none of these ops, so they are written down here.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from suites.case import Case

import onepass.torch as ours

OP = "arguments that PyTorch refuses"


def cases() -> list[Case]:
    return [*_rows(), *_losses(), *_select(), *_attention()]


def _refused(name: str, theirs: Callable[[], Any], own: Callable[[], Any], says: str) -> Case:
    def check(error: Exception | None) -> None:
        assert _error_of(theirs) is not None, "PyTorch takes it"
        assert error is not None, "taken, where PyTorch refuses it"
        assert says in str(error)
        assert isinstance(error, (TypeError, ValueError, NotImplementedError))

    return Case(OP, name, lambda: _error_of(own), check)


def _taken(
    name: str,
    theirs: Callable[[], Any],
    own: Callable[[], Any],
    same_as: Callable[[], Any],
    why: str,
) -> Case:
    def check(result: Any) -> None:
        assert _error_of(theirs) is not None, "PyTorch takes it"
        torch.testing.assert_close(result, same_as())

    return Case(OP, name, own, check, adapted=(why,))


def _error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _rows() -> Iterator[Case]:
    x = torch.rand(3, 4)
    for name, theirs, own in (
        ("softmax", F.softmax, ours.softmax),
        ("log_softmax", F.log_softmax, ours.log_softmax),
        ("logsumexp", torch.logsumexp, ours.logsumexp),
    ):

        def refused(what, says, *arguments, theirs=theirs, own=own, name=name, **options):
            calls = [
                functools.partial(function, *arguments, **options) for function in (theirs, own)
            ]
            return _refused(f"{name}: {what}", *calls, says)

        yield refused("dim past the last", "2 is outside", x, 2)
        yield refused("dim before the first", "-3 is outside", x, -3)
        yield refused("dim no integer", "'float' is not an integer", x, 1.0)
        yield refused("no tensor", "x: 'list' is not an array", [1.0, 2.0], 0)
        if name != "logsumexp":
            yield refused("integers", "x: dtype", x.long(), 1)
            yield refused("complex numbers", "x: dtype", x + 0j, 1)
            yield refused("a result of integers", "dtype", x, 1, dtype=torch.int64)
    twice = [
        functools.partial(function, x, (1, 1)) for function in (torch.logsumexp, ours.logsumexp)
    ]
    yield _refused("logsumexp: a dim twice", *twice, "axis")
    mask = torch.ones(3, 5, dtype=torch.bool)
    yield _refused(
        "masked.softmax: a mask of another shape",
        lambda: torch.masked.softmax(x, 1, mask=mask),
        lambda: ours.softmax(x, 1, mask=mask),
        "mask",
    )


def _losses() -> Iterator[Case]:
    x, target = torch.rand(3, 4), torch.tensor([0, 1, 2])

    def both(x, target, **options):
        return (lambda: F.cross_entropy(x, target, **options)), (
            lambda: ours.cross_entropy(x, target, **options)
        )

    def refused(what, says, *arguments, **options):
        return _refused(f"cross_entropy: {what}", *both(*arguments, **options), says)

    yield refused("a class past the last", "target: 4 at row 2", x, torch.tensor([0, 1, 4]))
    yield refused("a negative class", "target: -1 at row 2", x, torch.tensor([0, 1, -1]))
    yield refused("no classes", "target: 0 at row 0", torch.rand(3, 0), target)
    yield refused("fewer targets", "target: shape [2]", x, target[:2])
    yield refused(
        "targets of another extent",
        "target: shape [3, 6]",
        torch.rand(3, 4, 5),
        torch.zeros(3, 6).long(),
    )
    yield refused("int16 targets", "target: dtype", x, target.short())
    yield refused("boolean targets", "target: dtype", x, target > 0)
    yield refused("integer logits", "x: dtype", x.long(), target)
    yield refused(
        "a reduction of another name", "reduction: 'average'", x, target, reduction="average"
    )
    yield refused("label smoothing above 1", "label_smoothing: 1.5", x, target, label_smoothing=1.5)
    yield refused(
        "an ignored index that is none", "ignore_index: 'float'", x, target, ignore_index=1.5
    )
    yield refused("weights of another number", "weight", x, target, weight=torch.ones(5))
    taken = "cross_entropy: int32 targets", *both(x, target.int())
    yield _taken(*taken, lambda: F.cross_entropy(x, target), "int32 classes are accepted")
    taken = "cross_entropy: targets with a dimension of one class", *both(x, target[:, None])
    yield _taken(
        *taken,
        lambda: F.cross_entropy(x, target),
        "the class dimension may stay, with an extent of 1",
    )


def _select() -> Iterator[Case]:
    x = torch.rand(3, 4)

    def refused(what, says, x, k, **options):
        return _refused(
            f"topk: {what}",
            lambda: torch.topk(x, k, **options),
            lambda: ours.topk(x, k, **options),
            says,
        )

    yield refused("more than there are", "k: 5", x, 5)
    yield refused("fewer than none", "k: -1", x, -1)
    yield refused("k no integer", "k: 'float'", x, 1.5)
    yield refused("of nothing", "k: 1", x[:, :0], 1)
    yield refused("booleans", "x: dtype", x > 0, 1)
    yield refused("complex numbers", "x: dtype", x + 0j, 1)
    yield refused("dim past the last", "unexpected keyword argument", x, 1, dim=2)


def _attention() -> Iterator[Case]:
    q, k = torch.rand(2, 4, 3, 8), torch.rand(2, 4, 6, 8)
    mask = torch.ones(3, 6, dtype=torch.bool)

    def both(q, k, v, mask=None, causal=False, **options):
        def theirs():
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, **options
            )

        return theirs, (lambda: ours.attention(q, k, v, mask=mask, causal=causal))

    def refused(what, says, *arguments, **options):
        return _refused(f"attention: {what}", *both(*arguments, **options), says)

    def taken(what, same_as, why, *arguments, **options):
        return _taken(f"attention: {what}", *both(*arguments, **options), same_as, why)

    yield refused(
        "keys of another dim", "k: shape [2, 4, 6, 16]", q, *[torch.rand(2, 4, 6, 16)] * 2
    )
    yield refused("another batch", "k: batch 3", q, *[torch.rand(3, 4, 6, 8)] * 2)
    yield refused("heads that do not divide", "k: 3 heads", q, k[:, :3], k[:, :3], enable_gqa=True)
    yield refused("keys of another dtype", "k: dtype f16", q, k.half(), k.half())
    yield refused("values of another dtype", "v: dtype f16", q, k, k.half())
    yield refused("integers", "q: dtype", q.long(), k.long(), k.long())
    yield refused("vectors", "q: shape [8]", q[0, 0, 0], k[0, 0, 0], k[0, 0, 0])
    yield refused("no values", "v:", q, k, None)
    yield refused("a mask of another shape", "mask", q, k, k, mask[:, :5])
    yield refused("a mask of integers", "mask", q, k, k, mask.long())
    grouped = "attention: grouped heads, not asked for"

    def same():
        return F.scaled_dot_product_attention(q, k[:, :2], k[:, :2], enable_gqa=True)

    yield _taken(
        grouped, *both(q, k[:, :2], k[:, :2]), same, "fewer KV heads mean GQA, without a switch"
    )
    causal = mask.tril(3)
    yield taken(
        "a mask beside the diagonal",
        lambda: F.scaled_dot_product_attention(q, k, k, attn_mask=causal),
        "a mask and the diagonal combine: ours takes both",
        q, k, k, mask, True,
    )  # fmt: skip
    yield taken(
        "a float64 mask",
        lambda: F.scaled_dot_product_attention(q, k, k, attn_mask=mask.float()),
        "an additive mask may have another floating dtype",
        q, k, k, mask.double(),
    )  # fmt: skip
