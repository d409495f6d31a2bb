"""The page of one head as a file: four pictures and the numbers beside chance, readable without a server or the internet."""

from html import escape

import numpy as np
import plotly.graph_objects as go

from engine.figures.spectra import NAMES, attention, spectrum
from engine.figures.theme import CHANCE, HERE, WARM, figure
from engine.head_report import HeadReport
from engine.latent import LatentResult
from engine.spectra import ChanceResult, SpectraResult

STYLE = "body{font-family:sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}td,th{padding:.2rem 1rem .2rem 0;text-align:left}"


def page(report: HeadReport) -> str:
    """Return the whole page as HTML, plotly.js included, so that it opens anywhere."""
    asked, result = report.params, report.spectra
    where = (asked.circuit, asked.layer, asked.head)
    figures = (
        spectrum(result, report.chance, *where),
        ranks(result, report.chance, *where),
        attention(report.attention),
        latent_error(report.latent),
    )
    pictures = [fig.to_html(full_html=False, include_plotlyjs=i == 0) for i, fig in enumerate(figures)]
    title = escape(f"{asked.model}: layer {asked.layer}, head {asked.head}")
    said = "".join(f"<p>{escape(text)}</p>" for text in (f"Prompt: {asked.prompt}", f"SHA-256 of the weights: {result.sha256}", *result.left_out))
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>'
    return f"{head}<body><h1>{title}</h1>{_table(*report.table())}{''.join(pictures)}{said}</body></html>"


def _table(header: list[str], rows: list[list]) -> str:
    row = lambda tag, cells: "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"  # noqa: E731
    return "<table>" + row("th", header) + "".join(row("td", cells) for cells in rows) + "</table>"


def ranks(result: SpectraResult, chance: ChanceResult, circuit: str, layer: int, head: int) -> go.Figure:
    """Return how effective ranks are spread over the heads of the model, with this head's and the band of chance."""
    values = result.of(circuit, "effective_rank")
    fig = figure(300, f"Effective rank of {NAMES[circuit]}, all heads", "effective rank", "heads")
    bins = {"start": 0, "end": result.d_head, "size": result.d_head / 32}
    fig.add_histogram(x=values.ravel(), xbins=bins, marker={"color": CHANCE}, name="all heads")
    low, high = chance.effective_rank_band
    fig.add_vrect(x0=low, x1=high, fillcolor=CHANCE, opacity=0.3, line={"width": 0}, annotation_text="chance", annotation_position="top left")
    fig.add_vline(x=float(values[layer, head]), line={"color": HERE, "width": 3}, annotation_text="this head", annotation_position="top right")
    fig.update_xaxes(range=[0, result.d_head + 1])
    return fig


def latent_error(result: LatentResult) -> go.Figure:
    """Return the error of the prompt's keys by latent size: best possible, from the truncated weight, and the size asked for."""
    sizes = np.arange(1, result.n + 1)
    fig = figure(350, "Keys of the prompt in a smaller cache", "numbers kept per token, r", "error |K - K<sub>r</sub>| / |K|")
    fig.add_scatter(x=sizes, y=result.best, mode="lines", line={"color": CHANCE, "dash": "dot"}, name="best for these keys")
    fig.add_scatter(x=sizes, y=result.from_weights, mode="lines", line={"color": HERE, "width": 3}, name="weight W<sub>K</sub> truncated")
    fig.add_vline(x=result.latent, line={"color": WARM, "width": 2}, annotation_text=f"r = {result.latent}")
    fig.update_yaxes(range=[0, 1.03], tickformat=".0%")
    return fig
