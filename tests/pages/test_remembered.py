"""What is kept of pictures and of numbers from several results: the same for the same arguments, never for others."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import pytest

from engine.figures.spectra import spectrum
from engine.figures.theme import as_json
from engine.spectra import SpectraParams, chance, head_spectra
from pages.shared import remembered as module
from pages.shared.remembered import Picture, Pictures, remembered


@dataclass(frozen=True)
class Result:
    """Like the engine's: it holds an array, so it has no hash."""

    values: np.ndarray


def counting():
    calls = []

    def total(result, *rest, scale=1.0):
        calls.append(1)
        return float(np.sum(result.values if isinstance(result, Result) else result)) * scale

    total.__qualname__ = f"total_{id(calls)}"
    return calls, remembered(total)


def test_the_same_object_is_not_worked_on_twice_and_another_one_is():
    calls, total = counting()
    first, second = Result(np.arange(3.0)), Result(np.arange(3.0))
    assert [total(first), total(first), total(second), total(second)] == [3.0] * 4
    assert len(calls) == 2


def test_arguments_by_value_and_by_name_count():
    calls, total = counting()
    result = Result(np.arange(3.0))
    assert [total(result, 1), total(result, 1.0), total(result, True), total(result, scale=2.0)] == [3.0, 3.0, 3.0, 6.0]
    assert len(calls) == 4
    assert total([1, 2]) == total((1, 2)) == total(np.array([1, 2]))
    assert total(np.array([1, 3])) == 4
    assert len(calls) == 8


def test_an_object_that_takes_the_place_of_another_in_memory_is_another():
    (calls, total), before = counting(), len(module._marks)
    for n in range(200):
        assert total(Result(np.full(2000, float(n)))) == 2000.0 * n
    assert len(calls) == 200
    assert len(module._marks) < before + 100  # what is gone is forgotten


def test_what_is_kept_is_bounded():
    big = remembered(lambda n: np.zeros(10**6) + n)
    for n in range(20):
        assert big(n)[0] == n
    assert module._kept.currsize <= module._kept.maxsize


def test_a_picture_is_the_figure_as_json():
    params = SpectraParams()
    result, by_chance = head_spectra(params), chance(params)
    figures = Pictures("spectra")
    drawn = figures.spectrum(result, by_chance, "ov", 1, 2, None)
    figure = spectrum(result, by_chance, "ov", 1, 2, None)
    assert isinstance(drawn, Picture)
    assert [line.decode() for line in drawn.lines] == list(as_json(figure).values())
    assert not any(b"\n" in line for line in drawn.lines)
    assert drawn.height == figure.layout.height
    assert figures.spectrum(result, by_chance, "ov", 1, 2, None) is drawn
    assert figures.spectrum(result, by_chance, "ov", 1, 3, None) is not drawn
    assert isinstance(spectrum(result, by_chance, "ov", 1, 2, None), go.Figure)  # notebooks get their own, to change


def test_what_is_no_figure_is_passed_on():
    assert Pictures("rope").NAMES["pi"]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = Pictures("rope").nonsense
