"""What arrays may be, what they may not be, and that neither ends in a crash."""

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest
import reference
from conftest import has, has_gpu

import onepass


def test_nothing_is_copied(library):
    x = library.array(np.zeros((4, 8), np.float32))
    out = library.array(np.ones((4, 8), np.float32))
    if library.name == "jax":  # its arrays cannot be written into
        with pytest.raises(ValueError, match="out: is read-only"):
            onepass.softmax(x, out=out)
        return
    assert onepass.softmax(x, out=out) is out
    np.testing.assert_allclose(library.numpy(out), 1 / 8)
    assert onepass.softmax(x, out=x) is x
    np.testing.assert_allclose(library.numpy(x), 1 / 8)


def test_strides(random):
    whole = random.normal(size=(6, 8, 10)).astype(np.float32)
    views = [
        whole[:, ::2],
        whole[::-1],
        whole[..., ::-3],
        whole.T,
        whole[2:3, :, 5],
        whole.transpose(1, 0, 2),
    ]
    for x in views:
        np.testing.assert_allclose(onepass.softmax(x), reference.softmax(x), rtol=2e-6)
    out = np.zeros((6, 16), np.float32)
    onepass.softmax(whole[:, :, 0], out=out[:, ::2])
    np.testing.assert_allclose(out[:, ::2], reference.softmax(whole[:, :, 0]), rtol=2e-6)
    assert (out[:, 1::2] == 0).all()


def test_broadcast_input():
    x = np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4))
    np.testing.assert_allclose(onepass.softmax(x), reference.softmax(x), rtol=2e-6)
    with pytest.raises(ValueError, match="read-only"):
        onepass.softmax(x, out=x)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_empty(shape, library):
    x = library.array(np.zeros(shape, np.float32))
    assert tuple(onepass.softmax(x).shape) == shape
    lse = library.numpy(onepass.logsumexp(x))
    assert lse.shape == shape[:-1] and (lse == -np.inf).all()


def test_one_number(library):
    assert library.numpy(onepass.softmax(library.array(np.float32(3)))) == 1


def test_nan_and_infinities(library):
    x = np.array([[0, np.nan], [-np.inf, -np.inf], [-np.inf, 0], [np.inf, 0]], np.float32)
    y = library.numpy(onepass.softmax(library.array(x)))
    assert (
        np.isnan(y[0]).all() and (y[1] == 0).all() and y[2].tolist() == [0, 1] and np.isnan(y[3, 0])
    )


@pytest.mark.parametrize("cols", [6, 700, 40_000])
@pytest.mark.parametrize("hide", ["boolean", "lengths", "additive"])
def test_nan_and_what_is_hidden(cols, hide):
    """As docs/numerics.md has it: forward the whole row is NaN, a gradient is 0 where
    it is hidden."""
    x = np.zeros((2, cols), np.float32)
    x[0, 1] = np.nan
    keep = np.arange(cols) < cols - 2
    options = {
        "boolean": {"mask": keep},
        "lengths": {"lengths": np.full(2, cols - 2)},
        "additive": {"mask": np.where(keep, 0, -np.inf).astype(np.float32)},
    }[hide]
    target, ones = np.zeros(2, np.int64), np.ones((2, cols), np.float32)
    y, log_y = onepass.softmax(x, **options), onepass.log_softmax(x, **options)
    loss, dx, lse = onepass.cross_entropy_with_gradient(
        x, target, reduction="none", return_lse=True, **options
    )
    for forward in (y, log_y, loss, lse, onepass.logsumexp(x, **options)):
        assert np.isnan(forward[0]).all() and not np.isnan(forward[1]).any()
    later = [
        onepass.cross_entropy_backward(x, target, ones[:, 0], known, reduction="none", **options)
        for known in (lse, None)
    ]
    if hide != "additive":
        later += [
            onepass.softmax_backward(y, ones, **options),
            onepass.log_softmax_backward(log_y, ones, **options),
        ]
    for gradient in (dx, *later):
        assert np.isnan(gradient[0, keep]).all() and (gradient[0, ~keep] == 0).all()
        assert not np.isnan(gradient[1]).any()


