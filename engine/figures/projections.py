"""Pictures of the projections lab: what parallel columns cost, what a head reads, four ways to orthogonalise, PCA."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, HERE, MARGIN, PALETTE, SEQUENTIAL, WARM, band, figure, line, safe_label
from engine.projections import (
    AnglesResult,
    AspectResult,
    DragResult,
    EmbeddingResult,
    LossResult,
    ParallelResult,
    RandomResult,
    ReadingResult,
    TrainingResult,
)

GREEN, VIOLET = PALETTE[2:4]
LEAST = 1e-17
POWERS = {"type": "log", "exponentformat": "power"}
METHOD_STYLE = {"classical": WARM, "modified": VIOLET, "Householder": HERE, "Givens": GREEN}
WEIGHT_NAMES = {
    "Q": "W<sub>Q</sub>",
    "K": "W<sub>K</sub>",
    "V": "W<sub>V</sub>",
    "O": "W<sub>O</sub>",
    "down": "W<sub>down</sub>",
    "random": "random W",
}


def doubling(result: DragResult) -> go.Figure:
    """Return |v - s a| and |v - s 2a| over s: two valleys of one depth, the second's bottom at half the s."""
    s = np.linspace(-3, 3, 121)
    far = lambda a: np.linalg.norm(result.v - s[:, None] * a, axis=1)  # noqa: E731
    traces = [line(s, far(result.a), HERE, "along a"), line(s, far(2 * result.a), WARM, "along 2a")]
    y = {"title": "distance from v", "range": [0, 12]}
    return figure(300, "Two ways to count the same line", {"title": "s", "range": [-3, 3]}, y, traces)


def parallel(result: ParallelResult, kappa: int) -> go.Figure:
    """Return the error of three formulas against the condition number on log axes, with the laws eps kappa and eps kappa^2."""
    x, dots = result.condition, {"markers": True, "hovertemplate": "condition %{x:.1e}<br>error %{y:.1e}<extra></extra>"}
    laws = 10.0 ** np.arange(0, 17)
    traces = [
        {**line(laws, np.minimum(result.eps * laws**2, 1e3), CHANCE, "eps κ²"), "line": {"color": CHANCE, "dash": "dash"}},
        line(laws, result.eps * laws, CHANCE, "eps κ"),
        line(x, np.maximum(result.normal, LEAST), WARM, "normal equations", **dots),
        line(x, np.maximum(result.qr, LEAST), HERE, "QR", **dots),
        {**line(x, np.maximum(result.svd, LEAST), VIOLET, "SVD", **dots), "line": {"color": VIOLET, "width": 2, "dash": "dash"}},
    ]
    title = "Error of P while two columns become parallel"
    return figure(400, title, _kappa(), _loss_axis("|P − exact|"), traces, shapes=_at(10.0**kappa, 1))


