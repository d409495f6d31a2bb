"""The tabs of the head-spectrum page, and what its first screen asks of the model's behaviour."""

from collections.abc import Iterable

import numpy as np
import streamlit as st

from engine.ablation import INDUCTION as STRONG, effect, keep_curve
from engine.behaviour import behaviour_scores
from engine.errors import LabError
from engine.figures import cause as pictures
from engine.figures import spectra as spectral
from engine.head_map import SCORES, HeadScore, score, sources
from engine.heads import parse_heads, write_heads
from engine.params import Number
from engine.spectra import SpectraParams, chance, head_spectra
from pages.shared.compute import run
from pages.shared.controls import Heads, Integer, Menu, Switch
from pages.shared.layout import escaped, mishaps, numbers, prose
from pages.shared.panel import Panel
from pages.shared.show import show

REMOVALS = ("is switched off (0)", "writes its mean", "keeps k directions of W_OV", "keeps k directions of W_QK")
VIEW = {
    "colour": (Menu("Colour by", SCORES), "effective_rank"),
    "against": (Menu("Against", SCORES), "prefix_matching"),
    "sort": (Switch("All heads in order, highest first"), False),
    "compare": (Heads("Other heads", most=5), ""),
    "snapshot": (Integer("Snapshot of the training", 0, 9), 9),
}


def scored(name: str, params: SpectraParams) -> HeadScore:
    """Return a score of every head, each of its sources from the store or a worker."""
    return score(name, params, *(run(function, params) for function in sources(name)))


def head_switch(panel: Panel, params: SpectraParams) -> None:
    """Draw the switch of the chosen head: on, unless it is among the changed heads."""
    here, now = (params.layer, params.head), set(parse_heads(params.off))
    key = f"on_{params.layer}_{params.head}"
    st.session_state[key] = here not in now
    flip = lambda: panel.pick({"off": write_heads(now ^ {here})})  # noqa: E731
    st.toggle(f"Head {params.layer}.{params.head} on", key=key, on_change=flip)


def sets_of_heads(panel: Panel, params: SpectraParams) -> None:
    """Draw buttons that change a whole set of heads at once, found by what they do."""

    def change(name: str | None) -> None:
        heads = [] if name is None else np.argwhere(scored(name, params).values > STRONG).tolist()
        panel.pick({"off": write_heads(heads)})

    with st.container(horizontal=True):
        for label, name in (("None", None), ("All induction heads", "prefix_matching"), ("All previous-token heads", "previous_token")):
            st.button(label, on_click=change, args=(name,), key=f"change_{name}")


def behaviour_numbers(params: SpectraParams) -> Iterable[Number]:
    """Return the chosen head's induction score, and copying and loss before and after; nothing where they have no meaning."""
    try:
        found, after = run(behaviour_scores, params), run(effect, params)
    except LabError as error:
        st.caption(escaped(str(error)))
        return ()
    induction = Number("Induction score", float(found.prefix_matching[params.layer, params.head]), found.prefix_matching_chance, 2)
    return (induction, *after.numbers())


def cause(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw one score of every head against another, and what is left when the changed heads keep few directions."""
    prose("Sharp spectra are said to mark the heads that copy. A correlation over all heads tests that, and removing heads tests it better.")
    panel.draw("against")
    across, up = scored(view["colour"], params), scored(view["against"], params)
    left, right = st.columns(2)
    with left:
        show(pictures.scatter(across, up, params.layer, params.head), key="scatter", label=f"{up.name} against {across.name}", on_pick=panel.pick)

    with right, mishaps():
        curve = run(keep_curve, params)
        show(pictures.keep_curve(curve), key="keep_curve", label="Copying accuracy against the directions kept")
        numbers(curve.numbers())


def attention(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw the attention of every head of the layer, small, and of the chosen one, large."""
    panel.draw("prompt")
    found = run(layer_attention, params)
    name = f"layer {params.layer}, head {params.head}"
    show(heads.thumbnails(found, params.head), key="thumbnails", label=f"Attention of all heads of layer {params.layer}", on_pick=panel.pick)
    show(heads.attention(found, params.head), key="attention", label=f"Attention of {name} on the prompt")
    numbers(found.numbers(params.head))


def compare(panel: Panel, params: SpectraParams, view: dict, limits: dict) -> None:
    """Draw spectra and energies of the chosen head and up to five others over each other."""
    prose("How many directions must be kept to hold a share of what a head can do? A flat spectrum needs nearly all of them.")
    panel.draw("compare", **limits)
    chosen = ((params.layer, params.head), *parse_heads(view["compare"]))
    result, by_chance = run(head_spectra, params), run(chance, params)
    for column, draw, what in zip(st.columns(2), (spectral.overlaid, spectral.energies), ("Spectra", "Cumulative energy"), strict=True):
        with column:
            show(draw((result,), by_chance, params.circuit, chosen), key=f"compare_{what}", label=f"{what} of {len(chosen)} heads")


TABS = {"Cause": cause, "Compare": compare}