def test_read_only():
    x = np.zeros((2, 2), np.float32)
    x.flags.writeable = False
    assert (onepass.softmax(x) == 0.5).all()
    with pytest.raises(ValueError, match="out: is read-only"):
        onepass.softmax(x, out=x)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": [1.0, 2.0]}, TypeError, "x: 'list' is not an array"),
        ({"x": None}, TypeError, "x: 'NoneType' is not an array"),
        ({"x": np.zeros(2, np.int32)}, ValueError, "x: dtype i32"),
        ({"x": np.zeros(2, np.int16)}, TypeError, "x: dtype int16 is not one that onepass knows"),
        ({"x": np.zeros(2, complex)}, TypeError, "x: dtype complex128"),
        ({"x": np.zeros(2, object)}, TypeError, "x: cannot be read"),
        ({"x": np.zeros(2, ">f4")}, TypeError, "x: cannot be read: .*byte order"),
        ({"x": np.zeros((1,) * 9, np.float32)}, ValueError, "x: 9 dimensions"),
        ({"axis": 2}, ValueError, "axis: 2 is outside"),
        ({"axis": 0.5}, TypeError, "axis: 'float' is not an integer"),
        ({"axis": 2**70}, ValueError, "axis: .* does not fit"),
        ({"axis": 2**32}, ValueError, "axis: 4294967296 is outside a tensor of 2 dimensions"),
        ({"axis": -(2**32)}, ValueError, "axis: -4294967296 is outside"),
        ({"scale": "1"}, TypeError, "scale: 'str' is not a number"),
        ({"temperature": -1.0}, ValueError, "temperature: -1"),
        ({"temperature": np.zeros(3, np.float32)}, ValueError, "temperature"),
        ({"softcap": None}, TypeError, "softcap: 'NoneType' is not a number"),
        ({"mask": np.zeros(5, bool)}, ValueError, "mask"),
        ({"mask": (np.zeros(3), np.zeros(3))}, ValueError, "mask: two parts"),
        ({"mask": 3}, TypeError, "mask: 'int' is not an array"),
        ({"mask": np.zeros((2, 3), np.int64)}, ValueError, "^mask: dtype i64"),
        ({"lengths": np.zeros(2)}, ValueError, "^lengths: dtype f64"),
        ({"lengths": np.array([1, 9])}, ValueError, "^lengths: 9 at row 1"),
        ({"causal": 1}, TypeError, "causal: 'int' is not True or False"),
        ({"window": 3}, TypeError, "window: 'int' is not a pair"),
        ({"window": (-2, 1)}, ValueError, "^window: -2"),
        ({"dtype": "int8"}, TypeError, "^dtype: 'int8' is not one of float32"),
        ({"dtype": "i32"}, TypeError, "^dtype: 'i32' is not one of float32"),
        ({"dtype": int}, TypeError, "^dtype: 'int' is not one of float32"),
        ({"dtype": np.dtype(">f4")}, TypeError, "^dtype: '>f4' is not one of float32"),
        (
            {"out": np.zeros((2, 4), np.float32)},
            ValueError,
            r"^out: shape \[2, 4\] is not \[2, 3\]",
        ),
        ({"out": np.zeros((2, 3), np.int32)}, ValueError, "^out: dtype i32 is not one of"),
        (
            {"out": (np.zeros(3, np.float32),)},
            ValueError,
            r"^out\[0\]: shape \[3\] is not \[2, 3\]",
        ),
        ({"return_lse": True, "out": (None, 3)}, TypeError, r"^out\[1\]: 'int' is not an array"),
        ({"out": (None, None)}, ValueError, "out: 2 arrays for 1 results"),
        ({"out": [1]}, TypeError, "out: 'list' is not an array"),
        ({"variant": 1}, TypeError, "variant: 'int' is not a string"),
    ],
)
def test_what_cannot_be(change, error, message):
    arguments = {"x": np.zeros((2, 3), np.float32)} | change
    with pytest.raises(error, match=message):
        onepass.softmax(**arguments)


