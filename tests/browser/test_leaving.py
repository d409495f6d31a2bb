"""Two visitors share one computation; it stops when the last of them has left."""

import time

import pytest

from tests.browser.conftest import serve
from tests.conftest import ROOT


@pytest.fixture
def marks(tmp_path, monkeypatch):
    """Return a function that counts the steps that have been computed."""
    path = tmp_path / "marks"
    path.touch()
    monkeypatch.setenv("SLOW_PAGE_MARKS", str(path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return lambda: path.stat().st_size


def steps_in(marks, seconds: float) -> int:
    """Return how many steps are computed in some seconds."""
    before = marks()
    time.sleep(seconds)
    return marks() - before


def test_a_computation_is_shared_and_stops_when_nobody_waits(visitor, marks):
    with serve("tests/browser/slow_page.py") as (address, _):
        first = visitor(address)
        first.page.goto(address)
        first.page.get_by_text("Counting:").wait_for(timeout=30_000)
        second = visitor(address)
        second.page.goto(address)
        second.page.get_by_text("Counting:").wait_for(timeout=30_000)
        assert 0 < steps_in(marks, 2) <= 40  # one computation, 20 steps a second, not two
        first.page.close()
        time.sleep(2)
        assert steps_in(marks, 1) > 0
        second.page.close()
        time.sleep(3)
        assert steps_in(marks, 1) == 0
        assert marks() < 400
