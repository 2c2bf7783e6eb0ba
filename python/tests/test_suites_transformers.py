"""Models of transformers: ours in place of eager attention. See docs/peers-suites.md."""

import pytest

pytest.importorskip("torch", reason="wants torch")
pytest.importorskip("transformers", minversion="5", reason="wants transformers")

from suites import models, table  # noqa: E402
from suites.case import run_all  # noqa: E402


@pytest.mark.parametrize("family", models.FAMILIES)
def test_model(family):
    run_all(models.cases_of(family))


def test_the_table():
    table.check("models", "transformers", models.cases())
