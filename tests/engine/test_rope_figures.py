"""Pictures of the RoPE lab: plotly accepts them, and their axes stay while the law is changed."""

from dataclasses import replace

import plotly.graph_objects as go
import pytest

from engine.figures import rope, rope_measure
from engine.rope import RopeParams, frequencies
from engine.rope_measure import induction, window_losses
from engine.rope_scores import score_by_distance, shift_errors, sinusoidal, stale_cache, temperature, unseen_phases

SCHEMES = ("none", "pi", "ntk", "yarn")


def figures(scheme: str) -> dict[str, go.Figure]:
    """Return one of each at a law, LongRoPE left out as on a page without its lists."""
    params = RopeParams(scheme=scheme, reach=1)
    results = {name: frequencies(replace(params, scheme=name)) for name in SCHEMES}
    losses, unseen = window_losses(params, 0), unseen_phases(params)
    return {
        "laws": rope.laws(results, scheme),
        "wavelengths": rope.wavelengths(results[scheme], scheme),
        "unseen": rope.unseen(unseen, "scaled", scheme, 256),
        "score_curve": rope.score_curve(score_by_distance(params), params),
        "temperatures": rope.temperatures(temperature(params)),
        "precision": rope.precision(shift_errors(params)),
        "positions": rope.positions(sinusoidal(params)),
        "stale": rope.stale(stale_cache(params), params.used_length),
        "loss": rope_measure.loss(losses, scheme, 64),
        "all_laws": rope_measure.all_laws(losses, scheme),
        "price": rope_measure.price(losses, scheme),
        "copying": rope_measure.copying(induction(params), scheme),
    }


@pytest.fixture(scope="module")
def drawn():
    """The pictures under two laws."""
    return {scheme: figures(scheme) for scheme in ("none", "yarn")}


def test_plotly_accepts_them(drawn):
    for of_law in drawn.values():
        for figure in of_law.values():
            go.Figure(figure.to_dict())  # raises ValueError for what it does not know


def test_axes_stay_while_the_law_is_changed(drawn):
    for name in ("laws", "loss", "all_laws", "price", "copying", "unseen", "temperatures"):
        plain, law = (drawn[scheme][name].layout for scheme in ("none", "yarn"))
        assert (plain.xaxis.range, plain.yaxis.range) == (law.xaxis.range, law.yaxis.range), name
        assert plain.height == law.height
