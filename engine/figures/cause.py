"""Pictures of what heads are for: any score against any other, and what is left when heads keep few directions."""

import plotly.graph_objects as go

from engine.ablation import KeepResult
from engine.figures.theme import CHANCE, HERE, WARM, figure, line
from engine.head_map import HeadScore


def scatter(x: HeadScore, y: HeadScore, layer: int, head: int) -> go.Figure:
    """Return one score of every head against another; a click names the head. Axes are the scores' fixed scales."""
    n_heads = x.values.shape[1]
    names = [divmod(i, n_heads) for i in range(x.values.size)]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": x.values.ravel(),
        "y": y.values.ravel(),
        "text": [f"layer {at}, head {h}" for at, h in names],
        "customdata": [{"layer": at, "head": h} for at, h in names],
        "marker": {"size": 10, "color": HERE, "opacity": 0.75},
        "hovertemplate": f"%{{text}}<br>{x.name} %{{x:.{x.digits + 1}f}}{x.unit}<br>{y.name} %{{y:.{y.digits + 1}f}}{y.unit}<extra></extra>",
        "showlegend": False,
    }
    marker = {"symbol": "circle-open", "size": 18, "color": WARM, "line": {"width": 3}}
    here = {"x": [x.values[layer, head]], "y": [y.values[layer, head]], "name": f"layer {layer}, head {head}", "hoverinfo": "skip"}
    chance = [line([s.chance] * 2, [y.low, y.high], CHANCE, "chance", hoverinfo="skip") for s in (x,) if s.chance is not None]
    chance += [line([x.low, x.high], [s.chance] * 2, CHANCE, "chance", hoverinfo="skip", showlegend=not chance) for s in (y,) if s.chance is not None]
    axes = ({"title": s.name + (f" ({s.unit.strip()})" if s.unit else ""), "range": _range(s)} for s in (x, y))
    title = "Every head: one score against another"
    return figure(380, title, *axes, [*chance, points, {"type": "scatter", "mode": "markers", "marker": marker, **here}], uirevision=x.name + y.name)


def keep_curve(result: KeepResult) -> go.Figure:
    """Return copying accuracy against the directions that the changed heads keep, with the intact model's and chance."""
    hover = "%{x} directions kept<br>%{y:.1f} % predicted<extra></extra>"
    error = {"type": "data", "array": 100 * result.copying_spread, "thickness": 1}
    ends, intact = [0, int(result.k[-1])], 100 * float(result.copying[-1])
    traces = [
        line(ends, [100 * result.copying_chance] * 2, CHANCE, "chance", hoverinfo="skip"),
        line(ends, [0.9 * intact] * 2, WARM, "90 % of intact", hoverinfo="skip", line={"color": WARM, "width": 1}),
        line(result.k, 100 * result.copying, HERE, "copying", markers=True, hovertemplate=hover, error_y=error),
    ]
    matrix = {"ov": "W<sub>OV</sub>", "qk": "W<sub>QK</sub>"}[result.circuit]
    x = {"title": f"singular directions of {matrix} kept in each head", "range": [-0.5, result.k[-1] + 0.5]}
    return figure(380, "What is left of copying", x, {"title": "repeated tokens predicted (%)", "range": [-3, 103]}, traces)


def _range(score: HeadScore) -> list[float]:
    room = 0.05 * (score.high - score.low)
    return [score.low - room, score.high + room]
