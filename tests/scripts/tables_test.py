#!/usr/bin/env python3
"""The scripts that write tables into pages: what they write, what they check, what they refuse."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
NAMES = ["steps_f32", "steps_f16", "shapes_f16", "cols_f32", "counters"]
ENVIRONMENT = {
    "device": "NVIDIA H200",
    "sm": 90,
    "driver": "580.1",
    "cuda": "13.0",
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2025-11-01T00:00:00Z",
}


def row(variant, shape, dtype, time, role="teach", **more):
    return {
        "op": "softmax",
        "variant": variant,
        "role": role,
        "chosen": False,
        "problem": f"softmax {'x'.join(map(str, shape))} {dtype} device=cuda",
        "dtype": dtype,
        "shape": shape,
        "threads": 0,
        "median_us": time,
        "gbps": 1000.0,
        "percent_of_copy": 50.0,
        "verified": role != "peer",
        **more,
    }


def walk_rows():
    rows = []
    for dtype in ("f32", "f16"):
        rows += [
            row("naive", [4096, 4096], dtype, 4000.0),
            row("shared", [4096, 4096], dtype, 1000.0),
            row("vec4", [4096, 4096], dtype, 2000.0),
            row("cudnn_accurate", [4096, 4096], dtype, 500.0, "peer"),
            row("copy", [4096, 4096], dtype, 100.0, "peer"),
        ]
    rows += [
        row("naive", [128, 1024], "f16", 9.0),
        row("copy", [128, 1024], "f16", 1.0, "peer"),
        row("naive", [4, 33554432], "f16", 12345.6),
        row("vec4", [4, 33554432], "f16", 77.77),
        row("naive", [4096, 256], "f32", 10.0),
    ]
    return rows


def profile_row(variant, moved, **more):
    return {
        "op": "softmax",
        "variant": variant,
        "role": "teach",
        "problem": "softmax 4096x4096 f32",
        "dtype": "f32",
        "shape": [4096, 4096],
        "launches": 1,
        "duration_us": 1234.5,
        "dram_percent": 22.4,
        "l2_percent": 1.0,
        "l1_percent": 2.0,
        "sm_percent": 3.0,
        "occupancy_percent": None,
        "registers": 32,
        "dram_read_bytes": 201300000.0,
        "dram_write_bytes": 67110000.0,
        "moved": moved,
        **more,
    }


class WalkTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.page = self.root / "docs/walk/softmax.md"

    def put_page(self, names=NAMES):
        self.page.parent.mkdir(parents=True, exist_ok=True)
        blocks = "".join(
            f"<!-- results:{name} -->\n<!-- /results -->\nwords about {name}\n" for name in names
        )
        self.page.write_text("# The walk\n" + blocks, encoding="utf-8")

    def put_results(self, stem, rows, **more):
        path = self.root / f"results/h200/{stem}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "schema": 1,
            "environment": ENVIRONMENT,
            "limits": {"copy_gbps": 4000.0},
            "rows": rows,
        }
        path.write_text(json.dumps({**result, **more}), encoding="utf-8")

    def walk(self, action, code=0):
        done = subprocess.run(
            [sys.executable, SCRIPTS / "walk.py", action, "--root", self.root],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_nothing_yet(self):
        self.assertIn("no docs/walk/softmax.md yet", self.walk("--check"))
        self.put_page()
        said = self.walk("--check")
        for name in NAMES:
            self.assertIn(f"{name} stays as it is", said)

    def test_written_tables_agree_until_the_results_change(self):
        self.put_page()
        self.put_results("softmax_walk", walk_rows())
        self.assertIn("disagrees", self.walk("--check", 1))
        self.assertIn("counters stays as it is", self.walk("--write"))
        self.walk("--check")
        self.put_results("softmax_profile", [profile_row("naive", "")])
        self.walk("--check", 1)
        self.walk("--write")
        self.walk("--check")
        changed = walk_rows()
        changed[0]["median_us"] = 4001.0
        self.put_results("softmax_walk", changed)
        self.assertIn("-| naive | 4.000 |", self.walk("--check", 1))

    def test_tables(self):
        self.put_page()
        self.put_results("softmax_walk", walk_rows())
        self.put_results(
            "softmax_profile",
            [
                profile_row("naive", ""),
                profile_row("vec4", "DRAM +31 points (22 -> 53 %)"),
                profile_row("vec4", "", problem="softmax 4096x4096 f16"),
            ],
        )
        self.walk("--write")
        text = self.page.read_text(encoding="utf-8")
        for part in [
            "**NVIDIA H200** (580.1, 13.0, copy 4000.0 GB/s, commit 0123456789ab, 2025-11-01)",
            # Against the step before; a loss stays a loss; a peer is no step.
            "| naive | 4.000 | 1,000 | 50 | 12 |  |",
            "| shared | 1.000 | 1,000 | 50 | 50 | 4.00× |",
            "| vec4 | 2.000 | 1,000 | 50 | 25 | 0.50× |",
            "| cudnn_accurate | 0.500 | 1,000 | 50 | 100 |  |",
            "| copy | 0.100 | 1,000 | 50 | – |  |",
            # The best of a line is bold, and a copy is no softmax.
            "| shape | naive | vec4 | copy |",
            "| 128×1024 | **9.00** | – | 1.00 |",
            "| 4×33554432 | 12,346 | **77.8** | – |",
            "| cols | naive | shared | vec4 | cudnn_accurate | copy |",
            "| 256 | **10.0** | – | – | – | – |\n| 4096 | 4,000 | 1,000 | 2,000 | **500** | 100 |",
            "`softmax 4096x4096 f32`",
            "| naive |  | 1,234.5 | 22 | 1 | 2 | 3 | – | 32 | 201.3 | 67.1 |",
            "| vec4 | DRAM +31 points (22 → 53 %) |",
            "`softmax 4096x4096 f16`",
            "words about counters",
        ]:
            self.assertIn(part, text)

    def test_topk(self):
        def topk(variant, time, more="", role="teach"):
            return row(
                variant,
                [64, 32000],
                "f32",
                time,
                role,
                op="topk",
                problem=f"topk 64x32000 f32 k=50{more} device=cuda",
            )

        self.put_page()
        self.page = self.root / "docs/walk/topk.md"
        self.put_page(["topk_steps", "topk_problems"])
        self.assertIn("topk_steps stays as it is", self.walk("--check"))
        results = [
            topk("gpu_block", 10.0, role="ship"),
            topk("unfused", 800.0),
            topk("warp_merge", 200.0),
            topk("copy", 5.0, role="peer"),
            topk("unfused", 900.0, " fill=clustered"),
        ]
        self.put_results("topk_walk", results)
        self.assertIn("docs/walk/topk.md disagrees", self.walk("--check", 1))
        self.walk("--write")
        self.walk("--check")
        text = self.page.read_text(encoding="utf-8")
        for part in [
            # What ships comes after what teaches, and is no step.
            "| unfused | 800 | 1,000 | 50 |  |\n| warp_merge | 200 | 1,000 | 50 | 4.00× |\n"
            "| gpu_block | 10.0 | 1,000 | 50 |  |\n| copy | 5.00 | 1,000 | 50 |  |",
            "| `topk 64x32000 f32 k=50` | **10.0** | 800 | 200 | 5.00 |",
            "| `topk 64x32000 f32 k=50 fill=clustered` | – | **900** | – | – |",
        ]:
            self.assertIn(part, text)
        self.put_results("topk_walk", [topk("unfused", 1.0, " fill=clustered")])
        self.assertIn("no rows of topk 64x32000", self.walk("--check", 1))

    def test_attention(self):
        def attention(variant, time, role="teach", problem="4x16x1024x64 f16", **more):
            return row(
                variant,
                [4, 16, 1024, 64],
                "f16",
                time,
                role,
                op="attention",
                tflops=12.34,
                problem=f"attention {problem} device=cuda",
                **more,
            )

        self.put_page()
        self.page = self.root / "docs/walk/attention.md"
        self.put_page(["attention_steps", "attention_problems"])
        self.assertIn("attention_problems stays as it is", self.walk("--check"))
        copy = attention("copy", 5.0, role="peer")
        del copy["tflops"]
        results = [
            attention("naive", 800.0),
            attention("flash_wmma", 200.0),
            attention("gpu_flash", 50.0, role="ship"),
            copy,
            attention("naive", 900.0, problem="2x16x2048x128 bf16 causal"),
        ]
        self.put_results("attention_walk", results)
        self.assertIn("docs/walk/attention.md disagrees", self.walk("--check", 1))
        self.walk("--write")
        self.walk("--check")
        text = self.page.read_text(encoding="utf-8")
        for part in [
            "| naive | 800 | 12.3 | – |  |\n| flash_wmma | 200 | 12.3 | – | 4.00× |\n"
            "| gpu_flash | 50.0 | 12.3 | – |  |\n| copy | 5.00 | – | – |  |",
            "| `attention 4x16x1024x64 f16` | 800 | 200 | **50.0** | 5.00 |",
            "| `attention 2x16x2048x128 bf16 causal` | **900** | – | – | – |",
        ]:
            self.assertIn(part, text)
        # With cuDNN in the same run.
        self.put_results("attention_walk", [*results, attention("cudnn_sdpa", 40.0, role="peer")])
        self.walk("--write")
        text = self.page.read_text(encoding="utf-8")
        self.assertIn("| flash_wmma | 200 | 12.3 | 20 | 4.00× |", text)
        self.assertIn("| cudnn_sdpa | 40.0 | 12.3 | 100 |  |", text)
        self.put_results("attention_walk", results[-1:])
        self.assertIn("no rows of attention 4x16x1024x64", self.walk("--check", 1))

    def test_attention_backward(self):
        def gradients(variant, time, role="teach"):
            return row(
                variant,
                [4, 16, 1024, 64],
                "f16",
                time,
                role,
                op="attention_backward",
                tflops=12.34,
                problem="attention_backward 4x16x1024x64 f16 device=cuda",
            )

        self.put_page()
        self.page = self.root / "docs/walk/attention.md"
        self.put_page(["attention_backward_steps", "attention_backward_problems"])
        self.assertIn("attention_backward_steps stays as it is", self.walk("--check"))
        results = [
            gradients("backward_naive", 800.0),
            gradients("backward_wmma", 200.0),
            gradients("gpu_hopper", 50.0, role="ship"),
        ]
        self.put_results("attention_backward_walk", results)
        self.walk("--write")
        self.walk("--check")
        text = self.page.read_text(encoding="utf-8")
        for part in [
            "| variant | µs | TFLOP/s | gain over the step before |",
            "| backward_naive | 800 | 12.3 |  |\n| backward_wmma | 200 | 12.3 | 4.00× |\n"
            "| gpu_hopper | 50.0 | 12.3 |  |",
            "| `attention_backward 4x16x1024x64 f16` | 800 | 200 | **50.0** |",
        ]:
            self.assertIn(part, text)

    def test_attention_shipped(self):
        def attention(variant, time, problem, **more):
            return row(
                variant,
                [1, 1, 1, 64],
                "bf16",
                time,
                op="attention",
                tflops=12.34,
                problem=f"attention {problem} device=cuda",
                **more,
            )

        self.put_page()
        self.page = self.root / "docs/walk/attention.md"
        self.put_page(["attention_shipped"])
        self.put_results(
            "attention",
            [
                attention("gpu_hopper", 100.0, "4x16x1024x64 bf16 causal", chosen=True),
                attention("cudnn_sdpa", 125.0, "4x16x1024x64 bf16 causal", role="peer"),
                attention("gpu_decode", 50.0, "1x8x1x64 bf16 page=16", chosen=True),
            ],
        )
        self.walk("--write")
        text = self.page.read_text(encoding="utf-8")
        self.assertIn(
            "| 4x16x1024x64 | bf16 causal | gpu_hopper | 100 | 12.3 | 1,000 | 125 | 1.25 |", text
        )
        self.assertIn(
            "| 1x8x1x64 | bf16 page=16 | gpu_decode | 50.0 | 12.3 | 1,000 | – | – |", text
        )

    def test_what_is_refused(self):
        self.put_page(["steps_f64"])
        self.assertIn("steps_f64 is none of steps_f32", self.walk("--write", 1))
        self.put_page(["steps_f32"])
        for rows, words in [
            ([], "no f32 rows of 4096×4096"),
            ([row("naive", [4096, 4096], "f32", 1.0, verified=False)], "not verified"),
            ([{"op": "softmax"}], "not of the schema"),
            ([row("naive", [4096, 4096], "f32", None)], "not of the schema"),
        ]:
            self.put_results("softmax_walk", rows)
            self.assertIn(words, self.walk("--write", 1))
        self.put_results("softmax_walk", walk_rows(), schema=2)
        self.assertIn("schema is 2", self.walk("--check", 1))
        (self.root / "results/h200/softmax_walk.json").write_text("{", encoding="utf-8")
        self.assertIn("not JSON", self.walk("--check", 1))
        self.page.write_text("<!-- results:steps_f32 -->\n", encoding="utf-8")
        self.assertIn("not closed", self.walk("--check", 1))
        self.page.write_text("no tables\n", encoding="utf-8")
        self.assertIn("has no <!-- results:NAME --> block", self.walk("--check", 1))

    def test_twice(self):
        self.put_page(["cols_f32"])
        self.put_results("softmax_walk", [row("naive", [4096, 256], "f32", 1.0)] * 2)
        self.assertIn("measured twice", self.walk("--write", 1))


if __name__ == "__main__":
    unittest.main()
