"""scripts/fuzz.py: what it reads from a log of libFuzzer's, and the table that it prints."""

import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("fuzz", ROOT / "scripts/fuzz.py")
fuzz = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fuzz)

ENDED = """#2\tINITED cov: 100 ft: 101 corp: 1/1b exec/s: 0 rss: 40Mb
#4096\tpulse  cov: 250 ft: 400 corp: 31/2kb lim: 11 exec/s: 2048 rss: 60Mb
stat::number_of_executed_units: 8192
stat::average_exec_per_sec:     1024
"""


class Command(unittest.TestCase):
    def test_an_empty_dictionary_is_not_named(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "seeds").mkdir()
            (folder / "seeds/npy.dict").write_text('"fortran_order"\n')
            (folder / "seeds/api.dict").write_text("")

            def words(target: str) -> list[str]:
                line = fuzz.command(folder / "libfuzzer", target, folder, [])
                return [word for word in line if word.startswith("-dict=")]

            self.assertEqual(words("npy"), [f"-dict={folder}/seeds/npy.dict"])
            self.assertEqual(words("api"), [])


class Row(unittest.TestCase):
    def test_of_a_run_that_ended(self):
        row = fuzz.row("npy", ENDED, 0)
        self.assertEqual(row["executions"], 8192)
        self.assertEqual(row["per second"], 1024)
        self.assertEqual(row["edges"], 250)
        self.assertEqual(row["inputs kept"], 31)

    def test_of_one_that_crashed_before_its_summary(self):
        row = fuzz.row("npy", ENDED.split("stat::")[0], 1)
        self.assertEqual((row["executions"], row["per second"], row["findings"]), (4096, 2048, 1))

    def test_of_one_that_said_nothing(self):
        self.assertEqual(fuzz.row("npy", "", 0)["executions"], 0)


class Table(unittest.TestCase):
    def test_columns_are_aligned(self):
        lines = fuzz.table([fuzz.row("api", ENDED, 0), fuzz.row("workload", "", 2)]).split("\n")
        self.assertEqual(len(lines), 3)
        self.assertEqual(len({len(line) for line in lines}), 1)


class Targets(unittest.TestCase):
    def test_every_target_of_the_program_has_its_time(self):
        source = (ROOT / "fuzz/targets.cpp").read_text()
        for target in fuzz.TARGETS:
            self.assertIn(f'"{target}", fuzz_{target}', source)
        self.assertEqual(source.count(", fuzz_"), len(fuzz.TARGETS))


if __name__ == "__main__":
    unittest.main()
