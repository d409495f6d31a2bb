"""The shipped thumbnails are what the engine gives."""

import re

import pytest

from engine.figures import thumbnails


def numbers(svg: str) -> list[float]:
    """Return every number of an SVG, in order."""
    return [float(n) for n in re.findall(r"-?\d+\.?\d*", svg)]


@pytest.mark.parametrize("name", thumbnails.THUMBNAILS)
def test_shipped_thumbnails_are_current(name):
    shipped, now = (thumbnails.FOLDER / f"{name}.svg").read_text(), thumbnails.drawn()[name]
    assert numbers(shipped) == pytest.approx(numbers(now), abs=1.01)
    assert re.sub(r"[\d.]+", "", shipped) == re.sub(r"[\d.]+", "", now)
