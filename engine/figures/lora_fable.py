"""Pictures of Fable learning Shakespeare, and of adapters module by module."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from engine.figures.theme import HERE, PALETTE, SEQUENTIAL, WARM, figure, line
from engine.lora_live import FableResult, RecordedSweep
from engine.lora_merge import CostResult
from engine.lora_spectra import UpdateSpectrum

GREEN = PALETTE[2]


def loss_by_rank(recorded: RecordedSweep, live: FableResult | None = None) -> go.Figure:
    """Return the last loss on held-out verse and on the old prose by rank, full fine-tuning at the right; dots: seeds; stars: live."""
    names = [*map(str, recorded.ranks), "full"]
    at, traces = np.arange(len(names)), []
    for what, colour in (("verse", HERE), ("prose", WARM)):
        values = np.concatenate([getattr(recorded, what), getattr(recorded, f"full_{what}")[None]])
        last, first = values[..., -1], float(values[0, 0, 0])
        hover = f"{what}, rank %{{text}}<br>%{{y:.3f}} nats per token<extra></extra>"
        traces.append(line(at, last.mean(1), colour, what, markers=True, text=names, hovertemplate=hover))
        traces.append(_dots(np.repeat(at, last.shape[1]), last.ravel(), colour))
        before = {"color": colour, "width": 1.5, "dash": "dot"}
        traces.append(line([-0.5, len(at) - 0.5], [first] * 2, colour, f"{what} before", line=before, hoverinfo="skip"))
        if live is not None:
            places = [names.index(str(rank)) for rank in live.ranks]
            marker = {"symbol": "star", "size": 13, "color": colour, "line": {"width": 1, "color": "#fff"}}
            now = getattr(live, what)[..., -1].mean(1)
            traces.append(
                {"type": "scatter", "mode": "markers", "x": places, "y": now, "marker": marker, "name": f"{what}, your {live.steps[-1]} steps"}
            )
    x = {"title": "rank", "tickvals": at, "ticktext": names, "range": [-0.5, len(at) - 0.5], "showgrid": False}
    return figure(380, "Verse learnt, prose forgotten", x, {"title": "nats per token", "range": _range(recorded)}, traces, margin=_room())


def curves(recorded: RecordedSweep, what: str, live: FableResult | None = None) -> go.Figure:
    """Return the loss on verse or prose along the recorded training, a line per rank (mean of seeds), the live run over it in thick lines."""
    colours = sample_colorscale(SEQUENTIAL, np.linspace(0.25, 0.95, len(recorded.ranks)))
    hover = "step %{x}<br>%{y:.3f} nats<extra>%{fullData.name}</extra>"
    traces = [
        line(recorded.steps, values.mean(0), colour, str(rank), line={"color": colour, "width": 2}, hovertemplate=hover)
        for rank, values, colour in zip(recorded.ranks, getattr(recorded, what), colours, strict=True)
    ]
    full = getattr(recorded, f"full_{what}").mean(0)
    traces.append(line(recorded.steps, full, GREEN, "full", line={"color": GREEN, "width": 2, "dash": "dash"}, hovertemplate=hover))
    for i, rank in enumerate(() if live is None else live.ranks):
        style = {"color": PALETTE[3 + i % 3], "width": 4}
        traces.append(line(live.steps, getattr(live, what)[i].mean(0), WARM, f"yours, {rank}", line=style, hovertemplate=hover))
    x = {"title": "step", "range": [0, int(recorded.steps[-1])]}
    title = "On verse held out" if what == "verse" else "On the old prose"
    return figure(380, title, x, {"title": "nats per token", "range": _range(recorded)}, traces, margin=_room())


def module_map(spectra: Sequence[UpdateSpectrum], what: str, title: str) -> go.Figure:
    """Return layer x module of one number of an update's spectrum: ``directions_90``, ``effective_rank`` or ``alignment`` over chance."""
    parts = [s.name.rpartition(".") for s in spectra]
    layers, places = (list(dict.fromkeys(names)) for names in ([p[0] for p in parts], [p[2] for p in parts]))
    value = lambda s: s.alignment / s.alignment_chance if what == "alignment" else getattr(s, what)  # noqa: E731
    z, text = np.full((len(layers), len(places)), np.nan), np.full((len(layers), len(places)), "", dtype=object)
    for s, (layer, _, place) in zip(spectra, parts, strict=True):
        i, j = layers.index(layer), places.index(place)
        z[i, j] = value(s)
        chance = 1 if what == "alignment" else getattr(s, f"{what}_chance")
        text[i, j] = f"layer {layer}, {place}<br>{value(s):.1f}, chance {chance:.1f}"
    cells = {
        "type": "heatmap",
        "z": z,
        "x": places,
        "y": layers,
        "text": text,
        "texttemplate": "%{z:.1f}" if what != "directions_90" else "%{z:.0f}",
        "hovertemplate": "%{text}<extra></extra>",
        "colorscale": SEQUENTIAL,
        "zmin": 0,
        "zmax": float(np.nanmax(z)) or 1.0,
        "xgap": 3,
        "ygap": 3,
        "colorbar": {"thickness": 14},
    }
    y = {"title": "layer", "type": "category", "autorange": "reversed", "showgrid": False}
    return figure(300, title, {"title": "weight", "type": "category", "showgrid": False}, y, [cells])


