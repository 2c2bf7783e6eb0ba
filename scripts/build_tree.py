"""What a build tree tells of itself: what was compiled, in how long, by what, and
what came of it."""

import collections
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import gpu_code

FIELDS = ("kernels", "bytes", "ptx_lines")

# One line of .ninja_log. `began` is when the run of ninja began that this line is of, as far as it
# can be told: ninja writes times since then, and one time of day.
Entry = collections.namedtuple("Entry", "seconds began")


class NotBuilt(Exception):
    """What is missing in the tree, and what to do."""


def ninja_log(text):
    """{output: Entry}, the last of each. A line: start ms, end ms, time of day in ns,
    output, hash."""
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    log = {}
    for fields in lines:
        if len(fields) != 5:  # of a build that was interrupted
            continue
        start, end, written = (int(field) for field in fields[:3])
        log[fields[3]] = Entry((end - start) / 1000, written / 1e9 - end / 1000)
    return log


def cmake_value(tree, pattern, name):
    """What a set(NAME "…") or a NAME:TYPE=… of CMake's own files says; '' where nothing does."""
    value = re.compile(rf'^(?:set\({name} "(.*)"\)|{name}:\w+=(.*))$', re.MULTILINE)
    for path in sorted(tree.glob(pattern)):
        found = value.search(path.read_text(encoding="utf-8"))
        if found:
            return found[1] or found[2] or ""
    return ""


def git(root, *arguments):
    done = subprocess.run(
        ["git", "--no-optional-locks", "-C", root, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode else done.stdout.strip()


def root_of(tree):
    return pathlib.Path(cmake_value(tree, "CMakeCache.txt", "CMAKE_HOME_DIRECTORY") or tree)


def environment_of(tree):
    root = root_of(tree)
    cxx = "CMakeFiles/*/CMakeCXXCompiler.cmake"
    return {
        "build_type": cmake_value(tree, "CMakeCache.txt", "CMAKE_BUILD_TYPE"),
        "compiler": " ".join(
            cmake_value(tree, cxx, f"CMAKE_CXX_COMPILER_{part}") for part in ("ID", "VERSION")
        ),
        "nvcc": cmake_value(
            tree, "CMakeFiles/*/CMakeCUDACompiler.cmake", "CMAKE_CUDA_COMPILER_VERSION"
        ),
        "architectures": [],
        "cores": len(os.sched_getaffinity(0)),
        "commit": git(root, "rev-parse", "HEAD"),
        "dirty": bool(
            git(
                root,
                "status",
                "--porcelain",
                "--",
                ".",
                ":(exclude)results",
                ":(exclude)docs",
                ":(exclude)*.md",
            )
        ),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def has_cuda(tree):
    """Whether CUDA sources belong to this tree: a compiler that was found once may be
    switched off."""
    return any(source.suffix == ".cu" for source, _ in commands(tree))


def is_quick(tree):
    """Whether GPU code was compiled quickly, not for speed: other code, with a
    budget of its own."""
    return cmake_value(tree, "CMakeCache.txt", "ONEPASS_CUDA_QUICK") == "ON"


def commands(tree):
    """[(source, object)] of all that this tree compiles; objects of files that are gone
    do not count."""
    path = tree / "compile_commands.json"
    if not path.exists():
        raise NotBuilt(f"{path} does not exist: configure and build first, with `make build`")
    pairs = []
    for command in json.loads(path.read_text(encoding="utf-8")):
        output = re.search(r" -o (\S+\.o) ", command["command"] + " ")
        if output:
            pairs.append((pathlib.Path(command["file"]), output[1]))
    return pairs


def name_of(source, tree, root):
    """Of a source that the build has written its path below the tree, so that all trees
    agree; else below the root, or below that of the file system."""
    for folder in (tree, root):
        if source.is_relative_to(folder):
            return source.relative_to(folder).as_posix()
    return source.as_posix()


def units_of(tree, cuobjdump):
    """One row a translation unit, and the names and bytes of all kernels: (units, [(unit, arch,
    name, bytes)])."""
    root = root_of(tree)
    written = pathlib.Path(cmake_value(tree, "CMakeCache.txt", "CMAKE_CACHEFILE_DIR") or tree)
    log_path = tree / ".ninja_log"
    log = ninja_log(log_path.read_text(encoding="utf-8")) if log_path.exists() else {}
    quick = " quick" if is_quick(tree) else ""
    units, kernels = [], []
    for source, output in commands(tree):
        entry = log.get(output)
        path = tree / output
        unit = {
            "unit": name_of(source, written, root),
            "seconds": entry and entry.seconds,
            "object_bytes": path.stat().st_size if path.exists() else None,
        }
        if source.suffix == ".cu" and cuobjdump and path.exists():
            code = gpu_code.unit_of(cuobjdump, path)
            for architecture in sorted({*code.kernels, *code.ptx}):
                sizes = code.kernels.get(architecture, {})
                field = architecture + quick
                unit[field] = {
                    "kernels": len(sizes),
                    "bytes": sum(sizes.values()),
                    "ptx_lines": code.ptx.get(architecture, 0),
                }
                kernels += [(unit["unit"], field, name, size) for name, size in sizes.items()]
        units.append((unit, entry))
    return units, kernels


def architectures_of(row):
    return sorted(field for field in row if field.startswith("sm_"))


def families_of(units, kernels):
    """One row per family: its kernels and bytes, and its share, by bytes, of what its units
    took to compile."""
    readable = gpu_code.demangled([name for _, _, name, _ in kernels])
    bytes_of_unit = collections.Counter()
    for unit, _, _, size in kernels:
        bytes_of_unit[unit] += size
    seconds_of_unit = {unit["unit"]: unit["seconds"] or 0 for unit in units}
    families = {}
    for unit, architecture, name, size in kernels:
        family = gpu_code.family_of(readable[name])
        row = families.setdefault(family, {"family": family, "seconds": 0.0, "units": []})
        if unit not in row["units"]:
            row["units"].append(unit)
        row["seconds"] += seconds_of_unit[unit] * size / bytes_of_unit[unit]
        code = row.setdefault(architecture, {"kernels": 0, "bytes": 0})
        code["kernels"] += 1
        code["bytes"] += size
    return sorted(families.values(), key=machine_code, reverse=True)


def machine_code(row):
    return sum(row[architecture]["bytes"] for architecture in architectures_of(row))


def totals_of(units):
    """Sums over all units, one for each architecture, too."""
    total = {
        "seconds": sum(unit["seconds"] or 0 for unit in units),
        "object_bytes": sum(unit["object_bytes"] or 0 for unit in units),
    }
    for unit in units:
        for architecture in architectures_of(unit):
            sums = total.setdefault(architecture, dict.fromkeys(FIELDS, 0))
            for field in FIELDS:
                sums[field] += unit[architecture][field]
    return total


def artifacts_of(tree):
    """Bytes of the library, and of the program without its symbols."""
    sizes = {}
    library = next(
        (path for path in (tree / "src/libonepass.a", tree / "src/libonepass.so") if path.exists()),
        None,
    )
    if library:
        sizes[library.name] = library.stat().st_size
    program = tree / "cli/onepass"
    if program.exists() and shutil.which("strip"):
        with tempfile.TemporaryDirectory() as folder:
            stripped = pathlib.Path(folder) / "onepass"
            subprocess.run(["strip", "-o", stripped, program], check=True)
            sizes["onepass, stripped"] = stripped.stat().st_size
    return sizes
