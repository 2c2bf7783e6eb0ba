#!/usr/bin/env python3
"""Bad input to a build: each ends in one line that says what to do."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class BadInputTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.bin = self.root / "bin"

    def put(self, path, text, mode=0o644):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def put_program(self, name, says):
        self.put(self.bin / name, f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n", 0o755)

    def said(self, command, code):
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        for name in ("CUDACXX", "CUDA_PATH", "CUDA_HOME"):
            environment.pop(name, None)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr


class PreflightTest(BadInputTest):
    def preflight(self, folder, code):
        said = self.said([self.root / "tree/scripts/preflight.sh", folder], code)
        self.assertLessEqual(said.count("\n"), 1, said)
        return said

    def setUp(self):
        super().setUp()
        (self.root / "tree/scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/preflight.sh", self.root / "tree/scripts")

    def put_free(self, mebibytes):
        self.put_program(
            "df",
            f"Filesystem 1M-blocks Used Available Capacity Mounted\n/dev/x 9 9 {mebibytes} 9% /",
        )

    def test_all_is_well(self):
        self.assertEqual(self.preflight("build", 0), "")
        self.assertEqual(list((self.root / "tree/build").iterdir()), [])  # leaves nothing behind

    def test_a_folder_that_cannot_be_written(self):
        # Not a question of permissions, which root would not be asked for.
        self.assertIn(
            "cannot write to /proc/onepass/: copy the tree", self.preflight("/proc/onepass", 1)
        )
        self.put(self.root / "tree/build", "a file")
        self.assertIn("cannot write to build/", self.preflight("build", 1))

    def test_a_full_disk(self):
        self.put_free(1000)
        said = self.preflight("build", 1)
        self.assertIn("1000 MiB are free for build/, 20", said)
        self.assertIn("are needed: free some", said)
        self.put_free(2048)
        self.preflight("build", 0)

    def test_what_is_built_already_needs_no_room(self):
        self.put_free(300)
        self.put_program("du", "2000\tbuild")
        self.assertEqual(self.preflight("build", 0), "")
        self.put_free(255)
        self.assertIn("256 are needed", self.preflight("build", 1))

    def test_a_tree_that_was_moved(self):
        cache = self.root / "tree/build/release/CMakeCache.txt"
        self.put(cache, f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root}/tree\n")
        self.assertEqual(self.preflight("build", 0), "")
        self.put(cache, "CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
        self.assertIn(
            "build/release was configured for the sources in /elsewhere: "
            "remove it (rm -r build/release)",
            self.preflight("build", 1),
        )
        self.put(cache, "")  # an interrupted configure
        self.assertEqual(self.preflight("build", 0), "")


class ConfigureTest(BadInputTest):
    """cmake/Cuda.cmake alone, in a project of one source."""

    def configure(self, *options, code=0):
        self.put(self.root / "src/a.cu", "")
        self.put(
            self.root / "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES NONE)\n"
            'set(ONEPASS_CUDA AUTO CACHE STRING "")\n'
            f"include({ROOT}/cmake/Cuda.cmake)\n",
        )
        shutil.rmtree(self.root / "build", ignore_errors=True)
        said = self.said(
            ["cmake", "-G", "Ninja", "-S", self.root, "-B", self.root / "build", *options], code
        )
        return " ".join(said.split())

    def test_an_nvcc_that_is_too_old(self):
        self.put_program("nvcc", "Cuda compilation tools, release 11.8, V11.8.89")
        self.assertIn(
            f"{self.bin}/nvcc is 11.8, 12.8 or later is needed: "
            "set CUDACXX to one and configure again;",
            self.configure(),
        )
        self.assertIn("ONEPASS_CUDA is ON, but", self.configure("-DONEPASS_CUDA=ON", code=1))

    def test_no_nvcc(self):
        places = ["/usr/local/cuda/bin", *os.environ["PATH"].split(":")]
        nowhere = "-DCMAKE_IGNORE_PATH=" + ";".join(
            place for place in places if os.path.exists(f"{place}/nvcc")
        )
        self.assertIn("nvcc not found, the GPU parts are left out", self.configure(nowhere))
        self.assertIn(
            "put it on PATH or set CUDACXX", self.configure(nowhere, "-DONEPASS_CUDA=ON", code=1)
        )

    def test_little_memory(self):
        self.put(
            self.root / "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES NONE)\n"
            f"include({ROOT}/cmake/Memory.cmake)\n"
            "message(STATUS \"pool: '${ONEPASS_JOB_POOL}'\")\n",
        )
        for mebibytes, words in [
            ("1", "pool: ''"),
            ("900000000", "at most 1 of the library's sources"),
        ]:
            said = self.said(
                [
                    "cmake",
                    "-G",
                    "Ninja",
                    "-S",
                    self.root,
                    "-B",
                    self.root / "build",
                    f"-DONEPASS_MIB_PER_JOB={mebibytes}",
                ],
                0,
            )
            self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
