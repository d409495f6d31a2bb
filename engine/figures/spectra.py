"""Pictures of the head-spectrum lab: the map, one head's spectrum, its energy, its attention."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, HERE, MARGIN, SEQUENTIAL, WARM, band, figure, line, safe_label
from engine.linalg import cumulative_energy
from engine.spectra import AttentionResult, ChanceResult, SpectraResult

NAMES = {"ov": "W<sub>OV</sub>", "qk": "W<sub>QK</sub>"}
CELL_TEXT_LIMIT = 400
PAIR_TEXT_LIMIT = 48


def head_map(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return the layer x head map of effective rank; the chosen head is outlined. Each cell's click names its layer and head."""
    ranks = result.of(circuit, "effective_rank")
    cells = {
        "type": "heatmap",
        "z": ranks,
        "customdata": [[{"layer": y, "head": x} for x in range(result.n_heads)] for y in range(result.n_layers)],
        "zmin": 0,
        "zmax": result.d_head,
        "colorscale": SEQUENTIAL,
        "xgap": 3,
        "ygap": 3,
        "texttemplate": "%{z:.1f}" if ranks.size <= CELL_TEXT_LIMIT else None,
        "hovertemplate": "layer %{y}, head %{x}<br>effective rank %{z:.2f}<extra></extra>",
        "colorbar": _colorbar(result.d_head, chance.effective_rank),
    }
    box = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
    x = {"title": "head", **_ticks(result.n_heads), "range": [-0.6, result.n_heads - 0.4], "showgrid": False}
    y = {"title": "layer", **_ticks(result.n_layers), "range": [result.n_layers - 0.4, -0.6], "showgrid": False}
    outline = {"type": "rect", **box, "line": {"color": WARM, "width": 4}}
    return figure(350, f"Effective rank of {NAMES[circuit]}, every head", x, y, [cells], shapes=[outline])


def spectrum(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return singular values of one head on a log axis over the band that chance gives at the same factor norms.

    The axes are those of all heads of the model together, so nothing moves but the curve.
    """
    values, scale = result.of(circuit, "singular_values"), result.of(circuit, "scale")
    index, here = np.arange(1, result.d_head + 1), scale[layer, head]
    hover = "direction %{x}<br>singular value %{y:.4g}<extra></extra>"
    traces = [
        band(index, here * chance.low, here * chance.high, "chance, 5 to 95 %"),
        line(index, here * chance.median, CHANCE, "chance, median", showlegend=False),
        line(index, _positive(values[layer, head]), HERE, "this head", markers=True, hovertemplate=hover),
    ]
    shown = np.concatenate([_positive(values).ravel(), *((scale[..., None] * edge).ravel() for edge in (chance.low, chance.high))])
    high = np.nanmax(shown)
    low = np.nanmin(np.maximum(shown, high * 1e-8))
    ends = [np.log10(low) - 0.1, np.log10(high) + 0.1]
    y = {"title": "singular value", "type": "log", "range": ends, "exponentformat": "power", "dtick": "D2" if high / low < 1000 else 1}
    x = {"title": "direction", "range": [0, result.d_head + 1]}
    view = f"{result.sha256} {circuit} {result.delta} {result.fold}"  # a zoom lasts as long as the axes do
    return figure(350, f"Singular values of {NAMES[circuit]}, layer {layer}, head {head}", x, y, traces, uirevision=view)


def energy_curve(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return cumulative energy of one head beside chance, with lines at 90 and 99 %."""
    index = np.arange(1, result.d_head + 1)
    values = cumulative_energy(result.of(circuit, "singular_values")[layer, head])
    hover = "%{x} directions<br>%{y:.1%} of the energy<extra></extra>"
    traces = [line(index, chance.energy_median, CHANCE, "chance, median"), line(index, values, HERE, "this head", markers=True, hovertemplate=hover)]
    levels, across = (0.9, 0.99), {"xref": "paper", "x0": 0, "x1": 1}
    shapes = [{"type": "line", **across, "y0": share, "y1": share, "line": {"color": WARM, "width": 1}} for share in levels]
    texts = [
        {"text": f"{share:.0%}", "xref": "paper", "x": 1, "y": share, "xanchor": "right", "yanchor": "top", "showarrow": False} for share in levels
    ]
    x = {"title": "directions kept, k", "range": [0, result.d_head + 1]}
    y = {"title": "share of energy E<sub>k</sub>", "range": [0, 1.03], "tickformat": ".0%"}
    return figure(350, f"Energy of {NAMES[circuit]}, layer {layer}, head {head}", x, y, traces, shapes=shapes, annotations=texts)


def attention(result: AttentionResult) -> go.Figure:
    """Return one head's attention on a prompt: a row per query token, a column per key token, rows summing to 1."""
    n = len(result.labels)
    labels = [safe_label(label) for label in result.labels]
    seen = np.tri(n, dtype=bool) if result.causal else np.ones((n, n), dtype=bool)
    pairs = n <= PAIR_TEXT_LIMIT
    cells = {
        "type": "heatmap",
        "z": np.where(seen, np.round(result.attention, 4), np.nan),
        "zmin": 0,
        "zmax": 1,
        "colorscale": SEQUENTIAL,
        "hoverongaps": False,
        "customdata": [[f"{query} → {key}" for key in labels] for query in labels] if pairs else None,
        "hovertemplate": ("%{customdata}" if pairs else "query %{y}, key %{x}") + "<br>weight %{z:.3f}<extra></extra>",
        "colorbar": {"title": {"text": "weight"}, "thickness": 14},
    }
    every = max(1, n // 40)
    ticks = {"tickmode": "array", "tickvals": list(range(0, n, every)), "ticktext": labels[::every], "showgrid": False}
    x, y = (
        {"title": "looked at (key)", **ticks, "tickangle": -90, "tickfont": {"size": 12}},
        {"title": "looking (query)", **ticks, "autorange": "reversed"},
    )
    title = f"How much each token looks at each {'earlier one' if result.causal else 'other'}"
    return figure(max(380, min(720, 120 + 24 * n)), title, x, y, [cells], margin={**MARGIN, "l": 110, "b": 110})


def _ticks(n: int) -> dict:
    return {"tickmode": "linear", "tick0": 0, "dtick": max(1, -(-n // 16))}


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)


def _colorbar(d_head: int, chance_rank: float) -> dict:
    """Return a colour bar with 0, the largest possible rank, and where chance lies."""
    return {
        "title": {"text": "effective<br>rank"},
        "thickness": 14,
        "tickvals": [0, d_head / 2, chance_rank, d_head],
        "ticktext": ["0", f"{d_head / 2:g}", f"chance {chance_rank:.1f}", f"{d_head}"],
    }
