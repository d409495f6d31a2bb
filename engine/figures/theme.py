"""What all figures share: colours that hold on white and on near-black, margins, axes, the chance band.

A figure is built in one call from its traces and axes, and plotly does not check it: a slider moves while somebody looks.
A test has plotly check one of each.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

HERE = "#2f7fd6"
WARM = "#d9742b"
SERIES = ("#d9742b", "#b09a1f", "#2a9d6f", "#7fae2e", "#8e6bd6", "#2f7fd6", "#c2589f", "#35aebd")
"""Eight that can be told apart; a dash beside each helps those who see fewer colours."""
DASHES = ("solid", "dot", "dash", "longdash", "dashdot", "solid", "longdashdot", "dash")
CHANCE = "#8a8f98"
GREEN = "#2e9e6b"
PALETTE = (HERE, WARM, GREEN, "#b560c4", "#c9a227", "#d64f5f")
CHANCE_FILL = "rgba(138, 143, 152, 0.25)"
SEQUENTIAL = "Viridis"
DIVERGING = "RdBu"
FONT_SIZE = 14
CLEAR = "rgba(0,0,0,0)"
TITLE = {"font": {"size": FONT_SIZE + 2}, "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 4}}
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "xanchor": "left", "font": {"size": FONT_SIZE - 1}}
MARGIN = {"l": 60, "r": 16, "t": 54, "b": 48}


def figure(height: int, title: str, x: str | dict, y: str | dict, traces: Sequence[dict] = (), **layout) -> go.Figure:
    """Return a figure with a title, the legend above the plot, and no background of its own.

    ``x`` and ``y``: the axis title, or the axis with ``title`` in it as text; ``traces``: plotly traces as plain data.
    """
    frame = {
        "height": height,
        "template": {},  # none: go.Figure would add seven kilobytes of its default
        "title": {"text": title, **TITLE},
        "margin": MARGIN,
        "font": {"size": FONT_SIZE},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "legend": LEGEND,
        "hovermode": "closest",
        "dragmode": "zoom",
        "xaxis": _axis(x),
        "yaxis": _axis(y),
        **layout,
    }
    return go.Figure({"data": list(traces), "layout": frame}, _validate=False)


def as_json(fig: go.Figure) -> dict[str, str]:
    """Return a figure's ``traces`` and ``layout`` as JSON, apart: often only one of them has changed."""
    whole = fig.to_dict()
    return {"traces": to_json_plotly(whole["data"]), "layout": to_json_plotly(whole["layout"])}


def line(x, y, colour: str, name: str, **trace) -> dict:
    """Return a line; ``markers=True`` puts a point on every value."""
    mode = "lines+markers" if trace.pop("markers", False) else "lines"
    style = {"color": colour, "width": 3} if colour != CHANCE else {"color": colour, "dash": "dot"}
    return {"type": "scatter", "x": x, "y": y, "mode": mode, "line": style, "name": name, **trace}


def band(x, low, high, name: str) -> dict:
    """Return the region between low and high, each (n,), shaded in the colour of chance."""
    x, low, high = (np.asarray(a, dtype=float) for a in (x, low, high))
    return {
        "type": "scatter",
        "x": np.concatenate([x, x[::-1]]),
        "y": np.concatenate([high, low[::-1]]),
        "fill": "toself",
        "fillcolor": CHANCE_FILL,
        "line": {"width": 0},
        "mode": "lines",
        "name": name,
        "hoverinfo": "skip",
    }


def safe_label(text: str) -> str:
    """Return text that plotly shows as it is: its small markup language sees no tag and no entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _axis(axis: str | dict) -> dict:
    axis = {"title": axis} if isinstance(axis, str) else axis
    return {"zeroline": False, **axis, "title": {"text": axis["title"], "font": {"size": FONT_SIZE}}}
