"""Which heads carry many directions, and which few?

Sources: seed notes on spectral diagnostics; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

from engine.figures import spectra as figures  # noqa: E402
from engine.spectra import SpectraParams, chance, head_numbers, head_spectra, prompt_attention  # noqa: E402
from pages.shared import models  # noqa: E402
from pages.shared.compute import run  # noqa: E402
from pages.shared.controls import Choice, Integer, Switch, Text  # noqa: E402
from pages.shared.guess import guess  # noqa: E402
from pages.shared.layout import close_lab, controls, mishaps, numbers, open_lab, prose, share, tabs  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.show import show  # noqa: E402

PANEL = Panel(
    SpectraParams,
    tabs=("Energy", "Attention", "Guess"),
    model=models.control(),
    circuit=Choice("Circuit", {"ov": "what it moves", "qk": "where it looks"}),
    layer=Integer("Layer", 0),
    head=Integer("Head", 0),
    delta=Integer("Tokens back from query to key", 0),
    fold=Switch("Fold the norm's gain into the weights"),
    latent=Integer("Numbers kept per token", 1),
    prompt=Text("Prompt", 400),
)

lab = open_lab("spectra")
shape = models.shape(PANEL)
limits = {"layer": shape.n_layers - 1, "head": shape.n_heads - 1, "delta": shape.context - 1, "latent": shape.n_kv_heads * shape.d_head}
with models.refusing(PANEL):
    models.sidebar(PANEL, run(head_spectra, PANEL.read(**limits)))


@st.fragment
def explore() -> None:
    """Draw all that a control changes; nothing else of the page runs again while a slider moves."""
    params = PANEL.read(**limits)
    result, by_chance = run(head_spectra, params), run(chance, params)
    where = (params.circuit, params.layer, params.head)
    name = f"layer {params.layer}, head {params.head}"
    with controls():
        PANEL.draw("circuit", "layer", "head", **limits)
        with st.popover("More"):
            PANEL.draw("delta", "fold", **limits)
            st.caption(" ".join(result.left_out))
    left, right = st.columns([5, 6])
    with left:
        show(figures.head_map(result, by_chance, *where), key="map", label=f"Effective rank of every head; {name} is chosen", on_pick=PANEL.pick)
    with right:
        show(figures.spectrum(result, by_chance, *where), key="spectrum", label=f"Singular values of {name} over the band of chance")
    numbers(head_numbers(params, result, by_chance).values())
    tab = tabs(PANEL)
    if tab["Energy"].open:
        with tab["Energy"]:
            prose("How many directions must be kept to hold a share of what the head can do? A flat spectrum needs nearly all of them.")
            show(figures.energy_curve(result, by_chance, *where), key="energy", label=f"Cumulative energy of {name} beside chance")
    if tab["Attention"].open:
        with tab["Attention"], mishaps():
            PANEL.draw("prompt")
            attention = run(prompt_attention, params)
            show(figures.attention(attention), key="attention", label=f"Attention of {name} on the prompt")
            numbers(attention.numbers())
    if tab["Guess"].open:
        with tab["Guess"]:
            for asked in lab.guesses:
                guess(asked, PANEL, numbers_of, picture_of)
    share(PANEL, params)


def numbers_of(params: SpectraParams) -> dict:
    """Return the numbers that a guess may be about."""
    return head_numbers(params, run(head_spectra, params), run(chance, params))


def picture_of(params: SpectraParams, key: str) -> None:
    """Draw what a guess was about."""
    figure = figures.energy_curve(run(head_spectra, params), run(chance, params), params.circuit, params.layer, params.head)
    show(figure, key=key, label="Cumulative energy beside chance")


explore()
close_lab(lab, PANEL)
