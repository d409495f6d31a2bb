"""Pictures of training: any number of every head over the steps, and what the whole model could do."""

import numpy as np
import plotly.graph_objects as go

from engine.figures.theme import CHANCE, CHANCE_FILL, HERE, MARGIN, WARM, figure, line
from engine.trajectory import TrajectoryResult

FIRST = 50
"""Steps are drawn at log(step + 50), so that step 0 has a place."""
NAMES = {
    "prefix_matching": "Prefix matching (recorded)",
    "previous_token": "Weight on the previous token (recorded)",
    "copying_score": "Copying score of W<sub>OV</sub>",
    "k_composition": "K-composition with an earlier head, largest",
    "ov.effective_rank": "Effective rank of W<sub>OV</sub>",
    "qk.effective_rank": "Effective rank of W<sub>QK</sub>",
}
ROOM = {**MARGIN, "r": 56}  # for the axis on the right


def trajectory_curves(result: TrajectoryResult, what: str, layer: int, head: int, at: int | None = None, chance: float | None = None) -> go.Figure:
    """Return one number of every head over the steps of training, the chosen head's in colour; ``at``: the snapshot to mark.

    ``what``: see ``TrajectoryResult.of``. ``chance``: a value to draw, by default that of the result for this number.
    """
    values = result.of(what)
    steps, flat = _along(result.steps), values.reshape(len(values), -1)
    chance = getattr(result, f"{what}_chance", None) if chance is None else chance
    gap = np.full((1, flat.shape[1]), np.nan)  # one trace for all heads: a hundred traces are slow to draw
    others = {"x": np.tile([*steps, np.nan], flat.shape[1]), "y": np.concatenate([flat, gap]).T.ravel(), "name": "every head", "hoverinfo": "skip"}
    hover = "step %{customdata}<br>%{y:.3g}<extra></extra>"
    name = f"layer {layer}, head {head}"
    traces = [
        {"type": "scatter", "mode": "lines", **others, "line": {"color": CHANCE_FILL, "width": 1.5}},
        *([line(steps[[0, -1]], [chance] * 2, CHANCE, "chance")] if chance is not None else []),
        line(steps, values[:, layer, head], HERE, name, markers=True, customdata=result.steps, hovertemplate=hover),
    ]
    y = {"title": "", "range": _range(values)}
    return figure(350, NAMES.get(what, what.replace("_", " ")), _axis(result), y, traces, shapes=_mark(steps, at))


def progress_curves(result: TrajectoryResult, at: int | None = None) -> go.Figure:
    """Return the recorded copying accuracy and held-out loss of the whole model over the steps; ``at``: the snapshot to mark."""
    steps = _along(result.steps)
    hover = "step %{customdata}<br>%{y:.3g}<extra>%{fullData.name}</extra>"
    common = {"markers": True, "customdata": result.steps, "hovertemplate": hover}
    traces = [
        line(steps, result.copying_accuracy, HERE, "copying accuracy", **common),
        line(steps, result.held_out_loss, WARM, "held-out loss, nats (right)", yaxis="y2", **common),
    ]
    top = float(np.ceil(result.held_out_loss.max()))
    right = {"title": {"text": ""}, "overlaying": "y", "side": "right", "range": [0, 1.03 * top], "showgrid": False, "zeroline": False}
    y = {"title": "", "range": [0, 1.03], "tickformat": ".0%"}
    return figure(
        300,
        f"Recorded while it was trained, {result.recorded}",
        _axis(result),
        y,
        traces,
        yaxis2=right,
        shapes=_mark(steps, at),
        margin={**MARGIN, "r": 56},
    )


def _along(steps: np.ndarray) -> np.ndarray:
    return np.log10(steps + FIRST)


def _axis(result: TrajectoryResult) -> dict:
    """Return the axis of steps: a label for those that stand far enough from the one before."""
    along, kept = _along(result.steps), [0]
    for i in range(1, len(along)):
        if along[i] - along[kept[-1]] > 0.08 * np.ptp(along):
            kept.append(i)
    return {
        "title": "training step",
        "tickvals": along[kept],
        "ticktext": [f"{s}" for s in result.steps[kept]],
        "range": [along[0] - 0.05, along[-1] + 0.05],
    }


def _range(values: np.ndarray) -> list[float]:
    """Return an axis that holds every head at every step."""
    low, high = min(0.0, float(np.nanmin(values))), float(np.nanmax(values))
    return [low * 1.05, high * 1.05 if high > 0 else 0.05]


def _mark(steps: np.ndarray, at: int | None) -> list[dict]:
    if at is None:
        return []
    return [{"type": "line", "x0": steps[at], "x1": steps[at], "yref": "paper", "y0": 0, "y1": 1, "line": {"color": WARM, "width": 2}}]
