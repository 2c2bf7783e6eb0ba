"""What arrays may be: any strides, any library's, with any numbers."""

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
