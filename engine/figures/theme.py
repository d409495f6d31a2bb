"""What all figures share: colours that hold on white and on near-black, margins, axes, the chance band."""

import numpy as np
import plotly.graph_objects as go

HERE = "#2f7fd6"
WARM = "#d9742b"
CHANCE = "#8a8f98"
CHANCE_FILL = "rgba(138, 143, 152, 0.25)"
SEQUENTIAL = "Viridis"
FONT_SIZE = 14


def figure(height: int, title: str, x_title: str, y_title: str, **layout) -> go.Figure:
    """Return an empty figure with a title, titled axes, the legend above the plot, and no background of its own."""
    fig = go.Figure()
    fig.update_layout(
        height=height,
        template="none",
        title={
            "text": title,
            "font": {"size": FONT_SIZE + 2},
            "x": 0,
            "xref": "container",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 4},
        },
        margin={"l": 60, "r": 16, "t": 54, "b": 48},
        font={"size": FONT_SIZE},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "xanchor": "left", "font": {"size": FONT_SIZE - 1}},
        hovermode="closest",
        dragmode="zoom",
        **layout,
    )
    fig.update_xaxes(title={"text": x_title}, zeroline=False)
    fig.update_yaxes(title={"text": y_title}, zeroline=False)
    return fig


def add_band(fig: go.Figure, x, low, high, name: str) -> None:
    """Shade the region between low and high, both (n,)."""
    x, low, high = (np.asarray(a, dtype=float) for a in (x, low, high))
    fig.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        fill="toself",
        fillcolor=CHANCE_FILL,
        line={"width": 0},
        mode="lines",
        name=name,
        hoverinfo="skip",
    )


def safe_label(text: str) -> str:
    """Return text that plotly shows as it is: its small markup language sees no tag and no entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
