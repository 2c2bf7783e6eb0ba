"""scripts/floors.py: that it sees every arrow that must not be."""

import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("floors", ROOT / "scripts/floors.py")
floors = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(floors)


def mistakes(files):
    """What is said of a tree of {path: what it includes}."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        (root / "include/onepass").mkdir(parents=True)
        (root / "src").mkdir()
        for path, includes in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("".join(f'#include "{name}"\n' for name in includes))
        return floors.look(root)[1]


class Arrows(unittest.TestCase):
    def only(self, files, words):
        said = mistakes(files)
        self.assertEqual(len(said), 1, said)
        self.assertIn(words, said[0])

    def test_down_and_beside_is_fine(self):
        self.assertEqual(
            mistakes(
                {
                    "include/onepass/plan.hpp": [],
                    "src/core/a.hpp": ["onepass/plan.hpp"],
                    "src/core/cuda/b.cuh": ["core/a.hpp"],
                    "src/rows/gpu/c.cuh": ["core/cuda/b.cuh", "rows/d.hpp"],
                    "src/rows/d.hpp": [],
                    "src/ops/softmax/gpu/e.cu": ["rows/gpu/c.cuh"],
                    "src/dispatch/f.cpp": ["ops/softmax/gpu/g.hpp"],
                    "src/ops/softmax/gpu/g.hpp": [],
                }
            ),
            [],
        )

    def test_up(self):
        for source, target in (
            ("src/core/a.hpp", "merge/b.cuh"),
            ("src/rows/gpu/a.cuh", "ops/loss/b.hpp"),
            ("src/ops/loss/gpu/a.cu", "dispatch/b.hpp"),
            ("src/runtime/a.cpp", "api/b.hpp"),
            ("include/onepass/a.hpp", "core/b.hpp"),
        ):
            self.only({source: [target], f"src/{target}": []}, "lies above it")

    def test_up_in_the_program(self):
        for source, target in (
            ("cli/files/a.cpp", "cli/problem/b.hpp"),
            ("cli/problem/a.hpp", "cli/ops/b.hpp"),
            ("cli/ops/a.cpp", "cli/commands/b.hpp"),
            ("src/api/a.cpp", "cli/files/b.hpp"),
        ):
            self.only({source: [target], target: []}, "lies above it")
        self.assertEqual(
            mistakes(
                {
                    "cli/main.cpp": ["cli/commands/a.hpp", "onepass_build.hpp"],
                    "cli/commands/a.hpp": ["cli/ops/b.hpp"],
                    "cli/ops/b.hpp": ["core/c.hpp"],
                    "src/core/c.hpp": [],
                }
            ),
            [],
        )

    def test_sideways(self):
        self.only(
            {
                "src/ops/select/cpu/a.cpp": ["ops/softmax/cpu/b.hpp"],
                "src/ops/softmax/cpu/b.hpp": [],
            },
            "its neighbour ops/softmax",
        )

    def test_between_wings(self):
        for source, target in (("walk", "gpu"), ("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "walk")):
            self.only(
                {
                    f"src/ops/softmax/{source}/a.cuh": [f"ops/softmax/{target}/b.cuh"],
                    f"src/ops/softmax/{target}/b.cuh": [],
                },
                f"{source} includes {target}",
            )

    def test_a_walk_on_what_ships(self):
        self.only(
            {"src/ops/softmax/walk/a.cu": ["rows/gpu/b.cuh"], "src/rows/gpu/b.cuh": []},
            "walk includes rows/gpu, which is what ships",
        )

    def test_a_first_step_that_stands_too_high(self):
        step = "src/ops/softmax/walk/00_naive.cu"
        below = {
            "src/core/a.hpp": [f"core/{n}.hpp" for n in range(400)],
            **{f"src/core/{n}.hpp": [f"core/{n + 1}.hpp"] for n in range(400)},
            "src/core/400.hpp": [],
        }
        self.only(
            {step: ["core/a.hpp"], **below}, f"{step}: stands on 800 lines of headers, 600 at most"
        )

    def test_what_is_not_there(self):
        self.only({"src/core/a.cu": ["core/b.cuh"]}, "does not exist")

    def test_no_floor(self):
        self.only({"src/attic/a.hpp": ["core/b.hpp"], "src/core/b.hpp": []}, "attic is no floor")

    def test_a_circle_of_folders(self):
        self.only(
            {
                "src/core/a.hpp": ["core/simd/b.hpp"],
                "src/core/simd/b.hpp": ["core/c.hpp"],
                "src/core/c.hpp": [],
            },
            "a circle: src/core -> src/core/simd -> src/core",
        )


if __name__ == "__main__":
    unittest.main()
