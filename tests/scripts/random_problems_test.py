"""scripts/random_problems.py: what its lines hold."""

import importlib.util
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "random_problems", ROOT / "scripts/random_problems.py"
)
random_problems = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(random_problems)


class Problems(unittest.TestCase):
    def setUp(self):
        self.lines = random_problems.problems(500, 1)

    def test_a_seed_gives_its_lines_again(self):
        self.assertEqual(self.lines, random_problems.problems(500, 1))
        self.assertEqual(self.lines[:7], random_problems.problems(7, 1))
        self.assertNotEqual(self.lines, random_problems.problems(500, 2))

    def test_every_option_is_drawn_often(self):
        text = "\n".join(self.lines)
        for word in [
            "additive",
            "boolean",
            "lengths",
            "causal",
            "broadcast",
            "window=",
            "alibi",
            "sinks",
            "offsets",
            "bshd",
            "d_lse",
            "d_sinks",
            "d_additive",
            "accumulate",
            "scale=",
            "softcap=",
            "pad=",
            "offset=",
            "out_offset=",
            "keys=",
            "kv_heads=",
        ]:
            count = len(re.findall(rf"[ =+]{word}", text))
            self.assertGreater(count, 20, word)

    def test_references_are_quick(self):
        for line in self.lines:
            batch, heads, queries, dim = map(int, line.split()[1].split("x"))
            keys = re.search(r" keys=(\d+)", line)
            pairs = batch * heads * queries * (int(keys[1]) if keys else queries)
            self.assertLessEqual(pairs * dim, 6e6, line)


if __name__ == "__main__":
    unittest.main()
