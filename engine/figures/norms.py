"""Pictures of the norms lab: the block, distributions, company, points, Jacobians, a real stream. Stacks: ``engine.figures.depth``."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, HERE, LEGEND, MARGIN, SEQUENTIAL, WARM, band, figure, line, safe_label
from engine.norm_batches import NoiseResult
from engine.norm_geometry import GeometryResult, JacobiansResult
from engine.norm_stream import FoldResult, StreamResult, SwapResult
from engine.normalisation import NORMS
from engine.norms import BlockResult

SHOWN_FEATURES = 24
COLOUR = {"layer": HERE, "rms": WARM}
SPACE = (-2.6, 5.4)
LEVELS, DISTANCES = (4, 12, 40, 120), (1.6, 4, 12, 40)
WIDE = {**MARGIN, "l": 78}
SAME_SIZE = {**LEGEND, "itemsizing": "constant"}
FAINT = "#a9aeb8"


def block_data(result: BlockResult) -> dict:
    """Return what the block component draws: at most 24 features, evenly spaced around the marked one, and every set's statistics."""
    d, shown = result.before.shape[-1], _shown(result)
    pick = lambda values: np.round(values[..., shown] if values.shape[-1] > 1 or d == 1 else values, 4).tolist()  # noqa: E731
    return {
        "norm": NORMS[result.norm].label,
        "label": f"{result.before.shape} entries as cells; the set averaged with the chosen one is lit",
        "shape": (*result.before.shape[:2], len(shown)),
        "axes": result.axes,
        "size": result.set_size,
        "at": (*result.at[:2], int(np.flatnonzero(shown == result.at[-1])[0])),
        "features": shown.tolist(),
        "before": pick(result.before),
        "after": pick(result.after),
        "statistics": {name: pick(getattr(result, name)) for name in ("before_mean", "before_rms", "after_mean", "after_rms")},
        "colours": (HERE, WARM),
    }


