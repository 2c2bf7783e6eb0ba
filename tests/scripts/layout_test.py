"""scripts/layout.py: what it finds in a planted tree, and what it lets pass."""

import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("layout", ROOT / "scripts/layout.py")
layout = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(layout)


def problems(files):
    """What is said of a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        return list(layout.problems(root))


class Columns(unittest.TestCase):
    def test_a_long_comment(self):
        for path in ("src/a.cpp", "src/a.cuh", "cmake/a.cmake", "scripts/a.sh", "CMakeLists.txt"):
            comment = ("//" if path.startswith("src") else "##") + " a" * 49
            self.assertEqual(problems({path: f"\n{comment}\n"}), [])
            self.assertEqual(
                problems({path: f"\n{comment}s\n"}), [f"{path}:2: 101 columns, 100 at most"]
            )

    def test_columns_are_not_bytes(self):
        self.assertEqual(problems({"src/a.hpp": "//" + "−" * 98 + "\n"}), [])
        self.assertEqual(len(problems({"src/a.hpp": "//" + "−" * 99 + "\n"})), 1)

    def test_a_long_string(self):
        self.assertEqual(
            len(problems({"cli/help.cpp": 'auto help = R"(' + "help " * 20 + ')";'})), 1
        )

    def test_a_table(self):
        self.assertEqual(problems({"src/a.cpp": "// | " + "cell " * 20 + "| cell |\n"}), [])
        self.assertEqual(problems({"tests/a_test.cpp": '"name","unit"' * 10 + "\n"}), [])
        self.assertEqual(len(problems({"src/a.cpp": "bool a = b || c;" + " " * 90 + ";\n"})), 1)

    def test_what_is_no_source(self):
        self.assertEqual(problems({"docs/a.md": "word " * 30, "build/a.cpp": "word " * 30}), [])


class Kernels(unittest.TestCase):
    def test_the_order_of_a_signature(self):
        self.assertEqual(problems({"src/a.cu": "__global__ void __launch_bounds__(32) f() {}"}), [])
        self.assertEqual(
            problems({"src/a.cu": "__global__ __launch_bounds__(32) void f() {}"}),
            ["src/a.cu:1: put void before __launch_bounds__"],
        )


class Lines(unittest.TestCase):
    def test_a_long_file(self):
        long, fits = "x\n" * 401, "x\n" * 400
        self.assertEqual(problems({"src/a.cpp": fits, "scripts/a.py": long}), [])
        for path in ("src/a.cpp", "include/a.hpp", "cli/a.cpp", "python/a.py", "tests/a_test.cpp"):
            self.assertEqual(
                problems({path: long}), [f"{path}: 401 lines, 400 at most: split it along a seam"]
            )


if __name__ == "__main__":
    unittest.main()