def test_errors_begin_with_the_argument():
    x, target = np.zeros((2, 3), np.float32), np.array([0, 1])
    q, lse = np.zeros((1, 2, 4, 8), np.float32), np.zeros((1, 2, 4), np.float32)
    for call, error, message in [
        (
            lambda: onepass.attention(q, q, q, dtype="f64"),
            ValueError,
            "dtype: f64 is not one of f32, f16, bf16",
        ),
        (lambda: onepass.attention(q, q, q, out=q[:, :, :2]), ValueError, "out: shape"),
        (lambda: onepass.attention(q, q, q, lengths=np.array([9])), ValueError, "lengths: 9 at 0"),
        (
            lambda: onepass.attention(q, q, q, pages=np.zeros((1, 1), np.int32)),
            ValueError,
            "lengths: are missing",
        ),
        (
            lambda: onepass.merge_attention(q, lse, q, lse, out=(None, q)),
            ValueError,
            r"out\[1\]: shape",
        ),
        (
            lambda: onepass.topk(x, 2, out=(x, None)),
            ValueError,
            r"out\[0\]: shape \[2, 3\] is not \[2, 2\]",
        ),
        (lambda: onepass.gate(x, 2, out=x), ValueError, r"out: shape \[2, 3\] is not \[2, 2\]"),
        (
            lambda: onepass.topk(x, 2, index_dtype=float),
            TypeError,
            "index_dtype: 'float' is neither int32 nor int64",
        ),
        (lambda: onepass.cross_entropy(x, target, out=np.zeros(2)), ValueError, "out: shape"),
        (
            lambda: onepass.cross_entropy_with_gradient(x, target, out=(None, x[:1])),
            ValueError,
            r"out\[1\]: shape",
        ),
        (
            lambda: onepass.cross_entropy_with_gradient(x, target, dtype="i64"),
            TypeError,
            "dtype: 'i64'",
        ),
        (lambda: onepass.softmax_backward(x, x, out=target), ValueError, "out: shape"),
        (lambda: onepass.sample(x, lengths=np.array([4, 1])), ValueError, "lengths: 4 at row 0"),
    ]:
        with pytest.raises(error, match="^" + message):
            call()


@pytest.mark.parametrize(
    ("name", "spellings"),
    {
        "float64": [
            float,
            "float",
            "f8",
            "<f8",
            "=f8",
            "d",
            "double",
            "float64",
            "f64",
            np.float64,
            np.dtype("f8"),
        ],
        "float32": [
            "f4",
            "<f4",
            "f",
            "single",
            "float32",
            "f32",
            np.float32,
            np.single,
            np.dtype("f4"),
        ],
        "float16": ["f2", "e", "half", "float16", "f16", np.float16, np.half, np.dtype("<f2")],
    }.items(),
)
def test_spellings_of_a_dtype(name, spellings):
    """As NumPy understands them, where it does; "f16", "f32" and "f64" are ours."""
    x = np.zeros((2, 3), np.float32)
    for spelling in spellings:
        if spelling not in ("f16", "f32", "f64"):
            assert np.dtype(spelling).name == name
        assert onepass.softmax(x, dtype=spelling).dtype.name == name, spelling
        assert (
            onepass.cross_entropy_with_gradient(x, np.array([0, 1]), dtype=spelling)[0].dtype.name
            == name
        )


def test_spellings_of_an_integer():
    x = np.zeros((2, 3), np.float32)
    for spelling in (
        int,
        "int",
        "i8",
        "<i8",
        "l",
        "q",
        "long",
        "int64",
        "i64",
        np.int64,
        np.longlong,
        None,
    ):
        assert onepass.topk(x, 1, index_dtype=spelling)[1].dtype == np.int64, spelling
    for spelling in ("i4", "i", "intc", "int32", "i32", np.int32, np.intc):
        assert onepass.topk(x, 1, index_dtype=spelling)[1].dtype == np.int32, spelling


def test_masked_arrays_are_refused():
    """Their masks would be lost in silence."""
    x = np.zeros((2, 3), np.float32)
    masked = np.ma.MaskedArray(x, mask=[[False, True, False]] * 2)
    for arguments in ({"x": masked}, {"mask": masked}, {"scale": masked[:, 0]}, {"out": masked}):
        name = next(iter(arguments))
        with pytest.raises(TypeError, match=f"{name}: cannot be read: it is a masked array"):
            onepass.softmax(**{"x": x} | arguments)
    assert (onepass.softmax(x, mask=~masked.mask) == [0.5, 0, 0.5]).all()


