"""The tables of docs/peers-suites.md: what became of every case."""

import re
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from suites.case import OUTCOMES, Case

PAGE = Path(__file__).parents[3] / "docs/peers-suites.md"


def check(name: str, package: str, cases: Iterable[Case]) -> None:
    """Whether the page has what these cases come to. Of other versions of the package it
    does not have to."""
    page, expected = PAGE.read_text(encoding="utf-8"), tables(package, cases)
    found = _block(name).search(page)
    assert found, f"{PAGE} has no block of {name}"
    if found[2] != expected and not found[2].startswith(_version(package)):
        pytest.skip(f"wants the {package} of docs/peers-suites.md")
    assert found[2] == expected, "docs/peers-suites.md is behind: make suites"


def write(name: str, package: str, cases: Iterable[Case]) -> None:
    page, new = PAGE.read_text(encoding="utf-8"), tables(package, cases)
    PAGE.write_text(
        _block(name).sub(lambda found: found[1] + new + found[3], page), encoding="utf-8"
    )


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- suites:{name} -->\n)(.*?)(<!-- /suites -->)", re.DOTALL)


def _version(package: str) -> str:
    return f"{package} {'.'.join(metadata.version(package).split('.')[:2])}:\n"


def tables(package: str, cases: Iterable[Case]) -> str:
    """How many there are of each op, and why some are not as the suite has them."""
    cases = list(cases)
    counts = Counter((case.op, case.part, case.outcome) for case in cases)
    parts = dict.fromkeys((case.op, case.part) for case in cases)
    rows = [
        [", ".join(filter(None, part)), *(counts[part + (outcome,)] for outcome in OUTCOMES)]
        for part in parts
    ]
    rows.append(
        ["all", *(sum(row[column] for row in rows) for column in range(1, len(OUTCOMES) + 1))]
    )
    lines = [_version(package), *_markdown(["", *OUTCOMES], rows)]
    for outcome in OUTCOMES[1:]:
        reasons: dict[str, Counter[str]] = {}
        for case in cases:
            for reason in case.reasons if case.outcome == outcome else ():
                reasons.setdefault(reason, Counter())[case.op] += 1
        why = [[reason, ", ".join(of), of.total()] for reason, of in reasons.items()]
        lines += ["", *_markdown([outcome, "of", "cases"], why, numbers=1)] if why else []
    return "\n".join(lines) + "\n"


def _markdown(
    columns: list[str], rows: list[list[object]], numbers: int = len(OUTCOMES)
) -> list[str]:
    rule = "|" + "---|" * (len(columns) - numbers) + "---:|" * numbers
    return [_row(columns), rule, *map(_row, rows)]


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
