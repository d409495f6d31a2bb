"""Picture of a smaller cache: what is lost by numbers kept per token."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, HERE, MARGIN, WARM, figure, line
from engine.latent import SharedLatentResult


def latent_curves(result: SharedLatentResult) -> go.Figure:
    """Return errors of keys and values together and of keys alone over the numbers kept per token; the chosen size is marked."""
    both, alone = np.arange(1, 2 * result.n + 1), np.arange(1, result.n + 1)
    hover = "%{x} numbers per token<br>error %{y:.1%}<extra>%{fullData.name}</extra>"
    thin = {"color": HERE, "width": 1.5, "dash": "dash"}
    traces = [
        line(both, np.round(result.chance, 4), CHANCE, "chance (Gaussian weights)", hovertemplate=hover),
        line(both, np.round(result.from_weights, 4), HERE, "keys and values, weights truncated", hovertemplate=hover),
        {**line(both, np.round(result.best, 4), HERE, "best for this prompt", hovertemplate=hover), "line": thin},
        line(alone, np.round(result.keys_from_weights, 4), WARM, "keys alone, weight truncated", hovertemplate=hover),
    ]
    at = {"type": "line", "x0": result.latent, "x1": result.latent, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": CHANCE, "width": 2}}
    x = {"title": f"numbers kept per token, of {2 * result.n} now", "range": [0, 2 * result.n + 1]}
    y = {"title": "relative error", "range": [0, 1.03], "tickformat": ".0%"}
    return figure(380, "Keys and values in a smaller cache", x, y, traces, shapes=[at], margin={**MARGIN, "t": 84})
