"""Pictures of what feed-forward layers cost: arithmetic by part, widths that models chose, and the roofline."""

import numpy as np
import plotly.graph_objects as go

from engine.ffn_cost import CostResult
from engine.ffn_roofline import PUBLISHED, Machine
from engine.figures.theme import CHANCE, HERE, MARGIN, PALETTE, WARM, figure, line, safe_label

HIGH_LEGEND = {**MARGIN, "t": 120}
TERA = 1e12


def arithmetic(result: CostResult, context: int) -> go.Figure:
    """Return each part's share of the operations for one token as the sequence grows."""
    total = sum(result.flops.values())
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": result.contexts,
            "y": counts / total,
            "stackgroup": "parts",
            "line": {"width": 0.5, "color": colour},
            "fillcolor": colour,
            "name": part,
            "hovertemplate": f"{part}<br>%{{x}} tokens: %{{y:.1%}}<extra></extra>",
        }
        for (part, counts), colour in zip(result.flops.items(), PALETTE, strict=False)
    ]
    mark = {"type": "line", "x0": context, "x1": context, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": "#fff", "width": 2, "dash": "dot"}}
    ticks = [int(n) for n in result.contexts[1::3]]
    span = [float(np.log10(result.contexts[0])), float(np.log10(result.contexts[-1]))]
    x = {"title": "tokens in the sequence", "type": "log", "range": span, "tickvals": ticks, "ticktext": [_short(n) for n in ticks]}
    y = {"title": "share of the operations", "range": [0, 1], "tickformat": ".0%"}
    return figure(420, f"{result.name}: arithmetic for one token", x, y, traces, shapes=[mark], margin=HIGH_LEGEND)


def widths(result: CostResult) -> go.Figure:
    """Return where published models lie: width over d_model, and parameters of a layer that one token passes over d_model^2."""
    points = {
        "type": "scatter",
        "mode": "markers+text",
        "x": result.ratios,
        "y": result.per_square,
        "text": [safe_label(name) for name in result.names],
        "textposition": [
            "top left",
            "bottom center",
            "top right",
            "bottom right",
            "middle right",
            "middle left",
            "middle left",
            "bottom left",
            "top center",
        ][: len(result.names)],
        "textfont": {"size": 12},
        "marker": {"size": 11, "color": [WARM if name == result.name else HERE for name in result.names]},
        "hovertemplate": "%{text}<br>ratio %{x:.3f}<br>%{y:.2f} d_model²<extra></extra>",
        "showlegend": False,
    }
    ends = [np.array([1.2, 16]), np.array([1.2, 16])]
    lines = [
        line(ends[0], 2 * ends[0], CHANCE, "plain, 2 matrices", hoverinfo="skip"),
        line(ends[1], 3 * ends[1], CHANCE, "gated, 3 matrices", hoverinfo="skip", opacity=0.6),
    ]
    level = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 8, "y1": 8, "line": {"color": WARM, "width": 1}}
    said = {"text": "8: plain 4, gated 8/3", "xref": "paper", "x": 1, "y": np.log10(8), "xanchor": "right", "yanchor": "bottom", "showarrow": False}
    x = {
        "title": "units that a token passes / d<sub>model</sub>",
        "type": "log",
        "range": [np.log10(1.2), np.log10(16)],
        "tickvals": [1.5, 2, 8 / 3, 4, 8, 16],
    }
    x["ticktext"] = ["1.5", "2", "8/3", "4", "8", "16"]
    y = {"title": "parameters / d<sub>model</sub>²", "type": "log", "range": [np.log10(4), np.log10(50)], "tickvals": [4, 8, 16, 32]}
    return figure(420, "Four times, eight thirds, and what models chose", x, y, [*lines, points], shapes=[level], annotations=[said])


def roofline(result: CostResult, machine: Machine | None, batch: int) -> go.Figure:
    """Return attainable speed against operations per byte: published accelerators, this machine with its measured layer."""
    reach = np.logspace(-1, 4, 200)
    traces = []
    for (name, (peak, bandwidth)), colour in zip(PUBLISHED.items(), PALETTE[2:], strict=False):
        traces.append(line(reach, np.minimum(peak, reach * bandwidth) / TERA, colour, name, hovertemplate=_ROOF))
    if machine:
        here = f"{machine.label}, measured {machine.when} UTC"
        traces.append(line(reach, np.minimum(machine.peak, reach * machine.bandwidth) / TERA, HERE, here, hovertemplate=_ROOF))
        points = {"type": "scatter", "mode": "markers", "x": machine.intensity, "y": machine.reached / TERA, "marker": {"size": 10, "color": HERE}}
        texts = [f"batch {n}" for n in machine.batches]
        hover = "%{text}<br>%{y:.3f} TFLOP/s<extra></extra>"
        traces.append({**points, "name": "a layer on it, batches 1 to 256", "text": texts, "hovertemplate": hover})
    at = float(np.interp(np.log2(batch), np.log2(result.batches), result.intensity))
    mark = {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": WARM, "width": 2}}
    said = {
        "text": f"{result.name}, batch {batch}",
        "x": np.log10(at),
        "yref": "paper",
        "y": 0.02,
        "xanchor": "left",
        "xshift": 5,
        "showarrow": False,
    }
    x = {"title": "operations per byte", "type": "log", "range": [-1, 4], "tickvals": [0.1, 1, 10, 100, 1000, 10000], "tickformat": "~s"}
    y = {"title": "TFLOP/s attainable", "type": "log", "range": [-3.2, 3.6], "tickvals": [0.001, 0.01, 0.1, 1, 10, 100, 1000], "tickformat": "~g"}
    return figure(480, "Is a layer limited by memory or by arithmetic?", x, y, traces, shapes=[mark], annotations=[said], margin={**MARGIN, "t": 140})


_ROOF = "%{x:.3g} operations per byte<br>%{y:.3g} TFLOP/s<extra></extra>"


def _short(n: int) -> str:
    return f"{n // 1024}k" if n >= 1024 else str(n)
