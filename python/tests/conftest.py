"""The libraries whose arrays every op is tried on, on each device that is there."""

import functools
import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

TOLERANCE = {"float64": 1e-12, "float32": 5e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def has_gpu() -> bool:
    if not has("torch"):
        return False
    import torch

    return torch.cuda.is_available()


@functools.cache
def has_gradients(device: str) -> bool:
    """Whether attention_backward runs there."""
    if device == "cpu":
        return True
    import torch

    import onepass

    q = torch.zeros(1, 1, 1, 64, device=device)
    try:
        onepass.attention_backward(q, q, q, q, q[..., 0], q)
    except NotImplementedError:
        return False
    return True


def skip_without_gradients(device: str) -> None:
    if not has_gradients(device):
        pytest.skip("wants attention_backward on a GPU")


@dataclass(frozen=True)
class Library:
    """Arrays of one library on one device."""

    name: str
    device: str

    def array(self, values: Any, dtype: str | None = None) -> Any:
        values = np.asarray(values)
        dtype = dtype or values.dtype.name
        if self.name == "numpy":
            return values.astype(_numpy_dtype(dtype))
        if self.name == "torch":
            import torch

            return torch.tensor(values, device=self.device).to(getattr(torch, dtype))
        if self.name == "cupy":
            import cupy

            return cupy.asarray(values.astype(dtype))
        import jax

        jax.config.update("jax_enable_x64", True)

        return jax.numpy.asarray(values, dtype=dtype)

    def numpy(self, array: Any) -> np.ndarray:
        """In float64, or the integers as they are."""
        if self.name == "torch":
            array = array.detach().cpu()
            array = array.double() if array.is_floating_point() else array
        if self.name == "cupy":
            array = array.get()
        array = np.asarray(array)
        return array if array.dtype.kind in "iub" else array.astype(np.float64)

    def dtype(self, array: Any) -> str:
        return str(array.dtype).rpartition(".")[2]

    def is_own(self, array: Any) -> bool:
        return type(array).__module__.split(".")[0].removesuffix("lib") == self.name


def own(library: Library, option: Any, dtype: str) -> Any:
    """An option in the library's arrays: floating ones in a dtype that it has, the
    rest as they are."""
    if isinstance(option, tuple) and any(isinstance(part, np.ndarray) for part in option):
        return tuple(own(library, part, dtype) for part in option)
    if not isinstance(option, np.ndarray):
        return option
    if option.dtype.kind == "f":
        return library.array(option, "float64" if dtype == "float64" else "float32")
    return library.array(option, "int32" if option.dtype.kind == "i" else None)


def _numpy_dtype(name: str) -> Any:
    if name != "bfloat16":
        return name
    import ml_dtypes

    return ml_dtypes.bfloat16


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "library" in metafunc.fixturenames:
        metafunc.parametrize(
            "library", _libraries(), ids=lambda library: f"{library.name}-{library.device}"
        )
    if "device" in metafunc.fixturenames:
        gpu = pytest.param("cuda", marks=pytest.mark.skipif(not has_gpu(), reason="wants a GPU"))
        metafunc.parametrize("device", ["cpu", gpu])


def _libraries() -> list[Any]:
    def param(name: str, device: str, there: bool, reason: str) -> Any:
        return pytest.param(
            Library(name, device), marks=pytest.mark.skipif(not there, reason=reason)
        )

    libraries = [
        param("numpy", "cpu", True, ""),
        param("torch", "cpu", has("torch"), "wants torch"),
        param("torch", "cuda", has_gpu(), "wants a GPU"),
        param("jax", "cpu", has("jax"), "wants jax"),
    ]
    return libraries + ([param("cupy", "cuda", has_gpu(), "wants a GPU")] if has("cupy") else [])


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def dtypes_of(library: Library) -> list[str]:
    if library.name == "cupy" or (library.name == "numpy" and not has("ml_dtypes")):
        return ["float32", "float16", "float64"]
    return ["float32", "float16", "bfloat16", "float64"]


@pytest.fixture(params=["float32", "float16", "bfloat16", "float64"])
def dtype(request: pytest.FixtureRequest, library: Library) -> str:
    if request.param not in dtypes_of(library):
        pytest.skip(f"{library.name} has no {request.param} here")
    return request.param


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """One line after all that pytest has to say: how many tests ran, and what the others want."""
    yield
    stats = {
        outcome: terminalreporter.stats.get(outcome, [])
        for outcome in ("passed", "failed", "error", "skipped")
    }
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in stats["skipped"])
    wants = [
        f"{n} {why if n == 1 else why.replace('wants ', 'want ', 1)}"
        for why, n in reasons.most_common()
    ]
    counts = [
        f"{len(stats[outcome])} {outcome}"
        for outcome in ("passed", "failed", "error")
        if stats[outcome]
    ]
    skipped = f"{len(stats['skipped'])} skipped" + (": " + ", ".join(wants) if wants else "")
    terminalreporter.write_line("python: " + ", ".join([*counts, skipped]))
