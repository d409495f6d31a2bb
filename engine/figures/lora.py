"""Pictures of the LoRA lab's teacher: loss by rank over its floor, curves, the spectrum of the update, variants, first steps."""

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from engine.figures.theme import CHANCE, HERE, PALETTE, SEQUENTIAL, WARM, figure, line
from engine.linalg import cumulative_energy
from engine.lora import SweepResult, nearest
from engine.lora_spectra import gaussian_spectra
from engine.lora_variants import FirstStepResult, VariantsResult

HEIGHT = 340
GREEN = PALETTE[2]
UNDER = {"color": "rgba(217, 116, 43, 0.55)", "width": 10}
"""WARM, wide and pale: a line that another one may cover."""


def loss_by_rank(result: SweepResult, rank: int) -> go.Figure:
    """Return the error left at every rank as a share of that before training: seeds, their mean, floor, chance, full fine-tuning.

    A click on a point names its rank; the chosen one is marked.
    """
    at, names = np.arange(len(result.ranks)), [str(r) for r in result.ranks]
    last = result.loss[..., -1]
    hover = "rank %{text}<br>%{y:.2%} of the error left<extra>%{fullData.name}</extra>"
    common = {"text": names, "customdata": [{"rank": int(r)} for r in result.ranks], "hovertemplate": hover}
    seeds = {
        "type": "scatter",
        "mode": "markers",
        "x": np.repeat(at, last.shape[1]),
        "y": last.ravel(),
        "marker": {"color": HERE, "size": 6, "opacity": 0.5},
        "showlegend": False,
        "hoverinfo": "skip",
    }
    full = result.full_loss[:, -1]
    wide = at if len(at) > 1 else np.array([-0.4, 0.4])  # a line of one point is not drawn
    stretched = lambda values: np.broadcast_to(values, wide.shape)  # noqa: E731
    traces = [
        line(wide, stretched(result.by_chance), CHANCE, "A random, best B", **common),
        line(wide, stretched(result.floor), WARM, "floor", **common, line=UNDER),
        line(at, result.final(), HERE, "trained", markers=True, **common),
        line([-0.4, len(at) - 0.6], [np.nanmean(full) if np.isfinite(full).any() else None] * 2, GREEN, "full"),
        seeds,
    ]
    if not np.allclose(result.cut_of_M, result.floor, atol=0.002):
        style = {"color": PALETTE[3], "width": 2, "dash": "dash"}
        traces.append(line(wide, stretched(result.cut_of_M), PALETTE[3], "M cut by itself", **common | {"line": style}))
    chosen = nearest(result, rank)
    here = {"type": "line", "x0": chosen, "x1": chosen, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": WARM, "width": 1}}
    x = {"title": "rank r of the adapter", "tickvals": at, "ticktext": names, "range": [-0.5, len(at) - 0.5], "showgrid": False}
    y = {"title": "error left", "range": [-0.03, 1.08], "tickformat": ".0%"}
    return figure(HEIGHT, "Error left after training", x, y, traces, shapes=[here], meta={"cursor": [0, chosen]}, margin=_room())


def curves(result: SweepResult) -> go.Figure:
    """Return the error left along the training, one line per rank (mean over seeds), each going to its floor (dotted)."""
    steps, traces = np.arange(result.loss.shape[-1]), []
    every = max(1, len(steps) // 300)
    colours = sample_colorscale(SEQUENTIAL, np.linspace(0.25, 0.95, max(2, len(result.ranks))))
    hover = "step %{x}<br>%{y:.2%}<extra>%{fullData.name}</extra>"
    with np.errstate(all="ignore"):
        means = [np.nanmean(loss, axis=0) if np.isfinite(loss).any() else loss[0] for loss in result.loss]
    for rank, mean, floor, colour in zip(result.ranks, means, result.floor, colours, strict=False):
        style = {"color": colour, "width": 2}
        traces.append(line(steps[::every], mean[::every], colour, f"{rank}", line=style, hovertemplate=hover))
        traces.append(
            line([0, result.steps], [floor] * 2, colour, "floor", line={**style, "width": 1, "dash": "dot"}, showlegend=False, hoverinfo="skip")
        )
    full = result.full_loss.mean(0)
    traces.append(line(steps[::every], full[::every], GREEN, "full", line={"color": GREEN, "width": 2, "dash": "dash"}, hovertemplate=hover))
    x = {"title": "step", "range": [0, result.steps]}
    y = {"title": "error left", "range": [-0.03, 1.3], "tickformat": ".0%"}
    return figure(HEIGHT, "While it learns", x, y, traces, margin=_room())


def update_spectrum(result: SweepResult) -> go.Figure:
    """Return singular values of the update that full fine-tuning learnt, each over the norm, beside M's and a random matrix's."""
    values = result.full_singular_values[0]
    index, total = np.arange(1, len(values) + 1), max(np.linalg.norm(values), 1e-12)
    n, m = sorted((result.full_parameters // _side(result), _side(result)))
    random = gaussian_spectra(n, m).mean(0)
    hover = "direction %{x}<br>%{y:.3f} of the norm<extra>%{fullData.name}</extra>"
    wanted = result.teacher_singular_values / np.linalg.norm(result.teacher_singular_values)
    traces = [
        line(index, random, CHANCE, "random matrix", hovertemplate=hover),
        line(index, wanted, WARM, "M", hovertemplate=hover, line=UNDER),
        line(index, values / total, HERE, "learnt", markers=True, hovertemplate=hover),
    ]
    y = {"title": "singular value / norm", "range": [-0.02, 1.02]}
    return figure(HEIGHT, "The whole update", {"title": "direction", "range": [0, len(values) + 1]}, y, traces)


def _side(result: SweepResult) -> int:
    """Return d_out, from (d_in + d_out) and d_in d_out."""
    both = int(result.trainable_parameters[0] // result.ranks[0])
    return round((both + np.sqrt(max(both * both - 4 * result.full_parameters, 0))) / 2)


def update_energy(result: SweepResult) -> go.Figure:
    """Return the share of the learnt update that its best rank-k part holds, beside M's and a random matrix's, with a line at 90 %."""
    values = result.full_singular_values[0]
    index = np.arange(1, len(values) + 1)
    n, m = sorted((result.full_parameters // _side(result), _side(result)))
    hover = "rank %{x}<br>%{y:.1%}<extra>%{fullData.name}</extra>"
    traces = [
        line(index, cumulative_energy(gaussian_spectra(n, m)).mean(0), CHANCE, "random matrix", hovertemplate=hover),
        line(index, cumulative_energy(result.teacher_singular_values), WARM, "M", hovertemplate=hover, line=UNDER),
        line(index, cumulative_energy(values), HERE, "learnt", hovertemplate=hover),
    ]
    traces.append(line([0, len(values) + 1], [0.9, 0.9], CHANCE, "90 %", hoverinfo="skip", line={"color": CHANCE, "width": 1}))
    y = {"title": "share held", "range": [0, 1.03], "tickformat": ".0%"}
    return figure(HEIGHT, "How much a rank holds", {"title": "rank k", "range": [0, len(values) + 1]}, y, traces)


def variant_bars(result: VariantsResult) -> go.Figure:
    """Return what each variant leaves of the error, with a line at the floor of the rank."""
    last = result.last.mean(1)
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": last,
        "y": list(result.names),
        "marker": {"color": [WARM if value < result.floor - 0.005 else HERE for value in last]},
        "text": [f"{value:.1%}" if np.isfinite(value) else "diverged" for value in last],
        "textposition": ["inside" if value > 0.3 else "outside" for value in last],  # outside they would cross the floor's line
        "insidetextanchor": "start",
        "cliponaxis": False,
        "hovertemplate": "%{y}<br>%{x:.2%} of the error left<extra></extra>",
        "showlegend": False,
    }
    shapes = [{"type": "line", "yref": "paper", "x0": result.floor, "x1": result.floor, "y0": 0, "y1": 1, "line": {"color": WARM, "width": 2}}]
    x = {"title": f"error left; line: floor of rank {result.rank}", "range": [0, 1.2], "tickformat": ".0%"}
    y = {"title": "", "autorange": "reversed", "showgrid": False}
    return figure(380, f"Variants at rank {result.rank}", x, y, [bars], shapes=shapes, margin={"l": 92, "r": 16, "t": 40, "b": 48})


def first_steps(result: FirstStepResult) -> go.Figure:
    """Return the size of the update after one step against the rank, on two log axes, with the slopes that are often told."""
    size, ranks = result.size.mean(-1), result.ranks.astype(float)
    hover = "rank %{x}<br>|sBA| = %{y:.3g}<extra>%{fullData.name}</extra>"
    names = {"standard": "alpha / r", "rslora": "alpha / sqrt(r)"}
    traces = [
        line(ranks, size[i], colour, names[rule], markers=True, hovertemplate=hover)
        for i, (rule, colour) in enumerate(zip(result.rules, (HERE, WARM), strict=True))
    ]
    traces.insert(0, line(ranks, size[0, 0] * ranks**-0.5, CHANCE, "1 / sqrt(r)", hoverinfo="skip"))
    x = {"title": "rank", "type": "log", "tickvals": ranks, "ticktext": [f"{r:.0f}" for r in ranks], "range": [-0.1, np.log10(ranks[-1]) + 0.1]}
    y = {"title": "size of the update", "type": "log", "tickvals": [m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5)]}
    return figure(380, "After one step of AdamW", x, y, traces)


def _room() -> dict:
    """Return margins with room for a legend of two lines on a phone."""
    return {"l": 60, "r": 16, "t": 78, "b": 48}
