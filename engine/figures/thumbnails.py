"""The pictures on the home page, drawn once from the engine's numbers and shipped as SVG.

    python -m engine.figures.thumbnails

writes them again; a test compares the shipped files with what the engine gives now.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from plotly.colors import sample_colorscale

from engine.ffn_params import FfnParams
from engine.ffn_regions import VIEW, RegionsResult, regions
from engine.figures.theme import CHANCE, HERE, SEQUENTIAL, WARM
from engine.lora_params import LoraParams
from engine.models.catalog import ASSETS
from engine.norm_geometry import GeometryResult, geometry
from engine.norms import NormsParams
from engine.projections import ProjectionsParams, drag
from engine.rope import RopeParams, RopeResult, frequencies
from engine.rope_scores import UnseenResult, unseen_phases
from engine.spectra import SpectraParams, SpectraResult, head_spectra
from engine.teacher import floors, teacher_of

CELL, GAP = 60, 6
WIDE = 534
FOLDER = ASSETS / "thumbnails"


def heads(result: SpectraResult) -> str:
    """Return an SVG of the layer x head map of W_OV: each cell its effective rank as colour, its spectrum as a line."""
    width, height = (n * (CELL + GAP) + GAP for n in (result.n_heads, result.n_layers))
    cells = []
    for layer, head in np.ndindex(result.ov_effective_rank.shape):
        x, y = GAP + head * (CELL + GAP), GAP + layer * (CELL + GAP)
        colour = sample_colorscale(SEQUENTIAL, [result.ov_effective_rank[layer, head] / result.d_head])[0]
        cells.append(f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="5" fill="{colour}"/>')
        cells.append(f'<polyline points="{_spectrum(result.ov_singular_values[layer, head], x, y)}"/>')
    body = "\n".join(cells)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" fill="none" stroke="none">\n{_styled(body)}\n</svg>\n'


def _spectrum(values: np.ndarray, x: float, y: float) -> str:
    """Return the points of log sigma over two decades below the largest, inside a cell's margins."""
    heights = np.clip(1 + np.log10(np.maximum(values / values[0], 1e-9)) / 2, 0, 1)
    places = np.linspace(x + 8, x + CELL - 8, len(values))
    return " ".join(f"{px:.1f},{y + CELL - 8 - h * (CELL - 16):.1f}" for px, h in zip(places, heights, strict=True))


def _styled(body: str) -> str:
    return body.replace("<polyline ", '<polyline stroke="#fff" stroke-width="2" stroke-opacity="0.85" ')


def plane(result: RegionsResult) -> str:
    """Return an SVG of the plane cut into regions, each coloured by how many units are on."""
    colours = sample_colorscale(SEQUENTIAL, list(np.arange(result.lines + 1) / result.lines))
    cells = []
    for corners, on in zip(result.cells, result.active, strict=True):
        x, y = WIDE * (corners[:, 0] + VIEW) / (2 * VIEW), WIDE * (VIEW - corners[:, 1]) / (2 * VIEW)
        points = " ".join(f"{px:.1f},{py / 2:.1f}" for px, py in zip(x, y, strict=True))
        cells.append(f'<polygon points="{points}" fill="{colours[on]}"/>')
    body = "\n".join(cells)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {WIDE // 2}" stroke="#fff" stroke-width="2">\n{body}\n</svg>\n'


def waves(law: RopeResult, seen: UnseenResult) -> str:
    """Return an SVG of how each pair turns with distance: a wave per pair, in another colour where training never saw its angle."""
    rows, columns = law.inv_freq[::2], np.arange(0, len(seen.positions), 2)
    drawn = []
    for i, theta in enumerate(rows):
        heights = CELL * (i + 0.5) * 0.55 - 0.2 * CELL * np.cos(seen.positions[columns] * theta)
        places = GAP + columns * 1.3
        new = seen.plain[2 * i, columns] > 0
        for part, colour in ((~new, HERE), (new, WARM)):
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places[part], heights[part], strict=True))
            drawn.append(f'<polyline stroke="{colour}" stroke-width="2.5" points="{points}"/>' if part.any() else "")
    height = round(CELL * 0.55 * len(rows)) + GAP
    body = "\n".join(d for d in drawn if d)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 532 {height}" fill="none" stroke-linejoin="round">\n{body}\n</svg>\n'


