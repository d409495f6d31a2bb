"""Pictures of stacks at initialisation: what is left of signal, difference and gradient, and the Jacobian's spectrum by depth."""

import numpy as np
import plotly.graph_objects as go

from engine.depth import DepthResult, log10
from engine.figures.theme import CHANCE, HERE, PALETTE, WARM, figure, line

LEVELS = (2, 4, 12, 28, 48, 100, 310)
TINT = {HERE: "rgba(47, 127, 214, 0.2)", WARM: "rgba(217, 116, 43, 0.2)", PALETTE[2]: "rgba(46, 158, 107, 0.2)"}


def course(result: DepthResult) -> go.Figure:
    """Return signal, difference of two inputs and gradient by depth as powers of ten: medians, and all seeds as a band."""
    signal = result.signal / result.signal[:, :1]
    named = (("signal", signal, HERE), ("difference of two inputs", result.difference, WARM), ("gradient", result.gradient, PALETTE[2]))
    traces = [_all_seeds(values, colour) for _, values, colour in named]
    depth = np.arange(result.depth + 1)
    traces += [line(depth, np.median(log10(v), 0), c, name, line=_width(c, i)) for i, (name, v, c) in enumerate(named)]
    return _powers(380, "What is left, block by block", "blocks passed", result.depth, [log10(v) for _, v, _ in named], traces)


def weight_gradients(result: DepthResult) -> go.Figure:
    """Return the norm of every block's weight gradient in the first network before and after clipping: one factor for all."""
    depth = np.arange(1, result.depth + 1)
    before, after = (log10(values[0]) for values in (result.weight_gradient, result.clipped))
    traces = [line(depth, before, CHANCE, "before clipping"), line(depth, after, HERE, "after")]
    return _powers(330, "Gradient of every block's weights, first network", "block", result.depth, [before, after], traces)


def spectrum(result: DepthResult) -> go.Figure:
    """Return the largest, the middle and the smallest singular value of the Jacobian by depth, as powers of ten."""
    values = log10(np.maximum(result.singular_values, result.singular_values[..., :1] * 1e-17))
    columns = (("largest", 0, HERE), ("middle", result.width // 2, PALETTE[2]), ("smallest", -1, WARM))
    traces = [line(result.depths, np.median(values[..., i], 0), c, name, line=_width(c, k)) for k, (name, i, c) in enumerate(columns)]
    return _powers(330, "Singular values of the whole Jacobian", "blocks passed", result.depth, [values[..., i] for _, i, _ in columns], traces)


def ranks(result: DepthResult) -> go.Figure:
    """Return the energy effective rank of the Jacobian by depth, every seed and the median."""
    traces = [line(result.depths, rank, CHANCE, "seeds", showlegend=i == 0, opacity=0.6) for i, rank in enumerate(result.effective_rank)]
    traces += [line(result.depths, np.median(result.effective_rank, 0), HERE, "median", markers=True)]
    x = {"title": "blocks passed", "range": [0, result.depth + 1]}
    return figure(330, "Effective rank of the whole Jacobian", x, {"title": f"of {result.width}", "range": [0, result.width * 1.03]}, traces)


def _width(colour: str, place: int) -> dict:
    """Return a line that stays visible under the ones drawn after it, where they coincide."""
    return {"color": colour, "width": (8, 4.5, 2)[place]}


def _all_seeds(values: np.ndarray, colour: str) -> dict:
    low, high = log10(values).min(0), log10(values).max(0)
    x = np.arange(values.shape[1])
    shape = {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]]), "fill": "toself", "fillcolor": TINT[colour]}
    return {"type": "scatter", **shape, "line": {"width": 0}, "mode": "lines", "hoverinfo": "skip", "showlegend": False}


def _powers(height: int, title: str, across: str, depth: int, shown: list[np.ndarray], traces: list) -> go.Figure:
    """Return a figure whose y axis holds powers of ten, its ends taken from a few levels, so that it rarely moves."""
    far = max(float(np.abs(values).max()) for values in shown)
    end = next((level for level in LEVELS if level >= far), far)
    every = {2: 1, 4: 1, 12: 4, 28: 7, 48: 12, 100: 25}.get(end, 50)
    ticks = [power for power in range(-4 * every, 4 * every + 1, every) if abs(power) <= end] if end != 310 else list(range(-300, 301, 100))
    y = {
        "title": "",
        "range": [-1.04 * end, 1.04 * end],
        "tickvals": ticks,
        "ticktext": [f"10<sup>{power}</sup>" if power else "1" for power in ticks],
    }
    return figure(height, title, {"title": across, "range": [0, depth + 1]}, y, traces)
