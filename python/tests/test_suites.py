"""What the suites are run with: when a case fails, and when a table is behind."""

import pytest
from suites import table
from suites.case import Case, Refusal, run_all

REFUSAL = Refusal("weights", TypeError, "weight")


def refuse(message="unexpected argument: weight"):
    raise TypeError(message)


def compare(result):
    assert result == 1


def case(straight, **options):
    return Case("op", "name", straight, compare, **options)


def test_what_is_refused_has_to_be():
    case(refuse, refusal=REFUSAL).run()
    with pytest.raises(pytest.fail.Exception, match="weights: supported now"):
        case(lambda: 1, refusal=REFUSAL).run()
    with pytest.raises(AssertionError, match="does not say 'weight'"):
        case(lambda: refuse("no"), refusal=REFUSAL).run()
    with pytest.raises(ValueError, match="not the error"):
        case(lambda: int("not the error"), refusal=REFUSAL).run()


def test_what_is_adapted_is_compared():
    case(refuse, refusal=REFUSAL, adapted=("why",), instead=lambda: 1).run()
    with pytest.raises(AssertionError):
        case(refuse, refusal=REFUSAL, adapted=("why",), instead=lambda: 2).run()
    with pytest.raises(AssertionError):
        case(lambda: 2, adapted=("why",)).run()
    with pytest.raises(AssertionError):
        case(refuse, refusal=REFUSAL, instead=lambda: 2).run()


def test_all_run_and_all_failures_are_told():
    with pytest.raises(AssertionError, match="(?s)op, name: TypeError.*op, name: AssertionError"):
        run_all([case(refuse), case(lambda: 2), case(lambda: 1)])


@pytest.fixture
def page(tmp_path, monkeypatch):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- suites:some -->\n<!-- /suites -->\nafter\n")
    monkeypatch.setattr(table, "PAGE", path)
    return path


def test_a_table(page):
    cases = [
        case(lambda: 1),
        case(refuse, refusal=REFUSAL),
        case(lambda: 1, adapted=("one", "other"), part="gradient"),
    ]
    table.write("some", "pytest", cases)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    for row in (
        "| op | 1 | 0 | 1 |",
        "| op, gradient | 0 | 1 | 0 |",
        "| all | 1 | 1 | 1 |",
        "| one | op | 1 |",
        "| other | op | 1 |",
        "| weights | op | 1 |",
    ):
        assert f"\n{row}\n" in text
    table.check("some", "pytest", cases)
    with pytest.raises(AssertionError, match="make suites"):
        table.check("some", "pytest", cases[1:])
    with pytest.raises(pytest.skip.Exception, match="wants the numpy of"):
        table.check("some", "numpy", cases)
