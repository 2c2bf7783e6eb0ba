"""scripts/readme.py: that README.md, docs/results.md and the picture agree with results/."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def peer_row(peer, dtype, cols, time):
    return {
        "op": "softmax",
        "rows": 4096,
        "cols": cols,
        "dtype": dtype,
        "peer": peer,
        "us": time,
        "right": True,
    }


class ReadmeTest(unittest.TestCase):
    """On a copy of this tree's pages and results: what is committed agrees, what is stale fails."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        tree = SCRIPTS.parent
        for name in [
            "README.md",
            "docs/results.md",
            "docs/pictures/softmax.svg",
            *map(str, (path.relative_to(tree) for path in tree.glob("results/*/*.json"))),
        ]:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes((tree / name).read_bytes())
        self.peers = self.root / "results/h200/python_peers.json"

    def readme(self, action, code=0):
        done = subprocess.run(
            [sys.executable, SCRIPTS / "readme.py", action, "--root", self.root],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_what_is_committed_agrees(self):
        self.assertEqual(self.readme("--check"), "")

    def test_pages_are_short(self):
        tree = SCRIPTS.parent
        for path, most in [
            (tree / "README.md", 150),
            *((path, 120) for path in (tree / "docs/facts").glob("*.md")),
        ]:
            self.assertLessEqual(len(path.read_text(encoding="utf-8").splitlines()), most, path)

    def test_edited_by_hand(self):
        for name in ["README.md", "docs/results.md", "docs/pictures/softmax.svg"]:
            path = self.root / name
            before = path.read_text(encoding="utf-8")
            path.write_text(before.replace("H200", "H300"), encoding="utf-8")
            self.assertIn(f"{name} disagrees", self.readme("--check", 1))
            self.readme("--write")
            self.assertIn("H200", path.read_text(encoding="utf-8"))
            self.readme("--check")

    def test_new_results(self):
        result = json.loads(self.peers.read_text(encoding="utf-8"))
        row = next(row for row in result["rows"] if row["peer"] == "torch")
        row["us"] *= 2
        self.peers.write_text(json.dumps(result), encoding="utf-8")
        said = self.readme("--check", 1)
        self.assertIn("docs/results.md disagrees", said)
        self.assertIn("docs/pictures/softmax.svg disagrees", said)

    def test_no_picture(self):
        (self.root / "docs/pictures/softmax.svg").unlink()
        self.readme("--check", 1)
        self.readme("--write")
        self.readme("--check")

    def test_results_that_are_refused(self):
        result = json.loads(self.peers.read_text(encoding="utf-8"))
        peers = ["onepass", "torch", "torch.compile", "triton", "copy"]
        rows = [
            peer_row(peer, dtype, cols, 10.0)
            for peer in peers
            for dtype in ("float32", "float16")
            for cols in (256, 512)
        ]
        for changed, words in [
            ([row for row in rows if row["peer"] != "copy"], "no copy in float32"),
            ([row for row in rows if row["peer"] != "triton"], "no triton in float32"),
            (
                [{**row, "right": row["peer"] != "onepass"} for row in rows],
                "off by more than rounding",
            ),
            ([{"op": "softmax", "us": 1.0}], "not of the schema"),
        ]:
            self.peers.write_text(json.dumps({**result, "rows": changed}), encoding="utf-8")
            self.assertIn(words, self.readme("--check", 1))
        self.peers.unlink()
        self.assertIn("No such file", self.readme("--check", 1))


if __name__ == "__main__":
    unittest.main()