def module_spectra(spectra: Sequence[UpdateSpectrum], layer: str = "2") -> go.Figure:
    """Return the spectrum of each module's update in one layer, over its norm."""
    chosen = [s for s in spectra if s.name.startswith(f"{layer}.")] or list(spectra)
    colours = sample_colorscale(SEQUENTIAL, np.linspace(0.25, 0.95, max(2, len(chosen))))
    traces = [
        line(
            np.arange(1, len(s.singular_values) + 1), s.singular_values / max(np.linalg.norm(s.singular_values), 1e-12), colour, s.name, markers=True
        )
        for s, colour in zip(chosen, colours, strict=False)
    ]
    x = {"title": "direction", "range": [0, max(len(s.singular_values) for s in chosen) + 1]}
    return figure(340, "Spectra of the adapter", x, {"title": "singular value / norm", "range": [0, 1.02]}, traces, margin=_room())


def cost_bars(result: CostResult) -> go.Figure:
    """Return trainable parameters of full fine-tuning and of LoRA for real configurations, on a log axis."""
    bars = [
        {"type": "bar", "orientation": "h", "y": list(result.names), "x": values, "name": name, "marker": {"color": colour}}
        for name, values, colour in (("full", result.full, GREEN), (f"rank {result.rank}", result.lora, HERE))
    ]
    bars = [{**b, "hovertemplate": "%{y}<br>%{x:,}<extra>%{fullData.name}</extra>"} for b in bars]
    ticks = {"tickvals": [1e2, 1e4, 1e6, 1e8, 1e10], "ticktext": ["100", "10 thousand", "1 million", "100 million", "10 billion"]}
    x = {"title": "trainable parameters", "type": "log", "range": [2, 11], **ticks}
    y = {"title": "", "autorange": "reversed", "automargin": True, "showgrid": False}
    return figure(300, "What is trained", x, y, bars, margin={"l": 150, "r": 16, "t": 54, "b": 48})


def _range(recorded: RecordedSweep) -> list[float]:
    values = np.concatenate([a.ravel() for a in (recorded.verse, recorded.prose, recorded.full_verse, recorded.full_prose)])
    return [float(values.min()) - 0.03, float(values.max()) + 0.03]


def _dots(x, y, colour: str) -> dict:
    marker = {"color": colour, "size": 6, "opacity": 0.5}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker, "showlegend": False, "hoverinfo": "skip"}


def _room() -> dict:
    return {"l": 60, "r": 16, "t": 92, "b": 48}
