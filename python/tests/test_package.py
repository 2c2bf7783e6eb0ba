"""The package itself: what importing it does, and that its documentation is true."""

import copy
import doctest
import gc
import inspect
import pickle
import pydoc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import has

import onepass

FUNCTIONS = [name for name in onepass.__all__ if inspect.isroutine(getattr(onepass, name))]


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


def softmax(x, axis=-1):
    """Not the extension's: for the test below."""


def test_parameters_that_are_not_the_extensions_fail_at_import():
    with pytest.raises(
        ImportError, match="softmax: parameter 3 is nothing in Python and 'scale' in the extension"
    ):
        onepass._native.function(softmax)

    def merge_attention(a, lse_b, b, lse_a, *, layout="bhsd", dtype=None, out=None):
        """The same names in another order."""

    with pytest.raises(
        ImportError, match="parameter 2 is 'lse_b' in Python and 'lse_a' in the extension"
    ):
        onepass._native.function(merge_attention)


def test_every_op_is_a_function_of_its_own():
    ops = [
        name for name in FUNCTIONS if isinstance(getattr(onepass, name), onepass._native.Function)
    ]
    assert len(ops) == 16
    for name in ops:
        function = getattr(onepass, name)
        assert function.__name__ == name and f"function {name} " in repr(function)
        assert pickle.loads(pickle.dumps(function)) is function is copy.deepcopy(function)
        assert weakref.ref(function)() is function
        shown = pydoc.plain(pydoc.render_doc(function))
        assert f"{name}(" in shown and "Example" in shown


def test_arguments_find_their_parameters():
    x = np.array([[0.0, 1.0, 2.0]])
    whole = onepass.softmax(x)
    assert (onepass.softmax(x=x) == whole).all()
    assert (onepass.softmax(axis=-1, x=x) == whole).all()
    assert (onepass.softmax(x, 0) == 1).all()
    assert (onepass.softmax(x, **{"".join(("a", "xis")): 0}) == 1).all(), (
        "a name that is not the program's own object"
    )
    assert (onepass.softmax(*(x,), **{}) == whole).all()
    names = inspect.signature(onepass.softmax).parameters
    defaults = {name: p.default for name, p in names.items() if p.default is not p.empty}
    assert (onepass.softmax(x, **defaults) == whole).all()
    half = onepass.softmax(x, scale=0.5)
    assert (onepass.softmax(out=half, x=x, softcap=0.0, scale=1.0) is half) and (
        half == whole
    ).all()


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((), {}, r"softmax\(\) missing 1 required positional argument: 'x'"),
        ((), {"axis": 0}, r"softmax\(\) missing 1 required positional argument: 'x'"),
        ((0, 1, 2), {}, r"softmax\(\) takes from 1 to 2 positional arguments but 3 were given"),
        ((0,), {"x": 1}, r"softmax\(\) got multiple values for argument 'x'"),
        ((0,), {"scal": 1}, r"softmax\(\) got an unexpected keyword argument 'scal'"),
    ],
)
def test_arguments_that_do_not_fit(args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        onepass.softmax(*args, **kwargs)


def test_a_function_that_is_not_there():
    def no_such_op(x): ...

    with pytest.raises(ValueError, match="no_such_op"):
        onepass._native.function(no_such_op)
    with pytest.raises(TypeError):
        onepass._native.Function()


def test_functions_go_away():
    def merge_attention(a, lse_a, b, lse_b, *, layout="bhsd", dtype=None, out=None): ...

    made = onepass._native.function(merge_attention)
    assert "function merge_attention " in repr(made), "a name before anybody has given it one"
    made.itself = made
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


def test_as_an_attribute_of_a_class():
    class Layer:
        activation = onepass.softmax

    assert (Layer().activation(np.zeros(2)) == 0.5).all()


@pytest.mark.skipif(not has("torch"), reason="wants torch")
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


def test_explain_of_what_is_no_op():
    for function, named in (
        (len, "op: .*len.* has called no op of onepass"),
        (3, "op: 'int' is not an op"),
    ):
        with pytest.raises(TypeError, match=named):
            onepass.explain(function, np.zeros(3))
    told = onepass.explain(lambda x: onepass.softmax(x), np.zeros((2, 3)))
    assert told.variant, "whoever calls one will do"


def test_threads_by_name():
    before = onepass.get_num_threads()
    for threads, error, message in (
        (2**31, ValueError, "threads: 2147483648 is more than 2"),
        (2**70, ValueError, "threads: .* does not fit"),
        (-1, ValueError, "threads: -1 is negative"),
        (1.5, TypeError, "threads: 'float' is not an integer"),
        ("2", TypeError, "threads: 'str' is not an integer"),
    ):
        with pytest.raises(error, match=message):
            onepass.set_num_threads(threads)
    assert onepass.get_num_threads() == before


def test_explain_computes_nothing():
    x = np.zeros((4, 8), np.float32)
    onepass.explain(onepass.softmax, x, out=x)
    assert (x == 0).all()
    onepass.explain(onepass.topk, x, 2)
    assert (onepass.softmax(x) == 0.125).all(), "explaining ends with the call"
    with pytest.raises(ValueError, match="axis"):
        onepass.explain(onepass.softmax, x, axis=9)
    assert (onepass.softmax(x) == 0.125).all(), "or with its error"
