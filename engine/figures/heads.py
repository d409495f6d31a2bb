"""Pictures of attention: thumbnails of all heads of a layer, and one head with its entropy and its weight on the first token."""

import numpy as np
import plotly.graph_objects as go

from engine.attention_maps import LayerAttentionResult
from engine.figures.packing import packed
from engine.figures.theme import CHANCE, CLEAR, HERE, MARGIN, SEQUENTIAL, WARM, figure, line, safe_label

THUMB = 64
FEW_HEADS = 16
LABELS = 40


def thumbnails(result: LayerAttentionResult, head: int) -> go.Figure:
    """Return a small attention map of every head of a layer, the chosen one outlined; each one's click names its head.

    Maps of more than 64 tokens show the largest weight of each block of neighbours.
    """
    n_heads, n_tokens = result.attention.shape[:2]
    columns = 4 if n_heads <= FEW_HEADS else 8
    rows = -(-n_heads // columns)
    side = min(n_tokens, THUMB)
    traces = [_thumb(block_maxima(A, side), *divmod(h, columns), result.causal, h == 0) for h, A in enumerate(result.attention)]
    places = np.arange(n_heads)
    names = {"x": places % columns + 0.08, "y": places // columns + 0.01, "text": [str(h) for h in places], "textposition": "bottom right"}
    traces += [{"type": "scatter", "mode": "text", **names, "hoverinfo": "skip", "showlegend": False}, _targets(result, rows, columns)]
    row, column = divmod(head, columns)
    box = {"x0": column + 0.02, "x1": column + 0.98, "y0": row + 0.02, "y1": row + 0.98}
    outline = {"type": "rect", **box, "line": {"color": WARM, "width": 3}}
    hidden = {"title": "", "showgrid": False, "showticklabels": False, "ticks": ""}
    x, y = {**hidden, "range": [0, columns]}, {**hidden, "range": [rows, 0]}
    margin = {**MARGIN, "l": 8, "b": 8}
    return figure(70 + (110 if columns == 4 else 72) * rows, "Attention of every head of the layer", x, y, traces, shapes=[outline], margin=margin)


def attention(result: LayerAttentionResult, head: int) -> go.Figure:
    """Return one head's attention, a row per query token, and beside each row its entropy share and its weight on the first token."""
    n = len(result.labels)
    names = [f"{i} {safe_label(label)}" for i, label in enumerate(result.labels)]  # the position makes each one unique
    hover = "%{y} → %{x}<br>weight %{z:.3f}<extra></extra>"
    cells = {"type": "heatmap", "x": names, "y": names, "packed": packed(result.attention[head], result.causal), "zmin": 0, "zmax": 1}
    cells |= {"colorscale": SEQUENTIAL, "hoverongaps": False, "hovertemplate": hover, "showscale": False}
    beside = {"xaxis": "x2", "yaxis": "y"}
    share = "%{y}<br>%{x:.2f}<extra>%{fullData.name}</extra>"
    rounded = lambda values: np.round(values.astype(float), 3)  # noqa: E731
    traces = [
        cells,
        line(rounded(result.sink_uniform), names, CHANCE, "even attention on the first", hovertemplate=share, **beside),
        line(rounded(result.sink[head]), names, WARM, "weight on the first token", hovertemplate=share, **beside),
        line(rounded(result.entropy[head]), names, HERE, "entropy (even: 1)", hovertemplate=share, **beside),
    ]
    ticks = {"type": "category", "nticks": LABELS, "tickfont": {"size": 12}, "showgrid": False}
    x = {"title": "looked at (key)", **ticks, "range": [-0.5, n - 0.5], "tickangle": -90, "domain": [0, 0.74]}
    y = {"title": "looking (query)", **ticks, "range": [n - 0.5, -0.5]}
    x2 = {"title": {"text": "share"}, "range": [-0.04, 1.04], "domain": [0.79, 1], "tickvals": [0, 0.5, 1], "zeroline": False, "anchor": "y"}
    title = f"How much each token looks at each {'earlier one' if result.causal else 'other'}, head {head}"
    height = max(420, min(760, 160 + 24 * n))
    return figure(height, title, x, y, traces, xaxis2=x2, margin={**MARGIN, "l": 110, "t": 76, "b": 110})


def block_maxima(A: np.ndarray, side: int) -> np.ndarray:
    """Return the largest value in each of side x side blocks of A (n, n), as equal in size as whole rows allow."""
    edges = np.arange(side) * len(A) // side
    return np.maximum.reduceat(np.maximum.reduceat(A, edges, axis=0), edges, axis=1)


def _thumb(A: np.ndarray, row: int, column: int, causal: bool, with_scale: bool) -> dict:
    """Return one map within the unit square at (column, row), room for its number above it."""
    width, height = 0.9 / len(A), 0.76 / len(A)
    place = {"x0": column + 0.05 + width / 2, "dx": width, "y0": row + 0.19 + height / 2, "dy": height}
    colours = {"zmin": 0, "zmax": 1, "colorscale": SEQUENTIAL, "showscale": with_scale}
    bar = {"title": {"text": "weight"}, "thickness": 10}
    return {"type": "heatmap", "packed": packed(A, causal), **place, **colours, "colorbar": bar, "hoverinfo": "skip"}


def _targets(result: LayerAttentionResult, rows: int, columns: int) -> dict:
    """Return an invisible cell over each map, which says what is under the pointer and is clicked."""
    n_heads, many = len(result.attention), result.visible > 1
    mean = lambda values: values[:, many].mean(1) if many.any() else np.full(n_heads, np.nan)  # noqa: E731
    grid = np.full((rows * columns, 2), np.nan)
    grid[:n_heads] = np.stack([mean(result.entropy), mean(result.sink)], axis=1)
    heads = [{"head": h, "entropy": f"{grid[h, 0]:.2f}", "sink": f"{grid[h, 1]:.2f}"} if h < n_heads else None for h in range(rows * columns)]
    hover = "head %{customdata.head}<br>entropy %{customdata.entropy}, first token %{customdata.sink}<extra></extra>"
    return {
        "type": "heatmap",
        "z": [[0 if h < n_heads else None for h in range(r * columns, (r + 1) * columns)] for r in range(rows)],
        "customdata": [heads[r * columns : (r + 1) * columns] for r in range(rows)],
        "x0": 0.5,
        "y0": 0.5,
        "colorscale": [[0, CLEAR], [1, CLEAR]],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": hover,
    }
