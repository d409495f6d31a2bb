"""Pictures of the RoPE lab that need no model: laws on one axis, waves, angles never seen, scores, temperature, precision."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, CLEAR, DASHES, HERE, MARGIN, SERIES, WARM, band, figure, line
from engine.rope import RopeParams, RopeResult
from engine.rope_laws import LAWS
from engine.rope_scores import DistanceResult, ShiftResult, SinusoidalResult, StaleResult, TemperatureResult, UnseenResult

NAMES = {
    "none": "plain",
    "pi": "PI",
    "ntk": "NTK-aware",
    "dynamic": "dynamic NTK",
    "by_parts": "by parts",
    "yarn": "YaRN",
    "longrope": "LongRoPE",
    "llama3": "Llama 3",
}
COLOURS = dict(zip(LAWS, SERIES, strict=True))
STROKES = dict(zip(LAWS, DASHES, strict=True))
EIGHT = {**MARGIN, "t": 104}  # room for a legend of eight on a phone


def of_law(scheme: str, chosen: str, x, y, **trace) -> dict:
    """Return a law's curve in its own colour and dash, heavier if it is the chosen one."""
    style = {"color": COLOURS[scheme], "dash": STROKES[scheme], "width": 4.5 if scheme == chosen else 1.8}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": style, "name": NAMES[scheme], **trace}


def laws(results: dict[str, RopeResult], chosen: str) -> go.Figure:
    """Return theta' / theta of every pair under every law: 1 is untouched, 1 / factor divided."""
    any_law = next(iter(results.values()))
    pairs = np.arange(len(any_law.ratio))
    hover = "pair %{x}<br>%{y:.3f} of its speed<extra></extra>"
    traces = [of_law(name, chosen, pairs, result.ratio, hovertemplate=hover) for name, result in results.items()]
    slowest = min(1 / any_law.factor, *(float(r.ratio.min()) for r in results.values()))
    y = {"title": "speed left, θ′ / θ", "range": [min(slowest, 0.9) - 0.03, 1.03]}
    x = {"title": "pair (0 turns fastest)", "range": [-0.5, len(pairs) - 0.5]}
    return figure(400, "What each law does to each pair", x, y, traces, margin=EIGHT)


def wavelengths(result: RopeResult, scheme: str) -> go.Figure:
    """Return the wavelength of each pair, plain and under the law, against the trained context."""
    pairs, L = np.arange(len(result.wavelength)), result.original_context
    hover = "pair %{x}<br>a turn in %{y:.4g} tokens<extra></extra>"
    traces = [line(pairs, result.wavelength, WARM, "plain", markers=True, hovertemplate=hover)]
    if scheme != "none":
        traces.append(line(pairs, result.scaled_wavelength, HERE, NAMES[scheme], markers=True, hovertemplate=hover))
    top = max(result.scaled_wavelength.max(), result.wavelength.max(), L)
    y = {"title": "tokens for a turn", "type": "log", "range": [0.5, np.log10(top) + 0.3], "exponentformat": "power", "dtick": 1}
    x = {"title": "pair (0 turns fastest)", "range": [-0.5, len(pairs) - 0.5]}
    shapes = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": L, "y1": L, "line": {"color": CHANCE, "width": 2, "dash": "dot"}}]
    text = f"trained on {L:,} tokens"
    note = {"text": text, "xref": "paper", "x": 1, "y": np.log10(L), "xanchor": "right", "yanchor": "top", "showarrow": False}
    return figure(
        400, f"{result.unfinished} of {len(pairs)} pairs never completed a turn", x, y, traces, shapes=shapes, annotations=[note], margin=EIGHT
    )


