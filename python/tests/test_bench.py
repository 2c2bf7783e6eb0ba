"""python -m onepass.bench: runs without a GPU and without any peer, keeps JSON, draws."""

import builtins
import json

import pytest
from conftest import has

pytest.importorskip("torch", reason="wants torch")

from onepass.bench.__main__ import main  # noqa: E402

OPS = ["softmax", "log_softmax", "logsumexp", "cross_entropy", "cross_entropy_training", "topk",
       "softmax_topk", "sample", "gate"]  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_every_op(op, device, tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = [
        op,
        "--shapes",
        "4x64,4x128",
        "--dtype",
        "float32",
        "--device",
        device,
        "--seconds",
        "0.01",
    ]
    peers = "onepass,onepass.torch,torch,flashinfer,liger,quack,copy,read"
    assert main([*arguments, "--peers", peers, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    ours = [row for row in rows if row["peer"] == "onepass"]
    assert len(ours) == 2 and all(row["right"] and row["us"] > 0 and row["gbs"] > 0 for row in ours)
    assert all("absent" in row or row["us"] > 0 for row in rows)
    assert op in capsys.readouterr().out


def test_gradients_take_turns_with_those_of_torch(device, tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = ["attention_backward", "--shapes", "1x2x33x16", "--causal", "--device", device]
    assert main([*arguments, "--rounds", "3", "--rest", "0", "--json", str(path)]) == 0
    ours, torch = json.loads(path.read_text())["rows"]
    assert (ours["peer"], torch["peer"]) == ("onepass", "torch")
    assert ours["right"] and ours["us"] > 0 and ours["tflops"] > 0
    assert torch["ratio"]["low"] <= torch["ratio"]["median"] <= torch["ratio"]["high"]
    assert "attention_backward" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--causal", "--kv-heads", "1"], ["--decode"]])
def test_attention(flags, device, tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = [
        "attention",
        "--shapes",
        "2x2x64x16,1x2x128x16",
        "--dtype",
        "float16,float32",
        "--seconds",
        "0.01",
    ]
    assert main([*arguments, *flags, "--device", device, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    ours = [row for row in rows if row["peer"].startswith("onepass")]
    assert len(ours) == 8 and all(
        row["right"] and row["us"] > 0 and row["tflops"] > 0 for row in ours
    )
    text = capsys.readouterr().out
    assert "TFLOP/s" in text and "torch.flash" in text and "2×2×64×16" in text
    assert has("flash_attn") or "flash-attn: not installed" in text


def test_flops_count_what_no_mask_hides():
    from onepass.bench._attention import Attention, cases

    flops = {}
    for causal in (False, True):
        ((_, build, _),) = cases([(1, 2, 4, 8)], ["float32"], "cpu", None, causal, False)
        flops[causal] = Attention.rates(build(), 1.0)["tflops"] * 1e6
    assert flops == {False: 4 * 2 * 8 * 16, True: 4 * 2 * 8 * 10}


def test_absent_peers_are_named(capsys):
    if has("quack"):
        pytest.skip("wants a machine without quack")
    main(
        [
            "softmax",
            "--shapes",
            "4x64",
            "--dtype",
            "float32",
            "--device",
            "cpu",
            "--peers",
            "onepass,quack",
        ]
    )
    assert "quack: not installed" in capsys.readouterr().out


def test_overhead(device, capsys):
    assert main(["overhead", "--device", device]) == 0
    assert "µs a call" in capsys.readouterr().out


MEASURED = {
    "environment": {"torch": "2", "cpu": "some"},
    "rows": [
        {
            "op": "softmax",
            "dtype": "float32",
            "rows": 4,
            "cols": cols,
            "peer": peer,
            "us": 1.0,
            "gbs": 2.0,
        }
        for cols in (64, 128)
        for peer in ("onepass", "copy")
    ]
    + [
        {
            "op": "attention",
            "dtype": "float16",
            "shape": f"1×2×{cols}×64",
            "group": "2 heads, dim 64",
            "cols": cols,
            "peer": "onepass",
            "us": 1.0,
            "gbs": 2.0,
            "tflops": 3.0,
        }
        for cols in (64, 128)
    ],
}


@pytest.mark.parametrize("name", ["picture.png", "picture.svg"])
def test_plot(name, tmp_path):
    pytest.importorskip("matplotlib", reason="wants matplotlib")
    (tmp_path / "out.json").write_text(json.dumps(MEASURED))
    assert main(["plot", str(tmp_path / "out.json"), str(tmp_path / name)]) == 0
    assert (tmp_path / name).stat().st_size > 1000


def test_plot_without_matplotlib(tmp_path, monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "out.json").write_text(json.dumps(MEASURED))
    assert main(["plot", str(tmp_path / "out.json"), str(tmp_path / "picture.png")]) == 3
    assert "matplotlib is not installed" in capsys.readouterr().err
