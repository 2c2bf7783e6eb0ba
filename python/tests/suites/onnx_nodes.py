"""The node tests of ONNX's backend suite, and the models in it that were converted
from PyTorch's."""

import importlib
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from suites.case import Case

MODULES = (
    "softmax", "logsoftmax", "reduce_log_sum_exp", "softmax_cross_entropy_loss", "topk",
    "hardmax", "attention",
)  # fmt: skip


@dataclass
class Node:
    """A test as the suite has it."""

    name: str
    op: str
    attributes: dict[str, Any]
    # Those that are there, by the names that the op's specification has.
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    opset: int

    def case(self, straight: Callable[[], Any], **options: Any) -> Case:
        return Case(self.op, self.name, straight, self.check, **options)

    def check(self, results: Any) -> None:
        results = results if isinstance(results, tuple) else (results,)
        for result, expected in zip(results, self.outputs.values()):
            assert result.shape == expected.shape
            assert result.dtype == expected.dtype
            # As ONNX's own runner has it, but for NaN and inf, which are compared, too.
            rtol = 2**-6 if expected.dtype.name == "bfloat16" else 1e-3
            np.testing.assert_allclose(
                result.astype("float64"), expected.astype("float64"), rtol=rtol, atol=1e-7
            )


def nodes(ops: Container[str]) -> Iterator[Node]:
    np.random.seed(0)  # that the tests draw from as they are imported
    for module in MODULES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of log(0), where the expectation is computed
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
    from onnx.backend.test.case.node import _NodeTestCases as tests

    for test in tests:
        if len(test.model.graph.node) == 1 and test.model.graph.node[0].op_type in ops:
            (data,) = test.data_sets
            yield _node(test.name, test.model, *data)
    folder = Path(onnx.__file__).parent / "backend/test/data/pytorch-converted"
    for path in sorted(path for path in folder.iterdir() if "softm" in path.name.lower()):
        arrays = [_tensor(path / f"test_data_set_0/{name}_0.pb") for name in ("input", "output")]
        yield _node(path.name, onnx.load(path / "model.onnx"), *([array] for array in arrays))


def _node(name: str, model: onnx.ModelProto, inputs: list[Any], outputs: list[Any]) -> Node:
    node = model.graph.node[-1]  # before it there is at most the sign of test_Softmin
    opset = model.opset_import[0].version
    schema = onnx.defs.get_schema(node.op_type, opset)
    attributes = {
        attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    named = [
        dict(zip([formal.name for formal, actual in zip(specified, actuals) if actual], arrays))
        for specified, actuals, arrays in (
            (schema.inputs, node.input, inputs),
            (schema.outputs, node.output, outputs),
        )
    ]
    return Node(name, node.op_type, attributes, *named, opset)


def _tensor(path: Path) -> np.ndarray:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)
