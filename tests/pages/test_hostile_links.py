"""Ten thousand hostile links a page: all are settled, in short sentences, once and for all."""

from contextlib import suppress

import pytest
from hypothesis import given, settings

from engine.errors import LabError
from pages.shared.navigation import LABS
from tests.hostile import links
from tests.pages.test_pages import panel_of

LINKS = 10_000
LONGEST = 500


@pytest.mark.parametrize("lab", LABS)
def test_hostile_links_settle(lab):
    panel, tried = panel_of(lab), [0]

    @settings(max_examples=LINKS, deadline=None)
    @given(links(panel.controls))
    def settles(pairs):
        tried[0] += 1
        good, notes = panel.settle(dict(pairs))
        assert panel.settle(good) == (good, [])
        assert all(len(note) < LONGEST for note in notes)
        with suppress(LabError):  # in one sentence; the page puts the culprit back
            panel.params(good)

    settles()
    assert tried[0] >= LINKS
