"""What ours are of ONNX's nodes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from suites.case import Case, Refusal
from suites.onnx_attention import attention
from suites.onnx_nodes import Node, nodes

import onepass


def cases() -> list[Case]:
    return [_MAPPINGS[node.op](node) for node in nodes(_MAPPINGS)]


def _softmax(node: Node) -> Case:
    function = {"Softmax": onepass.softmax, "LogSoftmax": onepass.log_softmax}[node.op]
    (x,) = node.inputs.values()
    axis = node.attributes.get("axis", -1 if node.opset >= 13 else 1)
    options = {"scale": -1.0} if node.name == "test_Softmin" else {}
    if node.opset >= 13:
        return node.case(lambda: function(x, axis, **options))
    # Of old, all from the axis on were one.
    rows = x.reshape(math.prod(x.shape[: axis % x.ndim]), -1)
    return node.case(lambda: function(rows, **options).reshape(x.shape))


def _logsumexp(node: Node) -> Case:
    x, axes = node.inputs["data"], node.inputs["axes"].tolist()
    if len(axes) == 1:
        return node.case(lambda: _kept(onepass.logsumexp(x, axes[0]), node))
    return node.case(
        lambda: onepass.logsumexp(x, tuple(axes or range(x.ndim))),
        refusal=Refusal("several axes", TypeError, "axis"),
        adapted=("several axes are reshaped to one: ours reduces one",),
        instead=lambda: _kept(onepass.logsumexp(x.reshape(-1)), node),
    )


def _kept(reduced: np.ndarray, node: Node) -> np.ndarray:
    """The reduced axes as the node wants them: with an extent of one, or gone."""
    return reduced.reshape(node.outputs["reduced"].shape)


def _cross_entropy(node: Node) -> Case:
    x, target = node.inputs["scores"], node.inputs["labels"]
    options: dict[str, Any] = {"reduction": node.attributes.get("reduction", b"mean").decode()}
    if "ignore_index" in node.attributes:
        options["ignore_index"] = node.attributes["ignore_index"]
    if "weights" in node.inputs:
        options["weight"] = node.inputs["weights"]

    def straight() -> Any:
        loss = onepass.cross_entropy(x, target, 1, **options)
        return (loss, onepass.log_softmax(x, 1)) if "log_prob" in node.outputs else loss

    return node.case(straight)


def _topk(node: Node) -> Case:
    x, k = node.inputs["X"], int(node.inputs["K"][0])
    axis = node.attributes.get("axis", -1) % x.ndim
    assert axis == x.ndim - 1, "no test has another"
    if x.dtype.kind != "f":
        error = ValueError if x.dtype == np.int64 else TypeError
        return node.case(lambda: onepass.topk(x, k), refusal=Refusal("integers", error, "x: dtype"))
    if node.attributes.get("largest", 1):
        return node.case(lambda: onepass.topk(x, k))

    def instead() -> Any:
        values, indices = onepass.topk(-x, k)
        return -values, indices

    return node.case(
        lambda: onepass.topk(x, k, largest=False),
        refusal=Refusal("the smallest", TypeError, "largest"),
        adapted=("the smallest are the largest of −x: ours finds the largest",),
        instead=instead,
    )


def _hardmax(node: Node) -> Case:
    (x,) = node.inputs.values()
    axis = node.attributes.get("axis", -1)

    def instead() -> np.ndarray:
        rows = np.moveaxis(x, axis, -1)
        _, indices = onepass.topk(rows, 1)
        y = np.zeros_like(x)
        np.put_along_axis(np.moveaxis(y, axis, -1), indices, 1, -1)
        return y

    return node.case(instead, adapted=("made from topk with k = 1: there is no such op",))


_MAPPINGS: dict[str, Callable[[Node], Case]] = {
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "ReduceLogSumExp": _logsumexp,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "TopK": _topk,
    "Hardmax": _hardmax,
    "Attention": attention,
}