def shares(result: ReadingResult) -> go.Figure:
    """Return the share of energy inside the subspace for every head of the layer (every layer for W_down), beside chance."""
    n = len(result.shares)
    colours = [WARM if i == result.chosen else HERE for i in range(n)]
    bars = {
        "type": "bar",
        "showlegend": False,
        "x": list(range(n)),
        "y": result.shares,
        "marker": {"color": colours},
        "customdata": [{result.grouped_by: i} for i in range(n)],
        "hovertemplate": result.grouped_by + " %{x}<br>%{y:.1%} kept<extra></extra>",
    }
    x = {"title": result.grouped_by, "range": [-0.6, n - 0.4], "dtick": max(1, -(-n // 16)), "showgrid": False}
    y = {"title": "share of energy", "range": [0, 0.75], "tickformat": ".0%"}
    name = WEIGHT_NAMES[result.weight]
    title = f"Inside what {name} can write, mean over tokens" if result.weight == "O" else f"Kept by {name}, mean over tokens"
    return figure(330, title, x, y, [bars, _chance(n, result.chance)])


def by_token(result: ReadingResult) -> go.Figure:
    """Return the share of each token's energy that the chosen weight keeps, beside chance."""
    n = len(result.labels)
    bars = {
        "type": "bar",
        "showlegend": False,
        "x": list(range(n)),
        "y": result.by_token,
        "marker": {"color": WARM},
        "hovertemplate": "%{y:.1%}<extra></extra>",
    }
    every = max(1, n // 30)
    ticks = {"tickmode": "array", "tickvals": list(range(0, n, every)), "ticktext": [safe_label(label) for label in result.labels][::every]}
    x = {"title": "token", **ticks, "tickangle": -90, "tickfont": {"size": 12}, "showgrid": False}
    y = {"title": "share of energy", "range": [0, 0.75], "tickformat": ".0%"}
    title = f"Token by token, {result.grouped_by} {result.chosen}"
    return figure(330, title, x, y, [bars, _chance(n, result.chance)], margin={**MARGIN, "b": 90})


def twins(result: ReadingResult) -> go.Figure:
    """Return two inputs, entry by entry, above the two outputs of W, which are the same."""
    twin = result.twin
    colours = {"x": HERE, "twin": WARM}
    panels = (("x", "y", (twin.x, twin.twin)), ("x2", "y2", (twin.output, twin.twin_output)))
    traces = []
    for xaxis, yaxis, pair in panels:
        for name, values, colour in zip(("x", "its twin"), pair, colours.values(), strict=True):
            style = {"color": colour, "width": 3 if name == "x" else 1.6, "dash": "solid" if xaxis == "x" or name == "x" else "dash"}
            trace = {"type": "scatter", "mode": "lines", "y": values, "line": style, "name": name, "xaxis": xaxis, "yaxis": yaxis}
            traces.append({**trace, "showlegend": xaxis == "x", "hovertemplate": "entry %{x}<br>%{y:.3g}<extra></extra>"})
    below = {"anchor": "y2", "title": {"text": "entry of the output"}, "range": [-1, len(twin.output)], "zeroline": False}
    second = {"anchor": "x2", "domain": [0, 0.38], "title": {"text": "output"}, "zeroline": False}
    x = {"title": "entry of the input", "range": [-1, len(twin.x)]}
    y = {"title": "input", "domain": [0.6, 1]}
    return figure(480, "Two inputs that W cannot tell apart", x, y, traces, xaxis2=below, yaxis2=second)


def random_shares(result: RandomResult) -> go.Figure:
    """Return how the shares that random vectors keep are spread around r / d."""
    bars = {"type": "histogram", "x": result.shares, "xbins": {"start": 0, "end": 0.2, "size": 0.004}, "marker": {"color": HERE}}
    bars["hovertemplate"] = "%{x}: %{y} vectors<extra></extra>"
    x, y = {"title": "share of energy kept", "range": [0, 0.2], "tickformat": ".0%"}, f"of {len(result.shares)} random vectors"
    return figure(300, f"From {result.d} to {result.r} dimensions", x, y, [bars], shapes=_at(result.r / result.d))


def principal_angles(result: AnglesResult) -> go.Figure:
    """Return the principal angles between what a head reads and what it writes, over the band of random subspaces."""
    index = np.arange(1, result.angles.shape[1] + 1)
    named = zip(("read by Q", "read by K", "read by V"), (GREEN, VIOLET, HERE), result.angles, strict=True)
    hover = {"hovertemplate": "angle %{x}: %{y:.1f}°<extra></extra>"}
    traces = [
        band(index, result.chance_low, result.chance_high, "chance, 5 to 95 %"),
        *(line(index, values, colour, name, **hover) for name, colour, values in named),
    ]
    y = {"title": "degrees", "range": [0, 93], "tickvals": [0, 30, 60, 90]}
    return figure(350, f"Read against written, layer {result.layer}, head {result.head}", {"title": "principal angle"}, y, traces)


def overlap_map(result: AnglesResult) -> go.Figure:
    """Return mean cos^2 between what W_V reads and what W_O writes, layer by head; a click chooses a head."""
    return _map(result, result.overlap, "Read and written by one head: mean cos²", 2 * result.chance_overlap, "overlap", result.chance_overlap)


def projection_map(result: AnglesResult) -> go.Figure:
    """Return |cW^2 - W| / |W| at the best scale c for every head's W_OV: 0 would be a projection."""
    return _map(result, result.at_best_scale, "How far W<sub>OV</sub> is from a projection", 1.0, "distance", result.chance_at_best_scale)


def losses(result: LossResult, kappa: int) -> go.Figure:
    """Return |Q^T Q - I| of the four methods against the condition number."""
    return _methods(result, result.loss, "Orthogonality lost", "|QᵀQ − I|", kappa)


def residuals(result: LossResult, kappa: int) -> go.Figure:
    """Return |A - Q R| / |A| of the four methods against the condition number."""
    return _methods(result, result.residual, "Residual of the factorisation", "|A − QR| / |A|", kappa)


def aspects(result: AspectResult) -> go.Figure:
    """Return condition numbers of random matrices against aspect ratio, wide to tall, with the limit and orthonormal ones."""
    x = np.concatenate([1 / result.aspect[::-1], result.aspect[1:]])
    both = lambda values: np.concatenate([values[::-1], values[1:]])  # noqa: E731
    limit = np.where(np.isinf(both(result.limit)), np.nan, both(result.limit))
    traces = [
        band(x, both(result.low), both(result.high), "10 to 90 %"),
        line(x, both(result.median), HERE, "median", markers=True, hovertemplate="%{x:.2f} : 1<br>condition %{y:.3g}<extra></extra>"),
        {**line(x, limit, CHANCE, "limit, large n"), "connectgaps": False},
        line(x, np.full(len(x), result.orthogonal), GREEN, "orthonormal"),
    ]
    axis = {**POWERS, "title": "rows per column", "tickvals": [1 / 16, 1 / 4, 1, 4, 16], "ticktext": ["1/16", "1/4", "1", "4", "16"]}
    title = f"Gaussian matrices, the shorter side {result.narrow}"
    return figure(360, title, axis, {**POWERS, "title": "condition number", "range": [-0.1, 3.6], "dtick": 1}, traces)


def training(result: TrainingResult) -> go.Figure:
    """Return condition numbers of Fable's attention matrices along its snapshots, medians over layers, beside chance at each shape."""
    named = list(zip(result.names, (HERE, WARM, VIOLET, GREEN), strict=True))
    x = np.maximum(result.step, 50)
    traces = []
    for i, (name, colour) in enumerate(named):
        label = f"{name[0]}<sub>{name[2]}</sub>"
        values = result.condition[:, :, i]
        hover = {"customdata": result.step, "hovertemplate": "step %{customdata}<br>condition %{y:.3g}<extra>" + label + "</extra>"}
        traces.append(line(x, np.median(values, axis=1), colour, label, markers=True, **hover))
        traces.append({**line(x, np.full(len(x), result.chance_median[i]), CHANCE, "chance"), "showlegend": i == 0})
    axis = {"title": "training step", "type": "log", "tickvals": [50, 125, 450, 1000, 3400], "ticktext": ["0", "125", "450", "1000", "3400"]}
    return figure(360, "Fable's attention matrices in training", axis, {**POWERS, "title": "condition number", "range": [0, 5.2], "dtick": 1}, traces)


def pca(result: EmbeddingResult) -> go.Figure:
    """Return the energy of the token embeddings that k directions lose: principal, random, the first coordinates."""
    k = np.arange(result.d_model + 1)
    hover = {"hovertemplate": "%{x} directions<br>%{y:.1%} lost<extra></extra>"}
    traces = [
        line(k, result.random, CHANCE, "random directions", **hover),
        line(k, result.axes, VIOLET, "the first k coordinates", **hover),
        line(k, result.pca, HERE, "PCA, the least possible", **hover),
    ]
    y = {"title": "energy lost", "range": [0, 1.03], "tickformat": ".0%"}
    title = f"{result.vocab_size} token embeddings of {safe_label(result.model)}"
    return figure(360, title, {"title": "directions kept, k", "range": [0, result.d_model]}, y, traces, shapes=_at(result.rank))


def _methods(result: LossResult, values: np.ndarray, title: str, axis: str, kappa: int) -> go.Figure:
    laws = 10.0 ** np.arange(0, 17)
    traces = [
        {**line(laws, np.minimum(result.eps * laws**2, 1e3), CHANCE, "eps κ²"), "line": {"color": CHANCE, "dash": "dash"}},
        line(laws, result.eps * laws, CHANCE, "eps κ"),
    ]
    for name, row in zip(result.methods, values, strict=True):
        trace = line(10.0**result.exponent, np.maximum(row, LEAST), METHOD_STYLE[name], name, markers=True)
        trace["hovertemplate"] = "condition %{x:.0e}<br>%{y:.1e}<extra>" + name + "</extra>"
        traces.append(trace)
    return figure(380, title, _kappa(), _loss_axis(axis), traces, shapes=_at(10.0**kappa, 1))


def _kappa() -> dict:
    return {**POWERS, "title": "condition number κ", "range": [-0.3, 16.3], "dtick": 4}


def _loss_axis(title: str) -> dict:
    return {**POWERS, "title": title, "range": [-17.2, 1], "dtick": 4}


def _at(x: float, width: float = 2) -> list[dict]:
    """Return an upright line at x."""
    return [{"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": WARM, "width": width}}]


def _chance(n: int, chance: float) -> dict:
    """Return chance as a dotted line across n bars."""
    return line([-0.6, n - 0.4], [chance, chance], CHANCE, f"chance {chance:.1%}", hoverinfo="skip")


def _map(result: AnglesResult, values: np.ndarray, title: str, high: float, name: str, chance: float) -> go.Figure:
    """Return a layer x head map with the chosen head outlined."""
    n_layers, n_heads = values.shape
    cells = {
        "type": "heatmap",
        "z": values,
        "customdata": [[{"layer": y, "head": x} for x in range(n_heads)] for y in range(n_layers)],
        "zmin": 0,
        "zmax": high,
        "colorscale": SEQUENTIAL,
        "xgap": 3,
        "ygap": 3,
        "texttemplate": "%{z:.2f}" if values.size <= 400 else None,
        "hovertemplate": "layer %{y}, head %{x}<br>" + name + " %{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 14, "tickvals": [0, chance], "ticktext": ["0", f"chance<br>{chance:.2f}"]},
    }
    box = {"x0": result.head - 0.5, "x1": result.head + 0.5, "y0": result.layer - 0.5, "y1": result.layer + 0.5}
    x = {"title": "head", "range": [-0.6, n_heads - 0.4], "dtick": max(1, -(-n_heads // 16)), "showgrid": False}
    y = {"title": "layer", "range": [n_layers - 0.4, -0.6], "dtick": max(1, -(-n_layers // 16)), "showgrid": False}
    return figure(300, title, x, y, [cells], shapes=[{"type": "rect", **box, "line": {"color": WARM, "width": 4}}])
