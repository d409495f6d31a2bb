"""Pictures of one token in a real feed-forward layer: its ledger, its gates, a neuron's words, an edit, ranks, the Jacobian."""

import numpy as np
import plotly.graph_objects as go

from engine.ffn_jacobian import JacobianResult
from engine.ffn_ledger import LedgerResult
from engine.ffn_neuron import EditResult, NeuronResult
from engine.ffn_regions import LinearResult
from engine.figures.theme import CHANCE, HERE, MARGIN, PALETTE, SEQUENTIAL, WARM, band, figure, line, safe_label

LEVEL = 0.1


def reconstruction(result: LedgerResult) -> go.Figure:
    """Return what is left of the layer's output after the k neurons that write most, beside random order."""
    k = np.arange(result.d_ff + 1)
    hover = "%{x} neurons<br>%{y:.1%} left<extra></extra>"
    traces = [
        line(k, result.random_remaining, CHANCE, "in random order", hovertemplate=hover),
        line(k, result.remaining, HERE, "largest |a<sub>i</sub>| |c<sub>i</sub>| first", hovertemplate=hover),
    ]
    level = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": LEVEL, "y1": LEVEL, "line": {"color": WARM, "width": 1}}
    said = {"text": f"10 % left: {result.neurons_90} neurons", "xref": "paper", "x": 0, "xanchor": "left", "xshift": 6, "y": LEVEL, "yanchor": "top"}
    y = {"title": "left of the output", "range": [0, 1.25], "tickformat": ".0%"}
    title, x = f"The output of layer {result.layer}, neuron by neuron", {"title": "neurons added, k", "range": [0, result.d_ff]}
    return figure(400, title, x, y, traces, shapes=[level], annotations=[{**said, "showarrow": False}])


def gates(result: LedgerResult, neuron: int) -> go.Figure:
    """Return every neuron at its gate's input and at what that is multiplied by (plain: at its activation); a click chooses it."""
    side = result.up if result.gated else result.activations
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": result.gate,
        "y": side,
        "customdata": [{"neuron": i} for i in range(result.d_ff)],
        "text": [f"neuron {i}" for i in range(result.d_ff)],
        "hovertemplate": "%{text}<br>gate %{x:.2f}, up %{y:.2f}<br>writes %{marker.color:.3f}<extra></extra>",
        "marker": {
            "size": 8,
            "color": result.writes,
            "colorscale": SEQUENTIAL,
            "opacity": 0.85,
            "colorbar": {"title": {"text": "writes"}, "thickness": 12},
        },
        "showlegend": False,
    }
    ring = {"symbol": "circle-open", "size": 18, "color": WARM, "line": {"width": 3}}
    here = {
        "type": "scatter",
        "mode": "markers",
        "x": [result.gate[neuron]],
        "y": [side[neuron]],
        "marker": ring,
        "hoverinfo": "skip",
        "showlegend": False,
    }
    x = {"title": "gate's input" if result.gated else "input of the activation", "range": _about(result.gate)}
    y = {"title": "up, W<sub>up</sub> x" if result.gated else "activation", "range": _about(side)}
    zero = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 0, "x1": 0, "line": {"color": CHANCE, "width": 1, "dash": "dot"}}
    title = f"Every neuron at this token; {neuron} is chosen"
    return figure(400, title, x, y, [points, here], shapes=[zero], uirevision=f"{result.layer} {result.token}")


def words(result: NeuronResult) -> go.Figure:
    """Return the tokens that a neuron's value promotes and holds back most, beside what a random direction reaches."""
    both = [*result.promoted, *reversed(result.held_back)]
    values = np.array([value for _, value in both])
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": list(range(len(both))),
        "marker": {"color": [HERE if v > 0 else WARM for v in values]},
        "hovertemplate": "%{x:.3f}<extra></extra>",
        "showlegend": False,
    }
    ticks = {"tickvals": list(range(len(both))), "ticktext": [safe_label(_quoted(token)) for token, _ in both], "tickfont": {"size": 12}}
    reach = 1.1 * max(np.abs(values).max(), result.random_top)
    marks = [
        {"type": "line", "x0": s * result.random_top, "x1": s * result.random_top, "yref": "paper", "y0": 0, "y1": 1, "line": _DOTTED}
        for s in (-1, 1)
    ]
    x, y = {"title": "change of the logit per unit of a", "range": [-reach, reach]}, {"title": "", **ticks, "range": [len(both) - 0.5, -0.5]}
    chance = {
        "text": "dotted: a random direction's best",
        "xref": "paper",
        "yref": "paper",
        "x": 1,
        "y": 1.0,
        "xanchor": "right",
        "yanchor": "bottom",
    }
    title = f"What neuron {result.neuron} promotes and holds back"
    return figure(500, title, x, y, [bars], shapes=marks, margin={**MARGIN, "l": 96}, annotations=[{**chance, "showarrow": False}])


