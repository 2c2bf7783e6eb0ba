"""PyTorch's own operator tests: their samples, and what they refuse, through ours. See
docs/peers-suites.md."""

import pytest

torch = pytest.importorskip("torch", reason="wants torch")
pytest.importorskip("expecttest", reason="wants expecttest")

from suites import opinfo, table, torch_errors  # noqa: E402
from suites.case import run_all  # noqa: E402


@pytest.mark.parametrize("dtype", opinfo.DTYPES)
@pytest.mark.parametrize(("name", "variant"), opinfo.MAPPINGS)
def test_samples(name, variant, dtype):
    if not opinfo.has(name, variant):
        pytest.skip(f"wants {name} in op_db")
    run_all(opinfo.cases(name, variant, dtype))


@pytest.mark.parametrize("case", torch_errors.cases(), ids=lambda case: case.name)
def test_what_torch_refuses(case):
    case.run()


def test_the_tables():
    table.check("opinfo", "torch", opinfo.all_cases())
    table.check("errors", "torch", torch_errors.cases())
