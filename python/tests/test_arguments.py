"""What arguments may not be, how errors name them, and that none ends in a crash."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from conftest import has_gpu

import onepass


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
            lambda: onepass.attention_backward(q, q, q, q, lse, q, dtype="f64"),
            ValueError,
            "dtype: f64 is neither that of q, f32, nor f32",
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
