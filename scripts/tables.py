"""Tables of measured results in Markdown pages: what readme.py and walk.py share.

A table stands between two markers, and the first names it:

    <!-- results:NAME -->
    <!-- /results -->
"""

import argparse
import difflib
import json
import os
import pathlib
import re
import sys

BLOCK = re.compile(r"(<!-- results:([\w.-]+) -->\n)(.*?)(<!-- /results -->)", re.DOTALL)
OPENING = re.compile(r"<!-- results:")
NONE = "–"


class Disagreement(Exception):
    """Results or a page that no table can be made from."""


def significant(value):
    """Three digits that mean something, whatever the magnitude."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def shape_text(shape):
    return shape if isinstance(shape, str) else "×".join(str(extent) for extent in shape)


def markdown(columns, text_columns, rows):
    """Lines of a table; the first columns are text, the others numbers."""
    numbers = len(columns) - text_columns
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * text_columns + "---:|" * numbers]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def load(path, schema=1):
    """A result file. Those of `python -m onepass.bench` have no schema: None."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Disagreement(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Disagreement(f"{path}: not JSON: {error}") from error
    if result.get("schema") != schema:
        raise Disagreement(f"{path}: schema is {result.get('schema')!r}, known is {schema}")
    return result


def machine_line(path, result):
    """Where, with what and when: the line above a table."""
    environment = result["environment"]
    on_gpu = environment.get("sm")
    name = environment.get("device" if on_gpu else "cpu") or path.parent.name
    about = [
        str(environment[field]) for field in ("isa", "driver", "cuda") if environment.get(field)
    ]
    copy = result.get("limits", {}).get("copy_gbps")
    if copy:
        about.append(f"copy {copy:.1f} GB/s")
    if environment.get("commit"):
        changes = " with changes" if environment.get("dirty") else ""
        about.append(f"commit {environment['commit'][:12]}{changes}")
    if environment.get("date"):
        about.append(environment["date"][:10])
    return f"**{name}** ({', '.join(about)})" if about else f"**{name}**"


def rewritten(page, text, block):
    """The page's text with every table replaced by block(name); None leaves one as it is."""
    if not OPENING.search(text):
        raise Disagreement(f"{page} has no <!-- results:NAME --> block")

    def replace(found):
        new = block(found[2])
        return found[0] if new is None else found[1] + new + found[4]

    after, count = BLOCK.subn(replace, text)
    if count != len(OPENING.findall(text)):
        raise Disagreement(
            f"{page}: a <!-- results:NAME --> block is not closed by <!-- /results -->"
        )
    return after


def guarded(path, make):
    """make(), with what a file that is not of the schema does to it as a Disagreement."""
    try:
        return make()
    except (KeyError, TypeError, ZeroDivisionError, ValueError, IndexError) as error:
        raise Disagreement(f"{path}: not of the schema: {error!r}") from error


def run(tool, pages, about, block, optional=False, files=None):
    """The command line: --write or --check the pages. block(results folder, name) makes a table.
    files are written whole: by path, the function that makes the text from the results folder."""
    files = files or {}
    parser = argparse.ArgumentParser(prog=f"{tool}.py", description=about)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--write",
        action="store_true",
        help=f"rewrite the tables in {', '.join(pages)}"
        + (f", and {', '.join(files)}" if files else ""),
    )
    action.add_argument(
        "--check", action="store_true", help="exit 1 when one of them disagrees with results/"
    )
    parser.add_argument(
        "--root",
        type=pathlib.Path,
        help="the tree; default: this script's",
        default=pathlib.Path(__file__).resolve().parent.parent,
    )
    arguments = parser.parse_args()
    return max(
        [
            *(run_page(tool, page, arguments, block, optional) for page in pages),
            *(run_file(tool, name, arguments, make) for name, make in files.items()),
        ]
    )


def run_page(tool, page, arguments, block, optional):
    """Rewrites or checks the tables of one page."""
    path = arguments.root / page
    if optional and not path.exists():
        print(f"{tool}: there is no {page} yet")
        return 0
    try:
        before = path.read_bytes().decode("utf-8")
        after = rewritten(page, before, lambda name: block(arguments.root / "results", name))
    except (OSError, UnicodeDecodeError, Disagreement) as error:
        print(f"{tool}: {error}", file=sys.stderr)
        return 1
    return settle(tool, page, before, after, arguments)


def run_file(tool, name, arguments, make):
    """Writes or checks a file that is made as a whole."""
    path = arguments.root / name
    try:
        before = path.read_bytes().decode("utf-8") if path.exists() else ""
        after = make(arguments.root / "results")
    except (OSError, UnicodeDecodeError, Disagreement) as error:
        print(f"{tool}: {error}", file=sys.stderr)
        return 1
    return settle(tool, name, before, after, arguments)


def settle(tool, page, before, after, arguments):
    """Writes what differs, or says so."""
    path = arguments.root / page
    if before == after:
        return 0
    if arguments.check:
        sys.stdout.writelines(
            difflib.unified_diff(
                before.splitlines(keepends=True),
                after.splitlines(keepends=True),
                page,
                f"{page} from results/",
            )
        )
        print(f"{tool}: {page} disagrees with results/; `make {tool}` writes it", file=sys.stderr)
        return 1
    new = path.with_suffix(f"{path.suffix}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    new.write_bytes(after.encode("utf-8"))
    os.replace(new, path)
    print(f"{tool}: {page} rewritten")
    return 0
