"""The feed-forward pictures: plotly accepts them, and axes stay while something moves."""

import numpy as np
import plotly.graph_objects as go
import pytest

from engine.ffn_cost import cost
from engine.ffn_fit import SweepResult, fit
from engine.ffn_jacobian import jacobian
from engine.ffn_ledger import ledger
from engine.ffn_neuron import edit, neuron
from engine.ffn_params import ACTIVATIONS, FfnParams
from engine.ffn_regions import linear, regions
from engine.ffn_roofline import machine
from engine.figures import ffn as figures
from engine.figures import ffn_cost as costs
from engine.figures import ffn_token as tokens


@pytest.fixture(scope="module")
def fitted():
    return fit(FfnParams(width=5))


def swept() -> SweepResult:
    rng = np.random.default_rng(0)
    return SweepResult(np.array([16, 31]), {name: 10 ** rng.uniform(-3, 0, (2, 8)) for name in ACTIVATIONS}, 0.7, 64)


def test_plotly_accepts_every_figure(fitted):
    params = FfnParams(shape="own", experts=4, top_k=2)
    found, costed = ledger(params), cost(params)
    drawn = [
        figures.units(fitted.fits["relu"], 50, 1),
        figures.training(fitted, 50),
        figures.sizes(swept()),
        figures.regions(regions(params)),
        tokens.reconstruction(found),
        tokens.gates(found, 3),
        tokens.words(neuron(params)),
        tokens.next_token(edit(params)),
        tokens.ranks(linear(params)),
        tokens.jacobian(jacobian(params)),
        costs.arithmetic(costed, 4096),
        costs.widths(costed),
        costs.roofline(costed, None, 16),
        costs.roofline(costed, machine(params), 16),
    ]
    for fig in drawn:
        checked = go.Figure(fig.to_dict())  # raises for a property or value that plotly does not know
        assert [trace.type for trace in checked.data] == [trace.type for trace in fig.data]


def test_axes_stay_through_training(fitted):
    for draw in (lambda step: figures.units(fitted.fits["gelu"], step, step // 50), lambda step: figures.training(fitted, step)):
        first, last = draw(0), draw(2000)
        assert (first.layout.xaxis.range, first.layout.yaxis.range) == (last.layout.xaxis.range, last.layout.yaxis.range)


def test_a_click_on_a_gate_names_its_neuron():
    shown = tokens.gates(ledger(FfnParams()), 3).data[0]
    assert shown.customdata[17] == {"neuron": 17}


def test_units_are_in_the_order_of_their_switches(fitted):
    one = fitted.fits["relu"]
    dots = figures.units(one, 2000, -1).data[1]
    assert list(dots.x) == sorted(dots.x)
    assert len(dots.x) == one.in_view(-1)
