#!/usr/bin/env python3
"""The report of the build and its budget: logs and cubins that are made up here, read back."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import build_budget  # noqa: E402
import build_tree  # noqa: E402
import gpu_code  # noqa: E402

# Unpacks an object that is not one: what nvcc would have put into X.o lies beside it, in
# the folder X.o.d.
CUOBJDUMP = """#!/bin/sh
case "$1" in -xelf) kind=cubin ;; -xptx) kind=ptx ;; esac
cp "$3".d/*.$kind . 2>/dev/null
"""


def elf(sections):
    """A 64-bit ELF file of these sections, {name: bytes}: header, names, contents, table."""
    sections = {"": 0, **sections, ".shstrtab": 0}
    names = "\0".join(sections).encode() + b"\0"
    table = 64 + len(names)
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack(
            "<HHIQQQIHHHHHH",
            2,
            190,
            1,
            0,
            0,
            table,
            0,
            64,
            0,
            0,
            64,
            len(sections),
            len(sections) - 1,
        )
    )
    entries = b""
    at = 0
    for name, size in sections.items():
        offset = 64 if name == ".shstrtab" else 0
        entries += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, offset, size, 0, 0, 0, 0)
        at += len(name) + 1
    return header + names + entries


def cubin(kernels, function_bytes=0):
    sections = {".strtab": 7}
    if function_bytes:  # what was not inlined is code, and no kernel
        sections[".text.helper"] = function_bytes
    for name, size in kernels.items():
        sections |= {f".nv.constant0.{name}": 900, f".text.{name}": size, f".rela.text.{name}": 24}
    return elf(sections)


def unit(name, seconds, kernels=1, size=100, lines=10, began=0.0):
    code = {"kernels": kernels, "bytes": size, "ptx_lines": lines}
    row = {"unit": name, "seconds": seconds, "object_bytes": 1, "sm_80": code}
    return row, None if seconds is None else build_tree.Entry(seconds, began)


def budget_of(units):
    return {row["unit"]: row for row in build_budget.written(units, {})}


class CodeTest(unittest.TestCase):
    def test_a_cubin_is_read(self):
        self.assertEqual(
            gpu_code.kernels_of(cubin({"_Z1aPf": 256, "_Z1bPf": 128}, 64)),
            {"_Z1aPf": 256, "_Z1bPf": 128},
        )
        self.assertEqual(gpu_code.kernels_of(elf({})), {})
        with self.assertRaises(ValueError):
            gpu_code.kernels_of(b"BC\xc0\xde not ELF")

    def test_families(self):
        for readable, family in [
            (
                "void onepass::ops::attention::(anonymous namespace)::flash<onepass::F16, "
                "onepass::ops::attention::Shape<64, 64>, (onepass::Kind)2, false>"
                "(onepass::Args, bool)",
                "attention::flash",
            ),
            ("onepass::ops::loss::sum_losses(float const*)", "loss::sum_losses"),
            ("void onepass::rows<onepass::Fold<void (*)(float)> >(onepass::Args<1>)", "rows"),
            ("void other::op<&(other::operator<(int, int))>(int)", "other::op"),
            ("_Zunknown", "_Zunknown"),
        ]:
            self.assertEqual(gpu_code.family_of(readable), family)


class LogTest(unittest.TestCase):
    def test_the_last_entry_of_an_output_counts(self):
        log = build_tree.ninja_log(
            "# ninja log v5\n"
            "10\t2010\t102010000000\ta.o\tabc\n"
            "0\t500\t900500000000\tb.o\tdef\n"
            "5\t4505\t904505000000\ta.o\tabc\n"
            "7\t99"  # interrupted
        )
        self.assertEqual(log["a.o"].seconds, 4.5)
        self.assertEqual(log["b.o"].seconds, 0.5)
        self.assertAlmostEqual(log["a.o"].began, log["b.o"].began)
        self.assertEqual(build_tree.ninja_log("# ninja log v5\n"), {})


class BudgetTest(unittest.TestCase):
    def check(self, units, budget):
        return build_budget.compared(units, budget)

    def test_limits_are_exact(self):
        budget = budget_of([unit("src/a.cu", 5.0)])
        self.assertEqual(self.check([unit("src/a.cu", 5.0)], budget), ([], []))
        for changed, words in [
            ({"kernels": 2}, "2 kernels, 1 allowed"),
            ({"size": 101}, "101 bytes, 100 allowed"),
            ({"lines": 11}, "11 ptx lines, 10 allowed"),
        ]:
            problems, notes = self.check([unit("src/a.cu", 5.0, **changed)], budget)
            self.assertEqual(problems, [f"src/a.cu: sm_80: {words}"])
            self.assertEqual(notes, [])

    def test_what_is_new_gone_or_much_smaller(self):
        budget = budget_of([unit("src/a.cu", 5.0), unit("src/b.cu", 5.0)])
        problems, notes = self.check(
            [unit("src/a.cu", 5.0, size=70), unit("src/c.cu", 5.0)], budget
        )
        self.assertEqual(problems, ["src/c.cu: has no budget"])
        self.assertEqual(
            notes, ["src/a.cu: sm_80: 70 bytes, 100 in the budget", "src/b.cu: is gone"]
        )
        # No PTX at all: an architecture of a GPU here comes without. C++ has no budget.
        self.assertEqual(
            self.check(
                [unit("src/a.cu", 5.0, lines=0), unit("src/b.cu", 5.0), unit("src/x.cpp", 5.0)],
                budget,
            ),
            ([], []),
        )

    def test_an_object_that_is_missing_is_no_pass(self):
        row, entry = unit("src/a.cu", 5.0)
        problems, _ = self.check(
            [({**row, "object_bytes": None}, entry)], budget_of([(row, entry)])
        )
        self.assertEqual(problems, ["src/a.cu: not compiled; `make build` does"])

    def test_seconds_are_judged_at_the_pace_of_the_build(self):
        usual = {
            f"src/{name}.cu": seconds
            for name, seconds in zip("abcdefg", [200, 60, 40, 20, 10, 5, 4])
        }

        def build(pace, **changed):
            seconds = {name: pace * taken for name, taken in usual.items()}
            seconds.update({f"src/{name}.cu": taken for name, taken in changed.items()})
            return [unit(name, taken) for name, taken in seconds.items()]

        def problems(units):
            return self.check(units, budget_of(build(1)))[0]

        self.assertEqual(problems(build(2.5)), [])
        self.assertEqual(problems(build(0.4)), [])
        self.assertEqual(problems(build(2.5, c=190)), [])
        self.assertEqual(
            problems(build(2.5, c=210)),
            ["src/c.cu: 210 s, 100 s expected at the pace of this build"],
        )
        self.assertEqual(
            problems(build(0.4, c=90)), ["src/c.cu: 90 s, 40 s expected at the pace of this build"]
        )
        self.assertEqual(problems(build(0.4, c=70)), [])  # a quick machine makes nothing slow
        self.assertEqual(problems(build(1, a=500, c=90)), [])  # load, as far as can be told
        self.assertEqual(problems(build(1, g=12)), [])  # three times as long, and 8 s
        # From ccache: no say in the pace, and none of their own.
        self.assertEqual(
            problems(build(1, a=0.1, b=0.1, c=90)),
            ["src/c.cu: 90 s, 40 s expected at the pace of this build"],
        )
        # Four are too few for a pace.
        self.assertEqual(problems(build(1, a=0.1, b=0.1, d=0.2, c=90)), [])
        self.assertEqual(problems(build(1, a=None, b=None, d=None, c=90)), [])
        # Compiled again in a later run of ninja, by itself.
        again = [*build(1)[1:], unit("src/a.cu", 900.0, began=5000.0)]
        self.assertEqual(problems(again), [])

    def test_seconds_that_ccache_hides_stay_those_of_the_old_budget(self):
        old = budget_of([unit("src/a.cu", 5.04), unit("src/b.cu", 5.0)])
        rows = build_budget.written(
            [
                unit("src/b.cu", 0.1),
                unit("src/a.cu", 7.0),
                unit("src/c.cu", None),
                unit("src/x.cpp", 3.0),
            ],
            old,
        )
        self.assertEqual(
            [(row["unit"], row["seconds"]) for row in rows],
            [("src/a.cu", 7.0), ("src/b.cu", 5.0), ("src/c.cu", None)],
        )

    def test_seconds_of_quick_code_are_not_those_of_what_ships(self):
        old = budget_of([unit("src/a.cu", 50.0)])
        row, entry = unit("src/a.cu", 9.0)
        quick = {
            **{field: row[field] for field in ("unit", "seconds", "object_bytes")},
            "sm_80 quick": row["sm_80"],
        }
        kept = build_budget.written([(quick, entry)], old)[0]
        self.assertEqual(kept["seconds"], 50.0)
        self.assertEqual((kept["sm_80"], kept["sm_80 quick"]), (row["sm_80"], row["sm_80"]))

    def test_architectures_of_another_build_stay(self):
        old = budget_of([unit("src/a.cu", 5.0)])
        row, entry = unit("src/a.cu", 5.0, size=70, lines=0)
        hopper = {
            **{field: row[field] for field in ("unit", "seconds", "object_bytes")},
            "sm_90a": row["sm_80"],
        }
        both = {row["unit"]: row for row in build_budget.written([(hopper, entry)], old)}[
            "src/a.cu"
        ]
        self.assertEqual(both["sm_80"]["bytes"], 100)
        self.assertEqual(both["sm_90a"]["bytes"], 70)
        # Built without PTX, which the budget has.
        self.assertEqual(build_budget.written([(row, entry)], old)[0]["sm_80"]["ptx_lines"], 10)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.tree = self.root / "build"
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.put(self.bin / "cuobjdump", CUOBJDUMP).chmod(0o755)
        self.budget = self.root / "budget.json"
        self.put(
            self.tree / "CMakeCache.txt",
            f"CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_HOME_DIRECTORY:INTERNAL={self.root}\n",
        )
        self.put_nvcc("13.0.88")
        self.put_objects({"sm_80": {"_ZN7onepass3ops4loss3sumEPf": 256}}, seconds=4)

    def put(self, path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def put_nvcc(self, version):
        self.put(
            self.tree / "CMakeFiles/3.25/CMakeCUDACompiler.cmake",
            'set(CMAKE_CUDA_COMPILER "/none/nvcc")\n'
            f'set(CMAKE_CUDA_COMPILER_VERSION "{version}")\n',
        )

    def put_objects(self, code, seconds):
        outputs = {"src/a.cu": "src/a.cu.o", "src/b.cpp": "src/b.cpp.o"}
        self.put(
            self.tree / "compile_commands.json",
            json.dumps(
                [
                    {"file": str(self.root / source), "command": f"c++ -o {output} -c {source}"}
                    for source, output in outputs.items()
                ]
            ),
        )
        self.put(
            self.tree / ".ninja_log",
            "# ninja log v5\n"
            + "".join(
                f"0\t{seconds * 1000}\t9000000000\t{output}\tabc\n" for output in outputs.values()
            ),
        )
        for output in outputs.values():
            self.put(self.tree / output, b"object")
        for architecture, kernels in code.items():
            inside = self.tree / "src/a.cu.o.d"
            self.put(inside / f"a.{architecture}.cubin", cubin(kernels))
            self.put(inside / f"a.{architecture}.ptx", ".version 9.0\n" * 3)

    def report(self, *arguments, code=0, path=None):
        done = subprocess.run(
            [
                sys.executable,
                SCRIPTS / "build_report.py",
                "--tree",
                self.tree,
                "--budget",
                self.budget,
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": path or f"{self.bin}:{os.environ['PATH']}"},
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_report(self):
        kept = self.root / "kept/here.json"
        said = " ".join(self.report("--json", kept, "--kernels").split())
        for words in [
            "src/a.cu 4.0 6 1 256 3",
            "src/b.cpp 4.0 6 – – –",
            "all 8.0 12 1 256 3",
            "loss::sum 4.0 1 256",
            "256 sm_80 src/a.cu onepass::ops::loss::sum(float*)",
            "nvcc 13.0.88",
        ]:
            self.assertIn(words, said)
        result = json.loads(kept.read_text(encoding="utf-8"))
        self.assertEqual(result["environment"]["architectures"], ["sm_80"])
        self.assertEqual(result["totals"]["sm_80"], {"kernels": 1, "bytes": 256, "ptx_lines": 3})
        self.assertEqual(
            result["families"],
            [
                {
                    "family": "loss::sum",
                    "seconds": 4.0,
                    "units": ["src/a.cu"],
                    "sm_80": {"kernels": 1, "bytes": 256},
                }
            ],
        )
        self.assertEqual(build_tree.name_of(self.tree / "a.cu", self.tree, self.root), "a.cu")

    def test_check(self):
        self.assertIn("SKIPPED: there is no", self.report("--check"))
        self.report("--write-budget")
        self.assertIn("1 CUDA units within their budget (sm_80)", self.report("--check"))
        self.put_objects({"sm_80": {"_Z1aPf": 257}}, seconds=4)
        said = self.report("--check", code=1)
        self.assertIn("src/a.cu: sm_80: 257 bytes, 256 allowed", said)
        self.assertIn("over budget", said)
        self.put_objects({"sm_80": {"_Z1aPf": 100}}, seconds=4)
        self.assertIn("note: rewrite the budget", self.report("--check"))

    def test_code_that_is_compiled_quickly_has_a_budget_of_its_own(self):
        self.report("--write-budget")
        with open(self.tree / "CMakeCache.txt", "a", encoding="utf-8") as cache:
            cache.write("ONEPASS_CUDA_QUICK:BOOL=ON\n")
        self.assertIn(
            "SKIPPED: the budget is of sm_80, this build of sm_80 quick", self.report("--check")
        )
        self.report("--write-budget")
        self.assertIn("within their budget (sm_80 quick)", self.report("--check"))
        self.put(
            self.tree / "CMakeCache.txt",
            f"CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_HOME_DIRECTORY:INTERNAL={self.root}\n",
        )
        self.assertIn("within their budget (sm_80)", self.report("--check"))

    def test_what_is_skipped(self):
        self.report("--write-budget")
        self.put_nvcc("12.8.61")
        self.assertIn(
            "SKIPPED: the budget was written with nvcc 13.0.88, this build is by 12.8.61",
            self.report("--check"),
        )
        self.put_nvcc("13.0.88")
        self.put_objects({}, seconds=4)
        (self.tree / "src/a.cu.o.d/a.sm_80.cubin").rename(
            self.tree / "src/a.cu.o.d/a.sm_100a.cubin"
        )
        (self.tree / "src/a.cu.o.d/a.sm_80.ptx").unlink()
        self.assertIn(
            "SKIPPED: the budget is of sm_80, this build of sm_100a", self.report("--check")
        )
        self.put(self.tree / "compile_commands.json", "[]")
        self.assertIn("has no CUDA parts", self.report("--check"))

    def test_nothing_built(self):
        (self.tree / "src/a.cu.o").unlink()
        (self.tree / "src/b.cpp.o").unlink()
        self.assertIn("nothing is compiled", self.report(code=1))
        (self.tree / "compile_commands.json").unlink()
        self.assertIn("configure and build first", self.report(code=1))


if __name__ == "__main__":
    unittest.main()