def unseen(result: UnseenResult, which: str, scheme: str, L: int) -> go.Figure:
    """Return the map of pairs by positions, coloured where the angle was never seen in training; ``which``: plain or scaled."""
    cells = {
        "type": "heatmap",
        "x": result.positions,
        "z": np.round(getattr(result, which), 3),
        "zmin": 0,
        "zmax": np.pi,
        "colorscale": [[0, CLEAR], [1e-6, "rgba(217, 116, 43, 0.35)"], [1, "rgb(217, 80, 20)"]],
        "hovertemplate": "pair %{y}, %{x} tokens back<br>%{z:.2f} radians from any seen angle<extra></extra>",
        "colorbar": {"title": {"text": "radians<br>beyond"}, "thickness": 12, "tickvals": [0, np.pi / 2, np.pi], "ticktext": ["0, seen", "π/2", "π"]},
    }
    name = "plain" if which == "plain" else NAMES[scheme]
    n = getattr(result, which).shape[0]
    y = {"title": "pair", "range": [n - 0.5, -0.5], "showgrid": False}
    x = {"title": "tokens back", "range": [0, float(result.positions[-1])], "showgrid": False}
    shapes = [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": L, "x1": L, "line": {"color": CHANCE, "width": 2, "dash": "dot"}}]
    text = "none: training saw every one of these angles"
    note = {"text": text, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    none = [] if result.share(which) else [note]
    return figure(330, f"Angles never seen, {name}: {result.share(which):.0%}", x, y, [cells], shapes=shapes, annotations=none)


def score_curve(result: DistanceResult, params: RopeParams) -> go.Figure:
    """Return the score against the distance back, plain and under the law, over the band of unrelated vectors."""
    ends = [result.delta[0], result.delta[-1]]
    hover = "%{x} tokens back<br>score %{y:.3f}<extra></extra>"
    traces = [band(ends, [-2 * result.spread] * 2, [2 * result.spread] * 2, "unrelated vectors, ± 2 sd")]
    traces.append(line(result.delta, result.plain, WARM, "plain", hovertemplate=hover))
    if params.scheme != "none":
        traces.append(line(result.delta, result.scaled, HERE, NAMES[params.scheme], hovertemplate=hover))
    size = max(1.5 * float(np.abs(result.plain).max()), float(np.abs(result.scaled).max()))
    x = {"title": "tokens back from query to key", "range": [float(e) for e in ends]}
    shapes = [_at(params.original_context, CHANCE, "dot")] + ([_at(params.position, HERE, "solid")] if params.position <= ends[1] else [])
    return figure(380, "Score against distance", x, {"title": "score", "range": [-size, size]}, traces, shapes=shapes, margin={**MARGIN, "t": 80})


def temperatures(result: TemperatureResult) -> go.Figure:
    """Return the largest softmax weights over random scores, as they are and with the attention factor squared."""
    rank = np.arange(1, len(result.plain) + 1)
    traces = [
        line(rank, result.plain, WARM, f"plain: {result.plain_keys:.0f} keys in effect"),
        line(rank, result.scaled, HERE, f"scores × {result.attention_factor**2:.2f}: {result.scaled_keys:.0f} in effect"),
    ]
    y = {"title": "weight", "type": "log", "exponentformat": "power", "dtick": 1, "range": [-4.2, 0]}
    x = {"title": "key, by weight", "range": [0, len(rank) + 1]}
    return figure(380, f"A softmax over {result.keys:,} random scores", x, y, traces, margin={**MARGIN, "t": 80})


def precision(result: ShiftResult) -> go.Figure:
    """Return the largest change of a score when both positions move, by precision, on log axes."""
    traces = [
        line(result.shifts, np.maximum(getattr(result, name), 1e-17), colour, name, markers=True)
        for name, colour in (("fp64", HERE), ("fp32", SERIES[2]), ("bf16", WARM))
    ]
    unrelated = 2**0.5 * result.spread
    traces.append(line([1, result.shifts[-1]], [unrelated] * 2, CHANCE, "unrelated scores", showlegend=True))
    axis = {"type": "log", "exponentformat": "power", "dtick": 1}
    x = {"title": "both positions moved by t", **axis, "range": [-0.2, 6.2]}
    y = {"title": "largest change of a score", **axis, "dtick": 3, "range": [-16, 2.5], "title_standoff": 8}
    return figure(380, "Rounding lets the score drift", x, y, traces, margin={**MARGIN, "t": 80, "l": 88})


def rotation(R: np.ndarray, position: int) -> go.Figure:
    """Return R_m (d, d) as a heat map with its entries: blocks of two on the diagonal, zeros elsewhere."""
    d, labels = len(R), [str(i) for i in range(len(R))]
    words = [[f"{value:.2f}" if i // 2 == j // 2 else "" for j, value in enumerate(row)] for i, row in enumerate(R)]
    cells = {
        **{"type": "heatmap", "x": labels, "y": labels, "z": np.round(R, 4), "zmin": -1, "zmax": 1, "colorscale": "RdBu"},
        **{"text": words if d <= 8 else None, "texttemplate": "%{text}" if d <= 8 else None, "colorbar": {"thickness": 12}},
        "hovertemplate": "row %{y}, column %{x}: %{z}<extra></extra>",
    }
    x = {"title": "dimension", "type": "category", "showgrid": False}
    y = {"title": "dimension", "type": "category", "autorange": "reversed", "showgrid": False}
    return figure(380, f"R at position {position:,}, plain: a block a pair", x, y, [cells])


def positions(result: SinusoidalResult) -> go.Figure:
    """Return the sinusoidal encoding as a map: a row per position, a column per dimension."""
    cells = {"type": "heatmap", "z": np.round(result.encoding[:256], 3), "zmin": -1, "zmax": 1, "colorscale": "RdBu", "colorbar": {"thickness": 12}}
    x, y = {"title": "dimension (sin, cos in turn)", "showgrid": False}, {"title": "position", "autorange": "reversed", "showgrid": False}
    return figure(340, "Sinusoidal positions, added to the input", x, y, [cells])


def stale(result: StaleResult, length: int) -> go.Figure:
    """Return the error of a score with keys left as they were cached, by distance back."""
    traces = [
        line(result.distance, result.stale, WARM, "keys left as cached"),
        line(result.distance, result.intended, HERE, "the law's own change, keys rotated again"),
        line([0, length], [result.chance] * 2, CHANCE, "unrelated angles"),
    ]
    x, y = {"title": "tokens back from the last query", "range": [0, length]}, {"title": "error / spread of a score", "range": [0, 1.7]}
    return figure(360, f"Dynamic NTK at {length:,} tokens with a cache", x, y, traces, margin={**MARGIN, "t": 80})


def _at(x: float, colour: str, dash: str) -> dict:
    """Return a vertical line at a distance."""
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": {"color": colour, "width": 1.5, "dash": dash}}
