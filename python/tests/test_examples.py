"""Each example runs, and shows what it says."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from conftest import skip_without_gradients

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_sample_from_logits(capsys):
    runpy.run_path(str(EXAMPLES / "sample_from_logits.py"))
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_train():
    pytest.importorskip("torch", reason="wants torch")
    torchs, ours = runpy.run_path(str(EXAMPLES / "train.py"))["main"]()
    np.testing.assert_allclose(ours, torchs, rtol=1e-2)
    assert ours[-1] < 0.6 * ours[0]


def test_train_transformer():
    torch = pytest.importorskip("torch", reason="wants torch")
    skip_without_gradients("cuda" if torch.cuda.is_available() else "cpu")
    torchs, ours = runpy.run_path(str(EXAMPLES / "train_transformer.py"))["main"]()
    np.testing.assert_allclose(ours, torchs, rtol=1e-2)
    assert ours[-1] < 0.5 * ours[0]


def test_tiny_transformer():
    pytest.importorskip("torch", reason="wants torch")
    torchs, ours = runpy.run_path(str(EXAMPLES / "tiny_transformer.py"))["main"]()
    assert ours.tolist() == torchs.tolist()
    assert all(len(set(row)) > 5 for row in ours.tolist()), "not one token again and again"


def test_every_example_is_tested():
    text = Path(__file__).read_text()
    assert all(example.name in text for example in EXAMPLES.glob("*.py"))