def feet(params: ProjectionsParams, lines: int = 16) -> str:
    """Return an SVG of one vector dropped onto lines through the origin: all feet lie on the circle over it."""
    at = lambda p: f"{200 + 60 * p[0]:.1f},{210 - 60 * p[1]:.1f}"  # noqa: E731
    results = [drag(replace(params, a=(float(np.cos(t)), float(np.sin(t))))) for t in np.pi * np.arange(lines) / lines]
    rays = [f'<polyline stroke="{HERE}" stroke-opacity="0.4" points="{at(-6 * r.a)} {at(6 * r.a)}"/>' for r in results]
    drops = [f'<polyline stroke="{CHANCE}" stroke-dasharray="5 5" points="{at(r.v)} {at(r.projection)}"/>' for r in results]
    dots = [f'<circle cx="{x}" cy="{y}" r="6" fill="{WARM}"/>' for x, y in (at(r.projection).split(",") for r in results)]
    arrow = f'<polyline stroke="currentColor" stroke-width="5" points="{at((0, 0))} {at(results[0].v)}"/>'
    body = "\n".join([*rays, *drops, *dots, arrow])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 534 267" fill="none" stroke-width="2">\n{body}\n</svg>\n'


def spheres(result: GeometryResult) -> str:
    """Return an SVG of points in R^3 after RMSNorm (the sphere) and after LayerNorm (the circle), seen from the side."""
    turned, raised = np.radians((-35, 10))
    right = np.array([-np.sin(turned), np.cos(turned), 0.0])
    up = np.array([-np.cos(turned) * np.sin(raised), -np.sin(turned) * np.sin(raised), np.cos(raised)])
    drawn = []
    for points, colour, size in ((result.rms_3, WARM, 4), (result.layer_3, HERE, 6)):
        x, y = 266 + 75 * points @ right, 150 - 75 * points @ up
        drawn += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{size}" fill="{colour}" fill-opacity="0.8"/>' for a, b in zip(x, y, strict=True)]
    body = "\n".join(drawn)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 532 300" stroke="none">\n{body}\n</svg>\n'


def staircase(params: LoraParams) -> str:
    """Return an SVG of the least error that each rank can leave, one bar per rank, what it removes drawn paler."""
    ranks, bars = tuple(range(0, 25)), []
    for rank, left in zip(ranks, floors(teacher_of(params), ranks), strict=True):
        height, x = 240 * float(left), 14 + 20.6 * rank
        bars.append(f'<rect x="{x:.1f}" y="{254 - 240:.1f}" width="15" height="240" rx="3" fill="{HERE}" fill-opacity="0.15"/>')
        bars.append(f'<rect x="{x:.1f}" y="{254 - height:.1f}" width="15" height="{height:.1f}" rx="3" fill="{WARM if rank == 4 else HERE}"/>')
    body = "\n".join(bars)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 534 267" stroke="none">\n{body}\n</svg>\n'


THUMBNAILS = ("home", "projections", "ffn", "rope", "norms", "lora", "spectra")


def drawn() -> dict[str, str]:
    """Return every thumbnail by name, from Fable and from seeded points."""
    spectra, params = heads(head_spectra(SpectraParams())), RopeParams()
    drawn = {"projections": feet(ProjectionsParams(v=(2.4, 2.2))), "ffn": plane(regions(FfnParams(lines=12)))}
    drawn["lora"] = staircase(LoraParams(task="falling", teacher_rank=8))
    drawn["norms"] = spheres(geometry(NormsParams(mean=0.0)))
    return {**drawn, "home": spectra, "spectra": spectra, "rope": waves(frequencies(params), unseen_phases(params))}


def main(folder: Path = FOLDER) -> None:
    for name, svg in drawn().items():
        (folder / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
