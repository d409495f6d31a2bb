"""Pictures of what feed-forward layers cost: arithmetic by part, widths that models chose, and the roofline."""

import numpy as np
import plotly.graph_objects as go

from engine.ffn_cost import CostResult
from engine.ffn_roofline import PUBLISHED, Machine
from engine.figures.theme import CHANCE, HERE, MARGIN, PALETTE, WARM, figure, line, safe_label

HIGH_LEGEND = {**MARGIN, "t": 120}
TERA = 1e12
SIDES = {"GPT-2": "bottom right", "Llama-2-7B": "top left", "Llama-3-8B": "middle right", "Qwen3-8B": "middle right", "Gemma-7B": "middle left"}
SIDES |= {"Mixtral-8x7B": "bottom left", "DeepSeek-V3": "bottom right"}


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
    places: dict[tuple[float, float], list[str]] = {}
    for name, *place in zip(result.names, result.ratios, result.per_square, strict=True):
        places.setdefault(tuple(map(float, place)), []).append(name)
    chosen = [result.name in names for names in places.values()]
    points = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "text": [safe_label(", ".join(names)) for names in places.values()],
        "textposition": [SIDES.get(names[0], "top center") for names in places.values()],
        "textfont": {"size": 12},
        "marker": {"size": 11, "color": [WARM if here else HERE for here in chosen]},
        "hovertemplate": "%{text}<br>ratio %{x:.3f}<br>parameters %{y:.2f} d²<extra></extra>",
        "showlegend": False,
    }
    span = np.array([0.4, 40])
    lines = [
        line(span, 2 * span, CHANCE, "plain, 2 matrices", hoverinfo="skip"),
        {**line(span, 3 * span, CHANCE, "gated, 3 matrices", hoverinfo="skip"), "line": {"color": CHANCE, "dash": "dash"}},
    ]
    level = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 8, "y1": 8, "line": {"color": WARM, "width": 1}}
    said = {"text": "8: plain 4, gated 8/3", "xref": "paper", "x": 1, "y": np.log10(8), "xanchor": "right", "yanchor": "bottom", "showarrow": False}
    high = max(10.0, 1.3 * float(result.ratios.max()))  # only a width of one's own can lie beyond the published ones
    low = min(1.5, 0.8 * float(result.ratios.min()))
    ticks = {"tickvals": [0.5, 1, 8 / 3, 4, 8, 16, 32], "ticktext": ["0.5", "1", "8/3", "4", "8", "16", "32"]}
    x = {"title": "units that a token passes / d", "type": "log", "range": [np.log10(low), np.log10(high)], **ticks}
    y = {"title": "parameters / d²", "type": "log", "range": [np.log10(2.4 * low), np.log10(3.6 * high)], "tickvals": [1, 2, 4, 8, 16, 32, 64]}
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
    x = {"title": "operations per byte", "type": "log", "range": [-1, 4], "tickvals": [0.1, 1, 10, 100, 1000], "tickformat": "~g"}
    y = {"title": "TFLOP/s attainable", "type": "log", "range": [-3.2, 3.6], "tickvals": [0.001, 0.01, 0.1, 1, 10, 100, 1000], "tickformat": "~g"}
    return figure(480, "Is a layer limited by memory or by arithmetic?", x, y, traces, shapes=[mark], annotations=[said], margin={**MARGIN, "t": 110})


_ROOF = "%{x:.3g} operations per byte<br>%{y:.3g} TFLOP/s<extra></extra>"


def _short(n: int) -> str:
    return f"{n // 1024}k" if n >= 1024 else str(n)
