"""A variant's name is its function's and its file's: `gpu_guess` of sample runs gpu_sample_guess of
gpu/sample_guess.cu. A cluster, a grid or a split may be another launch of the block's or row's."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENTRY = re.compile(
    r'"(?P<name>(?:cpu|gpu)_\w+)", Role::.*?on_(?:cpu|gpu)<\w+::(?P<runs>\w+)>', re.S
)
OPS = ("backward", "sample", "gate")  # that share a folder with another
SHARED = {"cpu_split": "cpu_row", "gpu_cluster": "gpu_block", "gpu_grid": "gpu_block"}


def name_of(path: pathlib.Path) -> str:
    """backward_simt of gpu/backward_simt.cu, gpu/backward/simt.cu, gpu/backward/simt/simt.cu"""
    if path.parent.name == path.stem and path.parent.parent.name in OPS:
        return f"{path.parent.parent.name}_{path.stem}"
    return f"{path.parent.name}_{path.stem}" if path.parent.name in OPS else path.stem


def functions_of(variant: str) -> set[str]:
    names = {variant, SHARED.get(variant, variant)}
    return names | {f"{name[:4]}{op}_{name[4:]}" for name in names for op in OPS}


def entries() -> list[tuple[pathlib.Path, str, str]]:
    return [
        (path.parent, entry["name"], entry["runs"])
        for path in sorted(ROOT.glob("src/ops/*/variants.def"))
        for entry in ENTRY.finditer(path.read_text())
    ]


class Names(unittest.TestCase):
    def test_every_entry_is_seen(self):
        lists = sorted(ROOT.glob("src/ops/*/variants.def"))
        roles = sum(path.read_text().count("Role::") for path in lists)
        self.assertGreater(roles, 40)
        self.assertEqual(len(entries()), roles)

    def test_the_function_has_the_name_of_its_variant(self):
        for folder, name, runs in entries():
            self.assertIn(runs, functions_of(name), f"{folder.name}: variant {name} runs {runs}")

    def test_the_file_has_the_name_of_its_function(self):
        for folder, name, runs in entries():
            device, stem = runs[:3], runs[4:]
            files = [
                path
                for end in ("cpp", "cu")
                for path in folder.glob(f"{device}/**/*.{end}")
                if name_of(path) == stem
            ]
            place = f"{folder.relative_to(ROOT)}/{device}/**/{stem}.cpp or .cu"
            self.assertEqual(len(files), 1, f"{runs} of variant {name} has no file {place}")
            self.assertIn(f"Status {runs}(", files[0].read_text())


if __name__ == "__main__":
    unittest.main()