def _shown(result: BlockResult) -> np.ndarray:
    step = -(-result.before.shape[-1] // SHOWN_FEATURES)
    return np.arange(result.at[-1] % step, result.before.shape[-1], step)


def spread(result: BlockResult, along: str) -> go.Figure:
    """Return mean and standard deviation of each feature (at most 24), or of each token of each sample, before and after the norm."""
    flat = [block.reshape(-1, block.shape[-1]) for block in (result.before, result.after)]
    axis = 0 if along == "feature" else 1
    index, d = _shown(result) if along == "feature" else np.arange(len(flat[0])), result.before.shape[-1]
    mean, sd = zip(*((rows.mean(axis)[index], rows.std(axis)[index]) for rows in flat), strict=True)
    top = max(float(np.abs(m).max() + s.max()) for m, s in zip(mean, sd, strict=True))
    end = _level(top, LEVELS)
    traces = []
    for m, s, name, colour, shift in zip(mean, sd, ("before", "after"), (CHANCE, HERE), (-0.15, 0.15), strict=True):
        bars = {"type": "data", "array": s, "color": colour, "thickness": 2, "width": 0}
        style = {"mode": "markers", "marker": {"color": colour, "size": 7}, "name": name, "error_y": bars}
        hover = f"{along} %{{customdata}}<br>mean %{{y:.3f}}, standard deviation %{{error_y.array:.3f}}<extra></extra>"
        traces.append({"type": "scatter", "x": np.arange(len(m)) + shift, "y": m, "customdata": index, "hovertemplate": hover, **style})
    every = -(-len(index) // 8)
    ticks = {"tickvals": np.arange(len(index))[::every], "ticktext": [str(i) for i in index[::every]]}
    x = {"title": along if along == "feature" else "token, sample after sample", "range": [-0.7, len(index) - 0.3], **ticks}
    some = f", {len(index)} of {d}" if along == "feature" and len(index) < d else ""
    return figure(300, f"Every {along}: mean and spread{some}", x, {"title": "value", "range": [-end, end]}, traces)


def noise(result: NoiseResult) -> go.Figure:
    """Return how far one sample's output scatters with its company against the batch size, in training and in evaluation."""
    traces = [
        line(result.sizes, result.expected, CHANCE, "√(1.5/N): Gaussian"),
        line(result.sizes, result.train, HERE, "training", markers=True),
        line(result.sizes, result.evaluation, WARM, "evaluation", markers=True),
    ]
    x = {"title": "batch size N", "type": "log", "range": [0.2, 2.5], "tickvals": [2, 4, 8, 16, 32, 64, 128, 256]}
    return figure(330, f"BatchNorm: noise from {result.values} company", x, {"title": "scatter of an output", "range": [-0.05, 1.05]}, traces)


def running(result: NoiseResult) -> go.Figure:
    """Return how far training and evaluation outputs lie apart while the running statistics catch up."""
    traces = [
        line(result.steps, np.full(len(result.steps), result.floor), CHANCE, "with exact statistics"),
        line(result.steps, result.apart, HERE, "with running statistics"),
    ]
    y = {"title": "training − evaluation, RMS", "range": [0, _level(float(result.apart.max()), DISTANCES)]}
    title = f"Training against evaluation, batches of {result.batch}"
    return figure(330, title, {"title": "batches seen", "range": [0, len(result.steps) + 1]}, y, traces)


def space(result: GeometryResult) -> go.Figure:
    """Return points in R^3 and where both norms send them: LayerNorm to a circle, RMSNorm to a sphere, of radius sqrt 3."""
    named = (("points_3", "points", CHANCE, 2), ("rms_3", "RMSNorm", WARM, 3), ("layer_3", "LayerNorm", HERE, 3))
    traces = [
        {
            "type": "scatter3d",
            **dict(zip("xyz", getattr(result, field).T, strict=True)),
            "mode": "markers",
            "name": name,
            "marker": {"color": colour, "size": size, "opacity": 0.85},
            "hovertemplate": "(%{x:.2f}, %{y:.2f}, %{z:.2f})<extra>" + name + "</extra>",
        }
        for field, name, colour, size in named
    ]
    axis = {"range": list(SPACE), "gridcolor": FAINT, "zerolinecolor": FAINT, "showbackground": False, "nticks": 5, "tickfont": {"size": 10}}
    axes = {f"{name}axis": {**axis, "title": {"text": f"x<sub>{i}</sub>"}} for i, name in enumerate("xyz", 1)}
    scene = {**axes, "aspectmode": "cube", "dragmode": "turntable", "camera": {"eye": {"x": 1.15, "y": -0.9, "z": 0.6}}}
    return figure(
        400,
        f"Three features, epsilon {result.eps:g}: turn it",
        "",
        "",
        traces,
        scene=scene,
        legend=SAME_SIZE,
        margin={**MARGIN, "l": 0, "r": 0, "b": 0},
    )


def plane(result: GeometryResult) -> go.Figure:
    """Return points in R^2 and where both norms send them: RMSNorm to a circle, LayerNorm to two points (rings: epsilon 0)."""
    named = (("points_2", "points", CHANCE, 4), ("rms_2", "RMSNorm", WARM, 6), ("layer_2", "LayerNorm", HERE, 10))
    traces = [
        {
            "type": "scatter",
            **dict(zip("xy", getattr(result, field).T, strict=True)),
            "mode": "markers",
            "name": name,
            "marker": {"color": colour, "size": size},
            "hovertemplate": "(%{x:.2f}, %{y:.2f})<extra>" + name + "</extra>",
        }
        for field, name, colour, size in named
    ]
    ring = {"mode": "markers", "marker": {"symbol": "circle-open", "size": 20, "color": HERE, "line": {"width": 2}}, "name": "LayerNorm, ε = 0"}
    traces.append({"type": "scatter", "x": result.limit_2[:, 0], "y": result.limit_2[:, 1], **ring})
    x = {"title": "x<sub>1</sub>", "range": list(SPACE), "constrain": "domain"}
    return figure(
        400,
        f"Two features, epsilon {result.eps:g}",
        x,
        {"title": "x<sub>2</sub>", "range": list(SPACE), "scaleanchor": "x", "constrain": "domain"},
        traces,
        legend=SAME_SIZE,
    )


def angles(result: GeometryResult) -> go.Figure:
    """Return the angle between both norms' outputs as the mean grows."""
    traces = [
        band(result.means, result.low, result.high, "5 to 95 %"),
        line(result.means, result.expected, CHANCE, "arctan(m)"),
        line(result.means, result.angle, HERE, "mean"),
        _point(result.mean, result.here),
    ]
    y = {"title": "angle, degrees", "range": [0, 90], "dtick": 30}
    return figure(
        330, f"Angle between the norms' outputs, {result.d} features", {"title": "mean m added to every feature", "range": [0, 5.05]}, y, traces
    )


def singular_values(result: JacobiansResult) -> go.Figure:
    """Return both Jacobians' singular values times s, so that 1 is a direction let through; rounding ends at 1e-17."""
    traces = []
    for name, found in result.defined.items():
        values = np.maximum(found.singular_values * found.scale, 1e-18)
        traces.append(line(np.arange(1, found.d + 1), values, COLOUR[name], NORMS[name].label, markers=True))
    x = {"title": "direction", "range": [0, max(found.d for found in result.defined.values()) + 1]}
    return figure(330, "What gets through, times s", x, {"title": "s × singular value", **_powers(-18.5, 1)}, traces, margin=WIDE)


def length_kept(result: JacobiansResult) -> go.Figure:
    """Return what is let through along the input's own length against epsilon, measured, beside eps / s^2."""
    traces = [line(result.epsilons, found.last, COLOUR[n], NORMS[n].label, markers=True) for n, found in result.defined.items()]
    traces += [line(result.epsilons, next(iter(result.defined.values())).formula, CHANCE, "ε / s²")]
    return figure(
        330,
        "The last direction, as epsilon grows",
        {"title": "epsilon", **_powers(-16.5, 2.5)},
        {"title": "share let through", **_powers(-18.5, 1)},
        traces,
        margin=WIDE,
    )


def linearised(result: JacobiansResult) -> go.Figure:
    """Return the relative error of the linearisation against the size of a step."""
    traces = [line(result.steps, found.error, COLOUR[name], NORMS[name].label, markers=True) for name, found in result.defined.items()]
    x, y = {"title": "step over the input's RMS", **_powers(-5.2, 1.7)}, {"title": "error over the change", **_powers(-7, 2.5)}
    return figure(330, "How far the Jacobian is a good guess", x, y, traces, margin=WIDE)


def sizes(result: StreamResult) -> go.Figure:
    """Return the stream's RMS at every norm, over all tokens and at the first token alone."""
    traces = [line(_at(result), result.rms, HERE, "all tokens", markers=True), line(_at(result), result.first_rms, WARM, "first token", markers=True)]
    return _along(result, "Size of the stream", {"title": "RMS", **_powers(-2, 3)}, traces)


def mean_angles(result: StreamResult) -> go.Figure:
    """Return the angle between both norms' outputs at every norm, beside that of a random direction's mean."""
    chance = np.degrees(np.arcsin(min(result.mean_chance, 1)))
    traces = [
        line(_at(result), np.full(len(result.names), chance), CHANCE, "chance"),
        line(_at(result), result.angle, HERE, "this prompt", markers=True),
    ]
    top = next(level for level in (8, 20, 45, 90) if level >= max(result.angle.max(), chance))
    return _along(result, "Angle between LayerNorm and RMSNorm", {"title": "degrees", "range": [0, top]}, traces)


def outliers(result: StreamResult) -> go.Figure:
    """Return the share of the stream's energy in the eight largest features at every norm; which they are is on the cells."""
    cells = {
        "type": "heatmap",
        "z": 100 * result.outlier_share.T,
        "text": result.outliers.T,
        "texttemplate": "%{text}" if len(result.names) <= 13 else None,
        "hovertemplate": "feature %{text}<br>%{z:.1f} % of the energy<extra></extra>",
        "zmin": 0,
        "colorscale": SEQUENTIAL,
        "colorbar": {"title": {"text": "% of<br>energy"}, "thickness": 14},
        "xgap": 2,
        "ygap": 2,
    }
    y = {"title": "place", "range": [7.5, -0.5], "tickvals": list(range(8)), "ticktext": [str(i + 1) for i in range(8)], "showgrid": False}
    return _along(result, "The largest features, by number", y, [cells])


def gains(result: StreamResult) -> go.Figure:
    """Return the learned gain of every feature at every norm: median and the range from 5 to 95 %."""
    low, middle, high = np.percentile(result.gain, (5, 50, 95), axis=1)
    traces = [band(_at(result), low, high, "5 to 95 % of features"), line(_at(result), middle, HERE, "median", markers=True)]
    return _along(result, "Learned gains", {"title": "gain", "range": [min(0, float(low.min())), 1.1 * float(high.max())]}, traces)


def losses(result: SwapResult) -> go.Figure:
    """Return a bar per norm put in place of the trained one; the line is knowing nothing, and longer bars are cut."""
    names, values = list(result.losses)[::-1], list(result.losses.values())[::-1]
    top = 1.3 * result.chance
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": np.minimum(values, top),
        "y": names,
        "text": [f"{value:.3f}" if value < top else f"{value:.0f}, off the scale" for value in values],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textfont": {"color": "#fff"},
        "marker": {"color": [WARM if name == result.trained else HERE for name in names]},
        "hoverinfo": "skip",
    }
    edge = {"type": "line", "x0": result.chance, "x1": result.chance, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": CHANCE, "dash": "dot"}}
    x = {"title": "nats per token", "range": [0, top]}
    y = {"title": "", "automargin": True, "ticks": "outside", "tickcolor": "rgba(0,0,0,0)"}
    return figure(330, "Loss with another norm in every place", x, y, [bars], shapes=[edge], margin={**MARGIN, "l": 10})


def folded(result: FoldResult) -> go.Figure:
    """Return every head's effective rank of W_QK after folding against before; on the dotted line nothing changes."""
    top = 1.1 * float(max(result.before.max(), result.after.max()))
    where = [f"layer {i}, head {j}" for i, j in np.ndindex(result.before.shape)]
    heads = {
        "type": "scatter",
        "mode": "markers",
        "x": result.before.ravel(),
        "y": result.after.ravel(),
        "text": where,
        "marker": {
            "size": 9,
            "color": np.repeat(np.arange(len(result.before)), result.before.shape[1]),
            "colorscale": SEQUENTIAL,
            "colorbar": {"title": {"text": "layer"}, "thickness": 14, "dtick": max(1, len(result.before) // 4)},
        },
        "hovertemplate": "%{text}<br>%{x:.2f} before, %{y:.2f} after<extra></extra>",
        "showlegend": False,
    }
    same = line([0, top], [0, top], CHANCE, "no change", showlegend=False)
    x, y = {"title": "effective rank, gain apart", "range": [0, top]}, {"title": "gain folded in", "range": [0, top]}
    return figure(330, "W<sub>QK</sub> of every head, same function", x, y, [same, heads])


def _along(result: StreamResult, title: str, y: dict, traces: list) -> go.Figure:
    every = max(1, -(-len(result.names) // 16))
    at = _at(result)
    ticks = {"tickvals": at[::every], "ticktext": [safe_label(name).replace("_", " ") for name in result.names[::every]], "tickangle": -60}
    x = {"title": "", "range": [-0.5, len(at) - 0.5], **ticks, "tickfont": {"size": 11}, "showgrid": False}
    return figure(340, title, x, y, traces, margin={**MARGIN, "b": 100})


def _at(result: StreamResult) -> np.ndarray:
    return np.arange(len(result.names))


def _level(top: float, levels: tuple[float, ...]) -> float:
    return next((level for level in levels if level >= top), top)


def _point(x: float, y: float) -> dict:
    return {"type": "scatter", "x": [x], "y": [y], "mode": "markers", "marker": {"color": WARM, "size": 12}, "showlegend": False, "hoverinfo": "skip"}


def _powers(low: float, high: float) -> dict:
    return {"type": "log", "range": [low, high], "exponentformat": "power", "dtick": max(1, round((high - low) / 6))}