def test_types_of_arrays_are_let_go():
    def met():
        class Own(np.ndarray): ...

        x = np.zeros((2, 4), np.float32).view(Own)
        assert (onepass.softmax(x, scale=x[:, 0] + 1) == 0.25).all()
        return weakref.ref(Own)

    types = [met() for _ in range(20)]
    gc.collect()
    assert [kind() for kind in types] == [None] * 20


def test_out_that_overlaps():
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match="overlaps"):
        onepass.softmax(x[:2], out=x[1:])


@pytest.mark.skipif(not has("jax"), reason="wants jax")
def test_jax_whose_64_bits_are_switched_off():
    import jax

    with jax.enable_x64(False):
        values, indices = onepass.topk(jax.numpy.zeros((2, 3)), 2)
        assert values.dtype == np.float32 and indices.dtype == np.int32
        assert onepass.softmax(jax.numpy.zeros((2, 3)), dtype="float64").dtype == np.float32


def test_arrays_of_several_libraries_meet():
    torch = pytest.importorskip("torch", reason="wants torch")
    mask = np.array([True, False, True])
    np.testing.assert_allclose(onepass.softmax(torch.zeros(2, 3), mask=mask), [[0.5, 0, 0.5]] * 2)
    out = np.zeros((2, 3), np.float32)
    assert onepass.softmax(torch.zeros(2, 3), out=out) is out
    np.testing.assert_allclose(out, 1 / 3)


class Elsewhere:
    """An array that says it is on another device: how a GPU's looks to somebody without one."""

    def __init__(self, array, device_type):
        self.array = array
        self.device = array.device
        self.device_type = device_type

    def __array_namespace__(self):
        return np

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, **arguments):
        if "max_version" in arguments:
            raise TypeError("from before DLPack 1.0")
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        device = ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8)
        device.value = self.device_type
        return capsule


CPU, CUDA, METAL = 1, 2, 8


def test_devices():
    x = np.zeros((2, 4), np.float32)
    assert (onepass.softmax(Elsewhere(x, CPU)) == 0.25).all(), (
        "any library with the array API will do"
    )
    with pytest.raises(ValueError, match="mask: is on cuda:0, x is on the CPU"):
        onepass.softmax(x, mask=Elsewhere(x, CUDA))
    with pytest.raises(ValueError, match="out: is on cuda:0, x is on the CPU"):
        onepass.softmax(x, out=Elsewhere(x, CUDA))
    with pytest.raises(ValueError, match="x: is on a device that is neither"):
        onepass.softmax(Elsewhere(x, METAL))


