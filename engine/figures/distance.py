"""Pictures of W_QK over distance."""

import numpy as np
import plotly.graph_objects as go

from engine.distance import PARTS, DistanceResult
from engine.figures.theme import CHANCE, GREEN, HERE, MARGIN, WARM, band, figure, line

TITLES = {
    "effective_rank": "Effective rank of W<sub>QK</sub>(Δ)",
    "sigma_1": "Largest singular value of W<sub>QK</sub>(Δ)",
    "frobenius": "Size |W<sub>QK</sub>(Δ)|<sub>F</sub>",
}
COLOURS = {"all": HERE, "slow": WARM, "fast": GREEN}


def distance_curves(result: DistanceResult, what: str = "effective_rank") -> go.Figure:
    """Return one measure over the distance, all, slow and fast dimensions apart, over the chance band of the whole matrix.

    ``what``: effective_rank, sigma_1 or frobenius. The distance 0 stands at the left end of the logarithmic axis.
    """
    values, chance = getattr(result, what), getattr(result, f"{what}_chance")
    at = np.maximum(result.deltas.astype(float), 0.5)
    ends = at[[0, -1]]
    low, mean, high = chance[0]
    hover = "%{customdata} tokens back<br>%{y:.4g}<extra>%{fullData.name}</extra>"
    traces = [band(ends, [low] * 2, [high] * 2, "chance, 5 to 95 %"), line(ends, [mean] * 2, CHANCE, "chance", showlegend=False)]
    for i, part in enumerate(PARTS):
        if result.dims[i]:
            name = f"{part} ({result.dims[i]})"
            traces.append(line(at, values[i], COLOURS[part], name, markers=True, customdata=result.deltas, hovertemplate=hover))
    marks = [0.5, *(10.0**k for k in range(int(np.log10(ends[1])) + 1))]
    x = {"title": "tokens back from query to key, Δ", "type": "log", "range": np.log10([0.4, ends[1] * 1.2]).tolist()}
    x |= {"tickvals": marks, "ticktext": ["0", *(f"{int(m)}" for m in marks[1:])]}
    top = float(result.dims[0]) if what == "effective_rank" else 1.1 * float(max(values.max(), high))
    return figure(370, TITLES[what], x, {"title": "", "range": [0, top]}, traces, margin={**MARGIN, "t": 84})
