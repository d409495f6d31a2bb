"""Pictures of the head-spectrum lab: the map, one head's spectrum, its energy, its attention."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, HERE, SEQUENTIAL, WARM, add_band, figure, safe_label
from engine.spectra import AttentionResult, ChanceResult, SpectraResult

NAMES = {"ov": "W<sub>OV</sub>", "qk": "W<sub>QK</sub>"}
CELL_TEXT_LIMIT = 400


def head_map(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return the layer x head map of effective rank; the chosen head is outlined. Each cell's click names its layer and head."""
    ranks = result.of(circuit, "effective_rank")
    fig = figure(350, f"Effective rank of {NAMES[circuit]}, every head", "head", "layer")
    where = [[{"layer": y, "head": x} for x in range(result.n_heads)] for y in range(result.n_layers)]
    fig.add_heatmap(
        z=ranks,
        customdata=where,
        zmin=0,
        zmax=result.d_head,
        colorscale=SEQUENTIAL,
        xgap=3,
        ygap=3,
        texttemplate="%{z:.1f}" if ranks.size <= CELL_TEXT_LIMIT else None,
        hovertemplate="layer %{y}, head %{x}<br>effective rank %{z:.2f}<extra></extra>",
        colorbar=_colorbar(result.d_head, chance.effective_rank),
    )
    fig.add_shape(type="rect", x0=head - 0.5, x1=head + 0.5, y0=layer - 0.5, y1=layer + 0.5, line={"color": WARM, "width": 4})
    fig.update_xaxes(**_ticks(result.n_heads), range=[-0.6, result.n_heads - 0.4], showgrid=False)
    fig.update_yaxes(**_ticks(result.n_layers), range=[result.n_layers - 0.4, -0.6], showgrid=False)
    return fig


def spectrum(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return singular values of one head on a log axis over the band that chance gives at the same factor norms.

    The axes are those of all heads of the model together, so nothing moves but the curve.
    """
    values, scale = result.of(circuit, "singular_values"), result.of(circuit, "scale")
    index = np.arange(1, result.d_head + 1)
    fig = figure(350, f"Singular values of {NAMES[circuit]}, layer {layer}, head {head}", "direction", "singular value")
    here = scale[layer, head]
    add_band(fig, index, here * chance.low, here * chance.high, "chance, 5 to 95 %")
    fig.add_scatter(x=index, y=here * chance.median, mode="lines", line={"color": CHANCE, "dash": "dot"}, showlegend=False)
    fig.add_scatter(
        x=index,
        y=_positive(values[layer, head]),
        mode="lines+markers",
        line={"color": HERE, "width": 3},
        name="this head",
        hovertemplate="direction %{x}<br>singular value %{y:.4g}<extra></extra>",
    )
    shown = np.concatenate([_positive(values).ravel(), (scale[..., None] * chance.low).ravel(), (scale[..., None] * chance.high).ravel()])
    low, high = np.nanmin(np.maximum(shown, np.nanmax(shown) * 1e-8)), np.nanmax(shown)
    fig.update_yaxes(type="log", range=[np.log10(low) - 0.1, np.log10(high) + 0.1], exponentformat="power", dtick="D2" if high / low < 1000 else 1)
    fig.update_xaxes(range=[0, result.d_head + 1])
    return fig


def energy_curve(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return cumulative energy of one head beside chance, with lines at 90 and 99 %."""
    from engine.linalg import cumulative_energy

    index = np.arange(1, result.d_head + 1)
    values = cumulative_energy(result.of(circuit, "singular_values")[layer, head])
    fig = figure(350, f"Energy of {NAMES[circuit]}, layer {layer}, head {head}", "directions kept, k", "share of energy E<sub>k</sub>")
    fig.add_scatter(x=index, y=chance.energy_median, mode="lines", line={"color": CHANCE, "dash": "dot"}, name="chance, median")
    fig.add_scatter(
        x=index,
        y=values,
        mode="lines+markers",
        line={"color": HERE, "width": 3},
        name="this head",
        hovertemplate="%{x} directions<br>%{y:.1%} of the energy<extra></extra>",
    )
    for share in (0.9, 0.99):
        fig.add_hline(y=share, line={"color": WARM, "width": 1}, annotation_text=f"{share:.0%}", annotation_position="bottom right")
    fig.update_yaxes(range=[0, 1.03], tickformat=".0%")
    fig.update_xaxes(range=[0, result.d_head + 1])
    return fig


def attention(result: AttentionResult) -> go.Figure:
    """Return one head's attention on a prompt: a row per query token, a column per key token, rows summing to 1."""
    n = len(result.labels)
    fig = figure(
        max(380, min(720, 120 + 24 * n)),
        f"How much each token looks at each {'earlier one' if result.causal else 'other'}",
        "looked at (key)",
        "looking (query)",
    )
    seen = np.tri(n, dtype=bool) if result.causal else np.ones((n, n), dtype=bool)
    weights = np.where(seen, np.round(result.attention, 4), np.nan)
    labels = [safe_label(label) for label in result.labels]
    fig.add_heatmap(
        z=weights,
        zmin=0,
        zmax=1,
        colorscale=SEQUENTIAL,
        hoverongaps=False,
        customdata=[[f"{labels[i]!s} → {labels[j]!s}" for j in range(n)] for i in range(n)] if n <= 48 else None,
        hovertemplate=("%{customdata}<br>" if n <= 48 else "query %{y}, key %{x}<br>") + "weight %{z:.3f}<extra></extra>",
        colorbar={"title": {"text": "weight"}, "thickness": 14},
    )
    every = max(1, n // 40)
    ticks = {"tickmode": "array", "tickvals": list(range(0, n, every)), "ticktext": labels[::every], "showgrid": False}
    fig.update_xaxes(**ticks, tickangle=-60)
    fig.update_yaxes(**ticks, autorange="reversed")
    fig.update_layout(margin={"l": 110, "b": 110})
    return fig


def _ticks(n: int) -> dict:
    step = max(1, -(-n // 16))
    return {"tickmode": "linear", "tick0": 0, "dtick": step}


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