@pytest.mark.skipif(onepass.has_cuda and has_gpu(), reason="wants a machine without a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(NotImplementedError, match="cuda: "):
        onepass.softmax(Elsewhere(np.zeros((2, 4), np.float32), CUDA))


@pytest.mark.skipif(not has("torch"), reason="wants torch")
class TestTorch:
    def test_spellings_of_a_dtype(self):
        import torch

        x = torch.zeros(2, 3)
        for name in ("float32", "float16", "bfloat16", "float64", "float", "half", "double"):
            assert onepass.softmax(x, dtype=getattr(torch, name)).dtype is getattr(torch, name)
        assert (
            onepass.softmax(x, dtype=float).dtype
            is torch.zeros(1, dtype=float).dtype
            is torch.float64
        )
        assert onepass.topk(x, 1, index_dtype=torch.int)[1].dtype is torch.int32

    def test_no_gradient_is_lost_in_silence(self):
        import torch

        x = torch.zeros(2, 3, requires_grad=True)
        with pytest.raises(TypeError, match="x: requires grad.*onepass.torch"):
            onepass.softmax(x)
        with torch.no_grad():
            assert onepass.softmax(x).shape == (2, 3)

    def test_results_are_its_own(self, device):
        """Of its allocator: they can be resized, and record_stream finds them."""
        import torch

        x = torch.zeros(2, 3, device=device)
        for result in (onepass.softmax(x), *onepass.topk(x, 2)):
            assert result.untyped_storage().resizable()

    def test_a_subclass_is_a_tensor(self):
        import torch

        with torch.no_grad():
            assert (onepass.softmax(torch.nn.Parameter(torch.zeros(2, 2))) == 0.5).all()

    def test_before_the_table_of_c_functions(self, device):
        import torch

        class Old(torch.Tensor):
            __dlpack_c_exchange_api__ = None

        x = torch.randn(3, 5, device=device)
        y = onepass.softmax(x.as_subclass(Old), dtype="bfloat16", mask=(x > 0).as_subclass(Old))
        assert isinstance(y, torch.Tensor) and y.dtype == torch.bfloat16
        torch.testing.assert_close(y, onepass.softmax(x, dtype="bfloat16", mask=x > 0))

    def test_tensors_without_memory(self):
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        with pytest.raises(TypeError, match="x: cannot be read"):
            onepass.softmax(torch.zeros(2, 3, device="meta"))
        with pytest.raises(TypeError, match="x: cannot be read"):
            onepass.softmax(torch.zeros(3, 3).to_sparse())
        with FakeTensorMode(), pytest.raises((TypeError, ValueError), match="x"):
            onepass.softmax(torch.zeros(2, 3))

    @pytest.mark.skipif(not has_gpu(), reason="wants a GPU")
    def test_devices_must_agree(self):
        import torch

        x = torch.zeros(2, 3, device="cuda")
        with pytest.raises(ValueError, match="mask: is on the CPU, x is on cuda:0"):
            onepass.softmax(x, mask=torch.zeros(3))
        with pytest.raises(ValueError, match="out: is on the CPU"):
            onepass.softmax(x, out=torch.zeros(2, 3))

    @pytest.mark.skipif(not has_gpu(), reason="wants a GPU")
    def test_works_on_the_current_stream(self):
        import torch

        x = torch.randn(4096, 4096, device="cuda")
        expected = x.softmax(-1)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)  # what is queued before must be seen
            y = onepass.softmax(x.mul_(1))
        side.synchronize()
        torch.testing.assert_close(y, expected)

    @pytest.mark.skipif(
        not has_gpu() or __import__("torch").cuda.device_count() < 2, reason="wants a second GPU"
    )
    def test_another_gpu_than_the_current_one(self):
        import torch

        x = torch.randn(8, 100, device="cuda:1")
        torch.testing.assert_close(onepass.softmax(x), x.softmax(-1))
        assert torch.cuda.current_device() == 0


def test_from_many_threads(random, library):
    inputs = [random.normal(size=(50, 1000)).astype(np.float32) for _ in range(8)]
    arrays = {id(x): library.array(x) for x in inputs}
    wrong = []

    def work(x):
        for _ in range(20):
            try:  # threads that were never on a GPU before
                y = onepass.softmax(arrays[id(x)])
            except Exception as error:
                wrong.append(error)
                continue
            if not np.allclose(library.numpy(y), reference.softmax(x), rtol=1e-5, atol=1e-7):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_others_run_meanwhile():
    """The interpreter's lock is released: a second thread makes progress while a long
    call computes."""
    x = np.zeros((4096, 4096), np.float32)
    out = np.empty_like(x)
    stop = threading.Event()
    steps = []

    def count():
        while not stop.is_set():
            steps.append(stop.wait(0.0005))

    counter = threading.Thread(target=count)
    onepass.set_num_threads(1)  # many would be done before the other thread wakes up
    try:
        counter.start()
        onepass.softmax(x, out=out)
        before = len(steps)
        onepass.softmax(x, out=out)
        after = len(steps)
    finally:
        stop.set()
        counter.join()
        onepass.set_num_threads(0)
    assert after > before + 2


def test_threads_can_be_chosen(random):
    x = random.normal(size=(300, 1000)).astype(np.float32)
    onepass.set_num_threads(1)
    try:
        assert "threads=1" in onepass.explain(onepass.softmax, x).plan
        one = onepass.softmax(x)
    finally:
        onepass.set_num_threads(0)
    np.testing.assert_allclose(onepass.softmax(x), one, rtol=1e-6)
    with pytest.raises(ValueError, match="threads: -1 is negative"):
        onepass.set_num_threads(-1)
