"""How to make the arrays of each library and, if their types lack DLPack's C functions, read them.

The extension calls `kind_of` once per type. This module imports none of the libraries: a program
that has an array has imported its library."""

import sys
from typing import Any

_VERSION = (1, 0)  # of DLPack: the first with a flag for read-only memory
_CUDA = (2, 13)  # DLPack's device types: CUDA, CUDA managed
_LEGACY_STREAM = 1  # DLPack's number for CUDA's default stream, which is 0 everywhere else

# In the order of onepass::DType.
_NAMES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "uint8",
    "int32",
    "int64",
)
_BF16 = _NAMES.index("bfloat16")


class Kind:
    """Arrays of a library with Python's array API."""

    immutable = False  # whether its arrays may never be written, whatever DLPack says
    # Whether `stream` is the stream that the library works on, so that a call need not wait.
    tells_stream = False
    dtypes: tuple[Any, ...] = ()  # the library's own, in the order of _NAMES
    # f(shape, strides, dtype): faster than `empty`, on a CPU and on a GPU.
    quick: tuple[Any, Any] = (
        None,
        None,
    )

    def export(self, array: Any) -> tuple[Any, bool]:
        """A DLPack capsule, and whether it holds the bits of a bfloat16 as integers."""
        on_gpu = array.__dlpack_device__()[0] in _CUDA
        arguments = {"stream": self.stream(array) or _LEGACY_STREAM} if on_gpu else {}
        return self._capsule(array, **arguments), False

    def _capsule(self, array: Any, **arguments: Any) -> Any:
        try:
            return array.__dlpack__(max_version=_VERSION, **arguments)
        except TypeError:  # from before DLPack 1.0
            return array.__dlpack__(**arguments)

    def empty(self, like: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int) -> Any:
        """A new array on the same device. `strides` are those of a dense one."""
        namespace = like.__array_namespace__()
        return namespace.empty(shape, dtype=getattr(namespace, _NAMES[dtype]), device=like.device)

    def stream(self, like: Any) -> int:
        """The current stream as a number; 0: CUDA's default stream."""
        return 0


class Numpy(Kind):
    def export(self, array: Any) -> tuple[Any, bool]:
        # NumPy does not know ml_dtypes' bfloat16, so it cannot export it.
        bits_of_bf16 = array.dtype.kind == "V" and array.dtype.name == "bfloat16"
        if bits_of_bf16:
            array = array.view("int16")
        return self._capsule(array), bits_of_bf16

    def empty(self, like: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int) -> Any:
        numpy = sys.modules["numpy"]
        if dtype != _BF16:
            return numpy.empty(shape, _NAMES[dtype])
        from ml_dtypes import bfloat16

        return numpy.empty(shape, bfloat16)


class Masked(Numpy):
    """NumPy's masked arrays, which are refused: no op could honour their mask in one way."""

    def export(self, array: Any) -> tuple[Any, bool]:
        raise TypeError(
            "it is a masked array, whose mask no op sees: "
            "pass array.filled(...), or array.data and what it hides as `mask`"
        )


class Torch(Kind):
    """PyTorch's tensors. Since 2.10 DLPack's C functions read them and know the stream, too."""

    tells_stream = True

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self.dtypes = tuple(getattr(torch, name) for name in _NAMES)
        # The functions that code from torch.compile calls for its results; torch.empty takes three
        # times as long. The second one uses the current GPU, so it serves only if there is no
        # other.
        guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
        alone = torch.cuda.device_count() == 1
        self.quick = (
            getattr(guards, "_empty_strided_cpu", None),
            getattr(guards, "_empty_strided_cuda", None) if alone else None,
        )

    def empty(self, like: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int) -> Any:
        return like.new_empty(shape, dtype=self.dtypes[dtype])

    def stream(self, like: Any) -> int:
        return sys.modules["torch"].cuda.current_stream(like.device).cuda_stream


class Cupy(Kind):
    tells_stream = True

    def empty(self, like: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int) -> Any:
        with like.device:
            return sys.modules["cupy"].empty(shape, _NAMES[dtype])

    def stream(self, like: Any) -> int:
        with like.device:
            return sys.modules["cupy"].cuda.get_current_stream().ptr


class Jax(Kind):
    immutable = True

    def empty(self, like: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int) -> Any:
        # The array is new, so the extension may fill it. It has 32 bits if JAX's 64-bit types are
        # off.
        jax = sys.modules["jax"]
        allowed = jax.dtypes.canonicalize_dtype(_NAMES[dtype])
        return jax.numpy.empty(shape, allowed, device=like.device).block_until_ready()


_KINDS: dict[str, type[Kind]] = {
    "numpy": Numpy,
    "torch": Torch,
    "cupy": Cupy,
    "jax": Jax,
    "jaxlib": Jax,
}


def kind_of(array_type: type) -> Kind:
    """The kind of a type, by the library that the type or one of its bases belongs to."""
    for base in array_type.__mro__:
        if base.__name__ == "MaskedArray" and base.__module__.startswith("numpy.ma"):
            return Masked()
        kind = _KINDS.get(base.__module__.partition(".")[0])
        if kind is not None:
            return kind()
    return Kind()


def refuse_gradient(argument: str) -> None:
    """Refuses a tensor that requires grad, unless gradients are off."""
    if sys.modules["torch"].is_grad_enabled():
        raise TypeError(
            f"{argument}: requires grad, and the result would have none: "
            "call the op of onepass.torch, or pass the detached tensor"
        )
