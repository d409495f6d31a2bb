"""Which heads matter, and how many directions do they carry?

Sources: seed notes on spectral diagnostics; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits";
Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

from engine.heads import parse_heads  # noqa: E402
from engine.spectra import SpectraParams, chance, head_numbers, head_spectra  # noqa: E402
from pages.parts import spectra as parts  # noqa: E402
from pages.shared import models  # noqa: E402
from pages.shared.compute import run  # noqa: E402
from pages.shared.controls import Choice, Heads, Integer, Menu, Switch, prompt  # noqa: E402
from pages.shared.layout import close_lab, controls, fill_chip, mishaps, more, numbers, open_lab, tabs  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.remembered import Pictures, remembered  # noqa: E402
from pages.shared.show import show  # noqa: E402
from pages.shared.takeaway import Taken, share  # noqa: E402

figures = Pictures("spectra")

PANEL = Panel(
    SpectraParams,
    tabs=tuple(parts.TABS),
    view=parts.VIEW,
    model=models.control(),
    circuit=Choice("Circuit", {"ov": "", "qk": ""}, help="ov: what a head moves; qk: where it looks"),
    layer=Integer("Layer", 0),
    head=Integer("Head", 0),
    delta=Integer("Tokens back from query to key", 0),
    fold=Switch("Fold the norm's gain into the weights"),
    off=Heads("Changed heads"),
    removal=Menu("A changed head", parts.REMOVALS),
    keep=Integer("Changed heads keep", 0),
    latent=Integer("Numbers kept per token", 1),
    prompt=prompt(2000),
    partner=Heads("Partner", most=1),
    kind=Choice("Through the later head's", {"q": "query", "k": "key", "v": "value"}),
)

lab = open_lab("spectra")
shape = models.shape(PANEL)
limits = {
    "layer": shape.n_layers - 1,
    "head": shape.n_heads - 1,
    "delta": shape.context - 1,
    "latent": 2 * shape.n_kv_heads * shape.d_head,
    "keep": shape.d_head,
    **dict.fromkeys(("off", "compare", "partner"), (shape.n_layers, shape.n_heads)),
}
models.sidebar(PANEL)
with models.refusing(PANEL):
    run(head_spectra, PANEL.read(**limits))


@st.fragment
def explore() -> None:
    """Draw all that a control changes; nothing else of the page runs again while a slider moves."""
    params, view = PANEL.read(**limits), PANEL.view(**limits)
    result, by_chance, changed = run(head_spectra, params), run(chance, params), parse_heads(params.off)
    where, name = (params.layer, params.head), f"layer {params.layer}, head {params.head}"
    with controls():
        PANEL.draw("colour", "circuit", "layer", "head", **limits)
        parts.head_switch(PANEL, params)
        PANEL.draw("keep", **limits)
        more(PANEL, "removal", "off", "sort", "delta", "fold", rest=lambda: parts.about_heads(PANEL, params, result.left_out), **limits)
    left, right = st.columns([5, 6])
    with left, mishaps():
        score = parts.scored(view["colour"], params)
        strip = figures.head_strip(score, params.circuit, *where, changed)
        full = strip if view["sort"] or shape.n_heads > 64 else figures.head_map(score, params.circuit, shape.n_kv_heads, *where, changed)
        show(full, key="map", label=f"{score.name} of every head; {name} is chosen", on_pick=PANEL.pick, narrow=strip)
    with right:
        kept = params.keep if where in changed and params.removal == f"keep_{params.circuit}" else None
        spectrum = figures.spectrum(result, by_chance, params.circuit, *where, kept)
        show(spectrum, key="spectrum", label=f"Singular values of {name} over the band of chance")
    numbers([remembered(head_numbers)(params, result, by_chance)["effective_rank"], *parts.behaviour_numbers(params)])
    for tab, draw in zip(tabs(PANEL).values(), parts.TABS.values(), strict=True):
        if tab.open:
            with tab, mishaps():
                draw(PANEL, params, view, limits)
    fill_chip(PANEL)


def taken() -> Taken:
    """Return what can be taken from the page as it stands."""
    params, view = PANEL.read(**limits), PANEL.view(**limits)
    functions = {"spectra": head_spectra, "chance": chance, **parts.BEHIND.get(view["tab"], {})}
    return Taken(params, functions, lambda: parts.taken(params, view))


explore()
share("head-spectra", PANEL, taken)
close_lab(lab, PANEL)
