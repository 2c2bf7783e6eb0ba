"""How the arrays of each library are made and, where their types lack DLPack's C functions, read.

The extension asks `kind_of` once a type. None of the libraries is imported here: whoever has an
array has done so."""

import sys
from typing import Any

_VERSION = (1, 0)  # of DLPack: the first that tells what is read-only
_CUDA = (2, 13)  # DLPack's device types: CUDA, CUDA managed
_LEGACY_STREAM = 1  # DLPack's name of CUDA's default stream, which is 0 everywhere else

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
    """Arrays of a library that has Python's array API."""

    immutable = False  # whether none may be written, whatever DLPack says
    # Whether `stream` is the one that the library works on, so that order on it is enough.
    tells_stream = False
    dtypes: tuple[Any, ...] = ()  # the library's own, in the order of _NAMES
    # f(shape, strides, dtype) that do what `empty` does on a CPU, on a GPU.
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
        # ml_dtypes' bfloat16 is a type that NumPy does not know, and so does not export.
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
    """NumPy's masked arrays: what they hide has another meaning in every op, or none."""

    def export(self, array: Any) -> tuple[Any, bool]:
        raise TypeError(
            "it is a masked array, whose mask no op sees: "
            "pass array.filled(...), or array.data and what it hides as `mask`"
        )


class Torch(Kind):
    """Since 2.10 its tensors are read by the C functions, which know the stream, too."""

    tells_stream = True

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self.dtypes = tuple(getattr(torch, name) for name in _NAMES)
        # What programs of torch.compile call for their results; torch.empty takes three times as
        # long. It takes the current GPU, so it will do where there is no other.
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
        # Nobody else has it yet, so the extension may fill it. Where 64 bits are
        # switched off it has 32.
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
    """By the library that the type, or one that it is derived from, belongs to."""
    for base in array_type.__mro__:
        if base.__name__ == "MaskedArray" and base.__module__.startswith("numpy.ma"):
            return Masked()
        kind = _KINDS.get(base.__module__.partition(".")[0])
        if kind is not None:
            return kind()
    return Kind()


def refuse_gradient(argument: str) -> None:
    """Called for a tensor that requires grad: fine where gradients are switched off."""
    if sys.modules["torch"].is_grad_enabled():
        raise TypeError(
            f"{argument}: requires grad, and the result would have none: "
            "call the op of onepass.torch, or pass the detached tensor"
        )
