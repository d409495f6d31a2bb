"""Pictures of the head-spectrum lab: the map, one head's spectrum, its energy, its attention."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, DIVERGING, HERE, MARGIN, PALETTE, SEQUENTIAL, WARM, band, figure, line, safe_label
from engine.head_map import HeadScore
from engine.linalg import cumulative_energy
from engine.spectra import AttentionResult, ChanceResult, SpectraResult

NAMES = {"ov": "W<sub>OV</sub>", "qk": "W<sub>QK</sub>"}
CELL_TEXT_LIMIT = 400
PAIR_TEXT_LIMIT = 48
MAP_HEIGHT = 330
Changed = Sequence[tuple[int, int]]
"""Heads that are switched off or cut, as (layer, head)."""


def head_map(score: HeadScore, circuit: str, n_groups: int, layer: int, head: int, changed: Changed = ()) -> go.Figure:
    """Return the layer x head map of a score; the chosen head is outlined, changed heads have a cross in the corner.

    Each cell's click names its layer and head. Lines part the heads that read different keys and values, if heads share them.
    """
    n_layers, n_heads = score.values.shape
    shown = score.values.size <= CELL_TEXT_LIMIT and n_heads <= 16
    cells = {
        "type": "heatmap",
        "z": score.values,
        "customdata": [[{"layer": y, "head": x} for x in range(n_heads)] for y in range(n_layers)],
        "zmin": score.low,
        "zmax": score.high,
        "colorscale": _scale(score),
        "xgap": 3,
        "ygap": 3,
        "texttemplate": f"%{{z:.{score.digits}f}}" if shown else None,
        "hovertemplate": f"layer %{{y}}, head %{{x}}<br>{score.name} %{{z:.{score.digits + 1}f}}{score.unit}<extra></extra>",
        "colorbar": _colorbar(score),
    }
    crosses = {**_marks([h + 0.3 for _, h in changed], [y - 0.3 for y, _ in changed], "x-thin", 9), "showlegend": False, "hoverinfo": "skip"}
    box = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
    size = n_heads // n_groups
    groups = [_between(g * size - 0.5, n_layers) for g in range(1, n_groups)] if size > 1 else []
    x = {"title": "head" + (f" (each {size} share keys and values)" if size > 1 else ""), **_ticks(n_heads)}
    x |= {"range": [-0.6, n_heads - 0.4], "showgrid": False}
    y = {"title": "layer", **_ticks(n_layers), "range": [n_layers - 0.4, -0.6], "showgrid": False}
    outline = {"type": "rect", **box, "line": {"color": WARM, "width": 4}}
    about = {"shapes": [*groups, outline], "meta": {"cursor": [layer, head]}, "uirevision": f"{score.name} {circuit}"}
    return figure(MAP_HEIGHT, _title(score, circuit), x, y, [cells, crosses], **about)


def head_strip(score: HeadScore, circuit: str, layer: int, head: int, changed: Changed = ()) -> go.Figure:
    """Return all heads in the order of a score, highest first, with a line at chance: the map for a phone, or sorted."""
    n_heads = score.values.shape[1]
    order = np.argsort(-score.values, axis=None, kind="stable")
    names, values = [(int(i) // n_heads, int(i) % n_heads) for i in order], score.values.ravel()[order]
    here = names.index((layer, head))
    hover = f"%{{text}}<br>{score.name} %{{y:.{score.digits + 1}f}}{score.unit}<extra></extra>"
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": np.arange(1, len(names) + 1),
        "y": values,
        "text": [f"layer {y}, head {x}" for y, x in names],
        "customdata": [{"layer": y, "head": x} for y, x in names],
        "marker": {"symbol": "square", "size": 9, "color": values, "cmin": score.low, "cmax": score.high, "colorscale": _scale(score)},
        "hovertemplate": hover,
        "showlegend": False,
    }
    crossed = [i for i, name in enumerate(names) if name in set(changed)]
    marks = [
        {**_marks([i + 1 for i in crossed], values[crossed], "x-thin", 13), "name": "changed", "hoverinfo": "skip", "showlegend": bool(crossed)},
        {**_marks([here + 1], [values[here]], "square-open", 17), "name": f"layer {layer}, head {head}", "hoverinfo": "skip"},
    ]
    if score.chance is not None:
        marks.append(line([0, len(names) + 1], [score.chance] * 2, CHANCE, "chance", hoverinfo="skip"))
    room = 0.04 * (score.high - score.low)
    y = {"title": score.name, "range": [score.low - room, score.high + room]}
    x = {"title": "heads, highest first", "range": [0, len(names) + 1], "showgrid": False}
    about = {"hovermode": "x", "meta": {"cursor": [0, here]}, "uirevision": f"{score.name} {circuit} strip"}
    return figure(MAP_HEIGHT, _title(score, circuit), x, y, [points, *marks], **about)


def spectrum(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int, kept: int | None = None) -> go.Figure:
    """Return singular values of one head on a log axis over the band that chance gives at the same factor norms.

    The axes are those of all heads of the model together, so nothing moves but the curve. What lies beyond the ``kept``
    directions is shaded as removed.
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
    removed = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x1": result.d_head + 1, "fillcolor": WARM, "opacity": 0.18, "line": {"width": 0}}
    shapes = [] if kept is None else [{**removed, "x0": kept + 0.5}]
    title = f"Singular values of {NAMES[circuit]}, layer {layer}, head {head}"
    return figure(MAP_HEIGHT, title, x, y, traces, shapes=shapes, uirevision=view)