def next_token(result: EditResult) -> go.Figure:
    """Return the likeliest next tokens before and after the edit."""
    labels = [safe_label(_quoted(token)) for token in result.tokens]
    hover = "%{y:.1%}<extra></extra>"
    place = list(range(len(labels)))
    traces = [
        {"type": "bar", "x": place, "y": values, "name": name, "marker": {"color": colour}, "hovertemplate": hover}
        for values, name, colour in ((result.before, "as it is", CHANCE), (result.after, result.what, HERE))
    ]
    top = max(float(result.before.max()), float(result.after.max()))
    x = {"title": "", "tickvals": place, "ticktext": labels, "tickangle": -45, "tickfont": {"size": 13}}
    y = {"title": "probability", "range": [0, min(1.0, 1.2 * top)], "tickformat": ".0%"}
    return figure(400, "The next token", x, y, traces, barmode="group", margin={**MARGIN, "b": 84})


def ranks(result: LinearResult) -> go.Figure:
    """Return singular values of W_down W_up, and of the hidden vectors of a text before and after the nonlinearity, on a log axis."""
    hover = "direction %{x}<br>%{y:.3g} of the largest<extra></extra>"
    traces = [
        line(np.arange(1, len(values) + 1), np.maximum(values / values[0], 1e-18), colour, name, hovertemplate=hover)
        for values, colour, name in (
            (result.product_values, PALETTE[2], "W<sub>down</sub> W<sub>up</sub>"),
            (result.before_values, WARM, "W<sub>up</sub> x"),
            (result.after_values, HERE, "after the nonlinearity"),
        )
    ]
    mark = {"type": "line", "x0": result.d_model, "x1": result.d_model, "yref": "paper", "y0": 0, "y1": 1, "line": _DOTTED}
    said = {"text": f"d<sub>model</sub> = {result.d_model}", "x": result.d_model, "yref": "paper", "y": 0.04, "xanchor": "left", "xshift": 4}
    x = {"title": "direction", "range": [0, len(result.before_values)]}
    y = {"title": "singular value / largest", "type": "log", "range": [-18, 0.5], "dtick": 3, "exponentformat": "power"}
    title = f"Singular values, {result.tokens} tokens of text"
    return figure(440, title, x, y, traces, shapes=[mark], annotations=[{**said, "showarrow": False}], margin={**MARGIN, "l": 84, "t": 76})


def jacobian(result: JacobianResult) -> go.Figure:
    """Return the Jacobian's singular values over the band of random inputs of the same length."""
    index = np.arange(1, len(result.singular_values) + 1)
    hover = "direction %{x}<br>stretched by %{y:.3g}<extra></extra>"
    traces = [
        band(index, np.maximum(result.low, 1e-9), np.maximum(result.high, 1e-9), "random inputs, 5 to 95 %"),
        line(index, np.maximum(result.median, 1e-9), CHANCE, "random inputs, median", showlegend=False),
        line(index, np.maximum(result.singular_values, 1e-9), HERE, "this token", hovertemplate=hover),
    ]
    x = {"title": "direction", "range": [0, len(index) + 1]}
    y = {"title": "singular value", "type": "log", "range": [-3, 2], "dtick": 1, "exponentformat": "power"}
    return figure(420, f"How layer {result.layer} stretches a small change at this token", x, y, traces, margin={**MARGIN, "l": 76})


_DOTTED = {"color": CHANCE, "width": 1.5, "dash": "dot"}


def _about(values: np.ndarray) -> list[float]:
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) + 1e-9
    return [low - room, high + room]


def _quoted(token: str) -> str:
    """Return a token with its leading space visible."""
    return token.replace(" ", "␣")
