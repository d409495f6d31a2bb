"""Pictures of composition: every head's with the chosen one, and the spectrum of a virtual head."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, HERE, SEQUENTIAL, WARM, band, figure, line
from engine.virtual import HeadCompositionResult, VirtualResult

CELL_TEXT_LIMIT = 400
WORDS = {"q": "queries", "k": "keys", "v": "values"}


def composition_map(result: HeadCompositionResult, kind: str, partner: tuple[int, int] | None = None) -> go.Figure:
    """Return every other head's composition with the chosen one (outlined grey) through ``kind``, in multiples of chance.

    Earlier layers: what the chosen head reads from; later ones: what reads from it. A cell's click names the partner.
    The colour scale is that of all three kinds.
    """
    n_layers, n_heads = result.q.shape
    values = getattr(result, kind) / result.chance
    top = max(2.0, float(np.ceil(np.nanmax([result.q, result.k, result.v], initial=0) / result.chance)))
    cells = {
        "type": "heatmap",
        "z": np.round(values, 3),
        "customdata": [[{"partner": f"{y}.{x}"} for x in range(n_heads)] for y in range(n_layers)],
        "zmin": 0,
        "zmax": top,
        "colorscale": SEQUENTIAL,
        "xgap": 3,
        "ygap": 3,
        "hoverongaps": False,
        "texttemplate": "%{z:.1f}" if values.size <= CELL_TEXT_LIMIT else None,
        "hovertemplate": "layer %{y}, head %{x}<br>%{z:.2f} times chance<extra></extra>",
        "colorbar": {"title": {"text": "times<br>chance"}, "thickness": 14, "tickvals": [0, 1, top], "ticktext": ["0", "chance", f"{top:g}"]},
    }
    outlines = [_outline(result.layer, result.head, CHANCE), *([_outline(*partner, WARM)] if partner else [])]
    x = {"title": "head", **_ticks(n_heads), "range": [-0.6, n_heads - 0.4], "showgrid": False}
    y = {"title": "layer", **_ticks(n_layers), "range": [n_layers - 0.4, -0.6], "showgrid": False}
    title = f"Composition through {WORDS[kind]} with layer {result.layer}, head {result.head}"
    return figure(350, title, x, y, [cells], shapes=outlines)


def virtual_spectrum(result: VirtualResult) -> go.Figure:
    """Return the singular values of W_OV^b W_OV^a over the band that random rotations of one against the other give.

    The vertical axis spans five decades below whole powers of ten, so that it moves little from pair to pair.
    """
    values = np.where(result.singular_values > 0, result.singular_values, np.nan)
    index = np.arange(1, len(values) + 1)
    hover = "direction %{x}<br>singular value %{y:.4g}<extra></extra>"
    traces = [
        band(index, result.low, result.high, "chance, 5 to 95 %"),
        line(index, result.median, CHANCE, "chance, median", showlegend=False),
        line(index, values, HERE, "virtual head", markers=True, hovertemplate=hover),
    ]
    largest = max(float(np.nanmax(values, initial=0)), float(result.high.max())) or 1.0
    top = float(np.ceil(np.log10(largest)))
    y = {"title": "singular value", "type": "log", "range": [top - 5, top], "exponentformat": "power", "dtick": 1}
    x = {"title": "direction", "range": [0, len(values) + 1]}
    (la, ha), (lb, hb) = result.earlier, result.later
    return figure(350, f"Virtual head: {lb}.{hb} after {la}.{ha}", x, y, traces)


def _outline(layer: int, head: int, colour: str) -> dict:
    box = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
    return {"type": "rect", **box, "line": {"color": colour, "width": 4}}


def _ticks(n: int) -> dict:
    return {"tickmode": "linear", "tick0": 0, "dtick": max(1, -(-n // 16))}