def overlaid(results: Sequence[SpectraResult], chance: ChanceResult, circuit: str, heads: Changed) -> go.Figure:
    """Return singular values of some heads, each over its largest, so that shapes and not sizes are compared.

    ``results``: one model, or two, the second dashed; a head that the second lacks is left out. Chance is the first model's.
    """
    curves = lambda v: np.maximum(v / v[0], 1e-6) if v[0] > 0 else np.full(len(v), np.nan)  # noqa: E731
    traces = _curves(results, circuit, heads, curves, "direction %{x}<br>%{y:.3f} of the largest")
    index = np.arange(1, results[0].d_head + 1)
    edges = (chance.low / chance.low[0], chance.high / chance.high[0])
    y = {"title": "singular value / the largest", "type": "log", "range": [-3.05, 0.05], "exponentformat": "power", "dtick": 1}
    x = {"title": "direction", "range": [0, max(r.d_head for r in results) + 1]}
    return figure(380, f"Shape of {NAMES[circuit]}", x, y, [band(index, *edges, "chance, 5 to 95 %"), *traces])


def energies(results: Sequence[SpectraResult], chance: ChanceResult, circuit: str, heads: Changed) -> go.Figure:
    """Return cumulative energy of some heads beside chance, with lines at 90 and 99 %; models and heads as in ``overlaid``."""
    traces = _curves(results, circuit, heads, cumulative_energy, "%{x} directions<br>%{y:.1%} of the energy")
    index = np.arange(1, results[0].d_head + 1)
    by_chance = line(index, chance.energy_median, CHANCE, "chance, median")
    levels, across = (0.9, 0.99), {"xref": "paper", "x0": 0, "x1": 1}
    shapes = [{"type": "line", **across, "y0": share, "y1": share, "line": {"color": WARM, "width": 1}} for share in levels]
    at = {"xref": "paper", "x": 1, "xanchor": "right", "yanchor": "top", "showarrow": False}
    texts = [{"text": f"{share:.0%}", "y": share, **at} for share in levels]
    x = {"title": "directions kept, k", "range": [0, max(r.d_head for r in results) + 1]}
    y = {"title": "share of energy E<sub>k</sub>", "range": [0, 1.03], "tickformat": ".0%"}
    return figure(380, f"Energy of {NAMES[circuit]}", x, y, [by_chance, *traces], shapes=shapes, annotations=texts)


def _curves(results: Sequence[SpectraResult], circuit: str, heads: Changed, of: Callable, hover: str) -> list[dict]:
    """Return one line per model and head: a colour per head, a dash per model."""
    traces = []
    for result, dash in zip(results, ("solid", "dash"), strict=False):
        of_model = f"{result.model} " if len(results) > 1 else ""
        values, index = result.of(circuit, "singular_values"), np.arange(1, result.d_head + 1)
        for (layer, head), colour in zip(heads, PALETTE, strict=False):
            if layer < result.n_layers and head < result.n_heads:
                style = {"color": colour, "width": 2.5, "dash": dash}
                text = hover + f"<extra>{safe_label(of_model)}{layer}.{head}</extra>"
                traces.append(line(index, of(values[layer, head]), colour, f"{safe_label(of_model)}{layer}.{head}", line=style, hovertemplate=text))
    return traces


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


def _title(score: HeadScore, circuit: str) -> str:
    of = f" of {NAMES[circuit]}" if score.by_circuit else ""
    return f"{score.name[0].upper()}{score.name[1:]}{of}, every head"


def _scale(score: HeadScore) -> str:
    return DIVERGING if score.low < 0 else SEQUENTIAL


def _marks(x, y, symbol: str, size: int) -> dict:
    """Return points in the warm colour that mark heads without hiding them."""
    marker = {"symbol": symbol, "size": size, "color": WARM, "line": {"color": WARM, "width": 3}}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker}


def _between(x: float, n_layers: int) -> dict:
    """Return the line between two groups of heads."""
    return {"type": "line", "x0": x, "x1": x, "y0": -0.5, "y1": n_layers - 0.5, "line": {"color": CHANCE, "width": 2}}


def _colorbar(score: HeadScore) -> dict:
    """Return a colour bar with both ends of the scale, and where chance lies between them."""
    chance = score.chance
    marks = {score.low: f"{score.low:g}", score.high: f"{score.high:.3g}"}
    if chance is not None:
        near = 0.08 * (score.high - score.low)
        marks = {at: text for at, text in marks.items() if abs(at - chance) > near} | {chance: f"chance {chance:.{score.digits}f}"}
    return {"thickness": 14, "tickvals": list(marks), "ticktext": list(marks.values())}
