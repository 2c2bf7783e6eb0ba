"""The package itself: what importing it does, and that its documentation is true."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import has

import onepass

FUNCTIONS = [name for name in onepass.__all__ if inspect.isfunction(getattr(onepass, name))]


def test_torch_is_not_imported():
    code = "import sys, onepass; assert not {'torch', 'numpy', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_one_line_that_must_work():
    code = "import onepass, numpy as np; print(onepass.softmax(np.ones((2,3), np.float32)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.count("0.3333333") == 6


def test_version():
    header = Path(__file__).parents[2] / "include/onepass/version.hpp"
    numbers = [line.split()[-1] for line in header.read_text().splitlines() if "_VERSION_" in line]
    assert onepass.__version__ == ".".join(numbers)


def test_types_are_shipped():
    assert (Path(onepass.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documentation(name):
    function = getattr(onepass, name)
    assert all(p.annotation is not p.empty for p in inspect.signature(function).parameters.values())
    assert "{" not in function.__doc__, "a shared part was not filled in"
    run_examples(function, name, {"onepass": onepass, "np": np})


@pytest.mark.skipif(not has("torch"), reason="no torch")
def test_documentation_of_torch():
    import torch

    import onepass.torch

    names = {"onepass": onepass, "torch": torch}
    run_examples(onepass.torch, "onepass.torch", names)
    for name in onepass.torch.__all__:
        if name != "nn":
            run_examples(getattr(onepass.torch, name), name, names)
    for name in ("Softmax", "CrossEntropyLoss"):
        run_examples(getattr(onepass.torch.nn, name), name, names)


def run_examples(thing, name, names):
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), dict(names), name, None, 0)
    assert test.examples, "no example"
    outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert outcome.failed == 0


def test_explain():
    x = np.zeros((4, 100_000), np.float32)
    told = onepass.explain(onepass.softmax, x, causal=True)
    assert told.variant in told.plan and told.reasons
    assert told.least_bytes == 2 * x.nbytes <= told.planned_bytes
    assert "because" in str(told) and "bytes" in str(told)


def test_explain_computes_nothing():
    x = np.zeros((4, 8), np.float32)
    onepass.explain(onepass.softmax, x, out=x)
    assert (x == 0).all()
    onepass.explain(onepass.topk, x, 2)
    assert (onepass.softmax(x) == 0.125).all(), "explaining ends with the call"
    with pytest.raises(ValueError, match="axis"):
        onepass.explain(onepass.softmax, x, axis=9)
    assert (onepass.softmax(x) == 0.125).all(), "or with its error"
