"""Pictures of what feed-forward layers cost: arithmetic by part, widths that models chose, and the roofline."""

import numpy as np
import plotly.graph_objects as go

from engine.ffn_cost import CostResult
from engine.ffn_roofline import PUBLISHED, Machine
from engine.figures.theme import HERE, MARGIN, PALETTE, WARM, figure, line, safe_label

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
    """Return, a row for each published model, its width over d_model and the parameters of a layer that one token passes over d_model^2."""
    order = sorted(range(len(result.names)), key=lambda i: (float(result.ratios[i]), result.names[i] == result.name))
    rows = list(range(len(order)))
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": values[order],
            "y": rows,
            "name": name,
            "marker": {"size": 12, "symbol": symbol, "color": colour},
            "hovertemplate": "%{x:.3f}<extra></extra>",
        }
        for values, name, symbol, colour in (
            (result.ratios, "units that a token passes / d", "circle", HERE),
            (result.per_square, "parameters of a layer / d²", "diamond", WARM),
        )
    ]
    marks = [
        {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": colour, "width": 1.5, "dash": "dot"}}
        for at, colour in ((8 / 3, HERE), (4, HERE), (8, WARM))
    ]
    names = [safe_label(result.names[i]) for i in order]
    shown = [f"<b>{name}</b>" if result.names[i] == result.name else name for i, name in zip(order, names, strict=True)]
    high = max(64.0, 1.3 * float(result.per_square.max()))  # only a width of one's own can lie beyond the published ones
    low = min(1.8, 0.8 * float(result.ratios.min()))
    ticks = {"tickvals": [0.5, 1, 8 / 3, 4, 8, 16, 32, 64], "ticktext": ["0.5", "1", "8/3", "4", "8", "16", "32", "64"], "tickangle": 0}
    x = {"title": "over d, over d²; dotted: 8/3, 4, 8", "type": "log", "range": [np.log10(low), np.log10(high)], **ticks}
    y = {"title": "", "tickvals": rows, "ticktext": shown, "tickfont": {"size": 13}, "range": [-0.6, len(rows) - 0.4]}
    x["tickfont"] = {"size": 12}
    margin = {**MARGIN, "l": 108, "t": 96}
    return figure(420, "4, 8/3, and what models chose", x, y, traces, shapes=marks, margin=margin)


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
        "xanchor": "left" if at < 30 else "right",
        "xshift": 5 if at < 30 else -5,
        "showarrow": False,
    }
    x = {"title": "operations per byte", "type": "log", "range": [-1, 4], "tickvals": [0.1, 1, 10, 100, 1000], "tickformat": "~g"}
    y = {"title": "TFLOP/s attainable", "type": "log", "range": [-3.2, 3.6], "tickvals": [0.001, 0.01, 0.1, 1, 10, 100, 1000], "tickformat": "~g"}
    margin = {**MARGIN, "t": 150 if machine else 110}  # on a phone every entry of the legend has a row
    height = 370 + margin["t"]
    return figure(height, "Is a layer limited by memory or by arithmetic?", x, y, traces, shapes=[mark], annotations=[said], margin=margin)


_ROOF = "%{x:.3g} operations per byte<br>%{y:.3g} TFLOP/s<extra></extra>"


def _short(n: int) -> str:
    return f"{n // 1024}k" if n >= 1024 else str(n)
