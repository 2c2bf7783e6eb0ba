"""What machine code an object file holds: kernels, their bytes, lines of PTX. Needs
cuobjdump and c++filt.

nvcc compresses what it embeds; cuobjdump only unpacks it. The cubins are ELF files, read here.
"""

import collections
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

Unit = collections.namedtuple("Unit", "kernels ptx")  # {arch: {mangled name: bytes}}, {arch: lines}

PACKAGE = "nvidia-cuda-cuobjdump"


class NoTool(Exception):
    """Why there is no cuobjdump, in a few words."""


def kernels_of(cubin):
    """{mangled name: bytes of machine code} of one cubin.

    Each function has a section .text.NAME; only a kernel has parameters, which lie in
    .nv.constant0.NAME."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not an ELF file of 64 bits, little endian")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_size, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    entries = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry_size) for i in range(count)]
    names_start = entries[names_at][4]
    sizes = {}
    for name_at, _, _, _, _, size in entries:
        start = names_start + name_at
        sizes[cubin[start : cubin.index(b"\0", start)].decode()] = size
    return {
        name[6:]: size
        for name, size in sizes.items()
        if name.startswith(".text.") and f".nv.constant0.{name[6:]}" in sizes
    }


def unit_of(cuobjdump, path):
    """The kernels and the PTX of one object file."""
    unit = Unit({}, {})
    with tempfile.TemporaryDirectory() as folder:
        for what in ("-xelf", "-xptx"):
            # An object without any is no error here: it then writes no file.
            subprocess.run(
                [cuobjdump, what, "all", pathlib.Path(path).resolve()],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        for file in sorted(pathlib.Path(folder).iterdir()):
            found = re.search(r"\.(sm_\w+)\.(cubin|ptx)$", file.name)
            if not found:
                continue
            architecture, kind = found.groups()
            data = file.read_bytes()
            if kind == "ptx":
                unit.ptx[architecture] = unit.ptx.get(architecture, 0) + data.count(b"\n")
            else:
                unit.kernels.setdefault(architecture, {}).update(kernels_of(data))
    return unit


def demangled(names):
    """{mangled: readable}; the mangled name where c++filt is missing."""
    names = sorted(set(names))
    if not names or not shutil.which("c++filt"):
        return {name: name for name in names}
    said = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return dict(zip(names, said.stdout.splitlines(), strict=True))


def family_of(readable):
    """void onepass::ops::attention::(anonymous namespace)::flash<64>(Args) -> attention::flash"""
    kept = []
    depth = 0
    for part in re.split(
        r"(->|operator[<>]+|[<>()])", readable.replace("(anonymous namespace)::", "")
    ):
        if part == "<":
            depth += 1
        elif part == ">":
            depth -= 1
        elif depth == 0 and part == "(":
            break
        elif depth == 0:
            kept.append(part)
    name = "".join(kept).split(" ")[-1]  # what stands before is the type that a template returns
    return re.sub(r"^onepass::(ops::)?", "", name)


def find_cuobjdump(nvcc, folder):
    """Beside nvcc, on PATH, or from the package index into a virtual environment of its
    own, `folder`."""
    beside = pathlib.Path(nvcc).with_name("cuobjdump") if nvcc else None
    if beside and beside.exists():
        return str(beside)
    found = shutil.which("cuobjdump")
    if found:
        return found
    return from_index(pathlib.Path(folder))


def from_index(folder):
    def installed():
        return next(folder.glob("lib/python*/site-packages/nvidia/*/bin/cuobjdump"), None)

    if not installed():
        # --clear: what an interrupted run has left behind does not count.
        steps = [
            [sys.executable, "-m", "venv", "--clear", folder],
            [
                folder / "bin/python",
                "-m",
                "pip",
                "--quiet",
                "--disable-pip-version-check",
                "install",
                "--retries",
                "1",
                PACKAGE,
            ],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoTool(
                    f"no cuobjdump beside nvcc or on PATH, and the package {PACKAGE} cannot be had"
                )
    tool = installed()
    if not tool:
        raise NoTool(f"no cuobjdump beside nvcc or on PATH, and none in the package {PACKAGE}")
    tool.chmod(0o755)
    return str(tool)
