"""Pictures of the feed-forward lab's small networks: units and their switches, training, size against error, regions of the plane."""

import numpy as np
import plotly.graph_objects as go

from engine.ffn_fit import FitResult, Fitted, SweepResult, grid
from engine.ffn_params import ACTIVATIONS
from engine.ffn_pieces import HIGH, LOW
from engine.ffn_regions import VIEW, RegionsResult
from engine.figures.theme import CHANCE, HERE, PALETTE, SEQUENTIAL, WARM, figure, line

COLOURS = dict(zip(ACTIVATIONS, PALETTE, strict=False))
REACH = 2.0
ERRORS = [-4.2, 0.5]


def units(fitted: Fitted, step: int, snapshot: int) -> go.Figure:
    """Return what every unit adds to the curve, a row each, in the order of their switches; a dot where a gate's input is 0."""
    places = fitted.switches(snapshot)
    order = np.argsort(np.nan_to_num(places, nan=np.inf))
    cells = {
        "type": "heatmap",
        "x": grid(),
        "z": np.round(fitted.contributions(snapshot)[order], 3),
        "zmin": -REACH,
        "zmax": REACH,
        "colorscale": [[0, HERE], [0.5, "rgba(138, 143, 152, 0.12)"], [1, WARM]],
        "ygap": 1 if fitted.units <= 40 else 0,
        "hovertemplate": "x = %{x:.2f}, unit %{y}<br>adds %{z:.3f}<extra></extra>",
        "colorbar": {"title": {"text": "adds"}, "thickness": 12, "tickvals": [-2, -1, 0, 1, 2], "ticktext": ["≤ −2", "−1", "0", "1", "≥ 2"]},
    }
    inside = (places[order] > LOW) & (places[order] < HIGH)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": places[order][inside],
        "y": np.arange(fitted.units)[inside],
        "marker": {"size": 8, "color": "#222", "line": {"color": "#fff", "width": 1.5}},
        "hovertemplate": "switches at x = %{x:.3f}<extra></extra>",
        "showlegend": False,
    }
    name = ACTIVATIONS[fitted.activation].name
    x = {"title": "x", "range": [LOW, HIGH], "showgrid": False, "dtick": 1}
    y = {"title": "unit, by place of its switch", "range": [-0.6, fitted.units - 0.4], "showgrid": False, "showticklabels": fitted.units <= 20}
    title = f"What each of {fitted.units} {name} units adds, step {step}"
    return figure(400, title, x, y, [cells, dots], uirevision=f"{fitted.activation}{fitted.units}")


def training(result: FitResult, step: int) -> go.Figure:
    """Return the error of all activations through training, with the best constant's; the chosen step is marked."""
    hover = "step %{x}<br>error %{y:.4f}<extra></extra>"
    traces = [line(result.steps, fitted.errors, COLOURS[name], ACTIVATIONS[name].name, hovertemplate=hover) for name, fitted in result.fits.items()]
    ends = [0, int(result.steps[-1])]
    traces.append(line(ends, [result.constant_error] * 2, CHANCE, "best constant", hoverinfo="skip"))
    mark = {"type": "line", "x0": step, "x1": step, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": CHANCE, "width": 1}}
    x, y = {"title": "training step", "range": ends}, _error_axis()
    return figure(380, "Error through training, equal parameters", x, y, traces, shapes=[mark], margin={"l": 64, "r": 16, "t": 96, "b": 48})


def sizes(result: SweepResult) -> go.Figure:
    """Return final errors against parameters: the median over seeds as a line, every seed as a dot."""
    traces = []
    for i, (name, errors) in enumerate(result.errors.items()):
        shift = 1 + 0.03 * (i - 1.5)  # dots of one size side by side
        x = np.repeat(result.parameters * shift, errors.shape[1])
        dots = {"type": "scatter", "mode": "markers", "x": x, "y": errors.ravel(), "marker": {"color": COLOURS[name], "size": 6, "opacity": 0.45}}
        traces.append({**dots, "showlegend": False, "hovertemplate": f"{ACTIVATIONS[name].name}<br>error %{{y:.4f}}<extra></extra>"})
        traces.append(line(result.parameters * shift, np.median(errors, axis=1), COLOURS[name], ACTIVATIONS[name].name, markers=True))
    traces.append(line([14, 140], [result.constant_error] * 2, CHANCE, "best constant", hoverinfo="skip"))
    ticks = {"tickvals": list(result.parameters), "ticktext": [str(n) for n in result.parameters]}
    x = {"title": "parameters", "type": "log", "range": [np.log10(14), np.log10(140)], **ticks}
    title = f"Error after training, {result.errors['relu'].shape[1]} seeds"
    return figure(380, title, x, _error_axis(), traces, margin={"l": 64, "r": 16, "t": 96, "b": 48})


def regions(result: RegionsResult) -> go.Figure:
    """Return the plane cut into regions, coloured by how many units are on: across a line it is one more or one less."""
    from plotly.colors import sample_colorscale

    colours = sample_colorscale(SEQUENTIAL, list(np.arange(result.lines + 1) / result.lines))
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": np.append(cell[:, 0], cell[0, 0]),
            "y": np.append(cell[:, 1], cell[0, 1]),
            "fill": "toself",
            "fillcolor": colours[on],
            "line": {"color": "#fff", "width": 1},
            "hoveron": "fills",
            "text": f"{on} of {result.lines} units on",
            "hoverinfo": "text",
            "showlegend": False,
        }
        for cell, on in zip(result.cells, result.active, strict=True)
    ]
    bar = {"title": {"text": "units on"}, "thickness": 12}
    scale = {"color": [0], "cmin": 0, "cmax": result.lines, "colorscale": SEQUENTIAL, "showscale": True, "colorbar": bar}
    traces.append({"type": "scatter", "mode": "markers", "x": [None], "y": [None], "marker": scale, "showlegend": False})
    ends = [-VIEW, VIEW]
    axes = ({"title": f"x<sub>{i}</sub>", "range": ends, "dtick": 1, "showgrid": False} for i in (1, 2))
    return figure(440, f"{result.regions} regions, {len(result.cells)} of them in view", *axes, traces)


def _error_axis() -> dict:
    return {"title": "error (root mean square)", "type": "log", "range": ERRORS, "tickvals": [1e-4, 1e-3, 1e-2, 0.1, 1], "tickformat": "~g"}
