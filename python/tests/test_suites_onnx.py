"""ONNX's backend suite: the tests of its operators, through ours. See docs/peers-suites.md."""

import pytest

pytest.importorskip("onnx", reason="wants onnx")

from suites import onnx_cases, table  # noqa: E402

CASES = onnx_cases.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.removeprefix("test_"))
def test_node(case):
    case.run()


def test_the_table():
    table.check("onnx", "onnx", CASES)
