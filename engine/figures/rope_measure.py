"""Pictures of a model under every law: loss by position, the price at 1x, induction by repeat distance."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.rope import COLOURS, EIGHT, NAMES, of_law
from engine.figures.theme import CHANCE, HERE, WARM, band, figure, line, safe_label
from engine.models.catalog import CATALOG
from engine.rope_measure import InductionResult, LossResult


def loss(result: LossResult, scheme: str, position: int, model: str = "fable") -> go.Figure:
    """Return a model's loss by position under the chosen law and under plain RoPE, each with a band of one standard error."""
    x = result.positions
    traces = []
    for name, colour in [("none", WARM)] + ([(scheme, HERE)] if scheme not in ("none", *dict(result.refused)) else []):
        mean, error = result.curve(name)
        traces += [{**band(x, mean - error, mean + error, ""), "showlegend": False}, line(x, mean, colour, NAMES[name], hovertemplate=_hover(result))]
    traces.append(_even(result))
    shapes = _contexts(result)
    if 0 < position < result.reach * result.context:
        shapes.append({**shapes[0], "x0": position, "x1": position, "line": {"color": HERE, "width": 1.5}})
    return figure(310, f"Loss of {_name(model)} by position, held-out text", *_axes(result), traces, shapes=shapes)


def _name(model: str) -> str:
    """Return what a model is called in a title."""
    return safe_label(CATALOG[model].title.partition(",")[0] if model in CATALOG else model)


def all_laws(result: LossResult, chosen: str) -> go.Figure:
    """Return the loss by position under every law."""
    traces = [of_law(name, chosen, result.positions, result.curve(name)[0], hovertemplate=_hover(result)) for name in result.schemes]
    return figure(430, "Every law, no fine-tuning", *_axes(result), [*traces, _even(result)], shapes=_contexts(result), margin=EIGHT)


def price(result: LossResult, chosen: str) -> go.Figure:
    """Return for each law the loss at 1x and beyond it, with one standard error: what it costs and what it saves."""
    names = list(reversed(result.schemes))
    rows = [[NAMES[n] if n != chosen else f"<b>{NAMES[n]}</b>" for n in names], list(range(len(names)))]
    at_1x, beyond = ([result.mean(n, "at_1x") for n in names], [(result.beyond(n), result.mean(n)[1]) for n in names])
    bars = [
        {"type": "line", "x0": a[0], "x1": b[0], "y0": i, "y1": i, "line": {"color": COLOURS[n], "width": 2}}
        for i, (n, a, b) in enumerate(zip(names, at_1x, beyond, strict=True))
    ]
    traces = [_dots(at_1x, rows[1], HERE, "at 1x"), _dots(beyond, rows[1], WARM, "beyond 1x")]
    plain = result.mean("none", "at_1x")[0]
    bars.append({"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": plain, "x1": plain, "line": {"color": CHANCE, "width": 1.5, "dash": "dot"}})
    y = {"title": "", "tickvals": rows[1], "ticktext": rows[0], "range": [-0.6, len(names) - 0.4], "showgrid": False}
    x = {
        "title": "nats per token (dotted: plain at 1x)",
        "range": [np.floor(4 * plain - 1) / 4, np.ceil(4 * max(v for v, _ in [*at_1x, *beyond]) + 1) / 4],
    }
    return figure(430, "The price at 1x and the loss beyond", x, y, traces, shapes=bars, margin={**EIGHT, "l": 104})


def copying(result: InductionResult, chosen: str) -> go.Figure:
    """Return the share of a repeat that is copied, by how far back it was, under every law."""
    x = np.array(result.distances)
    hover = "%{x} tokens back<br>%{y:.1%} copied<extra></extra>"
    traces = [
        of_law(name, chosen, x, share, mode="lines+markers", hovertemplate=hover, error_y={"type": "data", "array": spread, "thickness": 1})
        for name, share, spread in zip(result.schemes, result.accuracy, result.spread, strict=True)
    ]
    traces.append(line(x[[0, -1]], [result.chance] * 2, CHANCE, f"chance, {result.chance:.1%}"))
    half = result.context / 2
    shapes = [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": half, "x1": half, "line": {"color": CHANCE, "width": 1.5, "dash": "dot"}}]
    xaxis = {
        "title": "repeat distance (dotted: both copies fill the trained context)",
        "type": "log",
        "tickvals": list(x),
        "range": np.log10([12, 1400]),
    }
    return figure(
        430,
        "Copying repeated random tokens",
        xaxis,
        {"title": "copied", "range": [-0.03, 1.05], "tickformat": ".0%"},
        traces,
        shapes=shapes,
        margin=EIGHT,
    )


def _axes(result: LossResult) -> tuple[dict, dict]:
    """Return axes that hold every law's curve, so that nothing moves but the curve when the law is changed."""
    x = {"title": f"position in tokens (dotted: multiples of {result.context:,})", "range": [0, result.reach * result.context]}
    return x, {"title": "nats per token", "range": _range(result)}


def _range(result: LossResult) -> list[float]:
    """Return the axis from a quarter of the loss of even guessing, so that it stays while curves are still being computed."""
    return [np.floor(result.uniform / 2) / 2, np.ceil(4 * result.uniform + 0.5) / 4]


def _contexts(result: LossResult) -> list[dict]:
    """Return a dotted line at every multiple of the trained context."""
    style = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": CHANCE, "width": 1.5, "dash": "dot"}}
    return [{**style, "x0": n * result.context, "x1": n * result.context} for n in range(1, result.reach + 1)]


def _even(result: LossResult) -> dict:
    return line([0, result.reach * result.context], [result.uniform] * 2, CHANCE, "even guessing")


def _hover(result: LossResult) -> str:
    tokens = result.point_tokens * result.longer.shape[1]
    return f"position %{{x:.0f}}<br>%{{y:.2f}} nats, {tokens} tokens<extra></extra>"


def _dots(values: list[tuple[float, float]], rows: list[int], colour: str, name: str) -> dict:
    error = {"type": "data", "array": [e for _, e in values], "thickness": 1.5}
    hover = "%{x:.3f} ± %{error_x.array:.3f} nats<extra></extra>"
    x = [value for value, _ in values]
    return {
        **{"type": "scatter", "mode": "markers", "x": x, "y": rows, "marker": {"color": colour, "size": 11}},
        **{"name": name, "error_x": error, "hovertemplate": hover},
    }
