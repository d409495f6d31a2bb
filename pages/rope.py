"""What breaks beyond the trained length, and what does each law repair?

Sources: seed notes on orthogonality and RoPE; Su et al. 2104.09864; Peng et al. 2309.00071 (YaRN) and the papers in its note.
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

from dataclasses import replace  # noqa: E402

from engine.params import Number as Measured  # noqa: E402
from engine.rope import RopeParams, frequencies, refusal, rotor, rotor_numbers  # noqa: E402
from engine.rope_laws import LAWS, PAIRS, RAMPS  # noqa: E402
from engine.rope_measure import loss_numbers, losses_by_position, pairs_number  # noqa: E402
from engine.rope_scores import score_by_distance  # noqa: E402
from engine.settings import settings  # noqa: E402
from pages.parts import rope as parts  # noqa: E402
from pages.shared import models  # noqa: E402
from pages.shared.compute import run, so_far  # noqa: E402
from pages.shared.controls import Choice, Integer, Named, Number, Numbers, Scrubbed, Switch, TypedNumbers  # noqa: E402
from pages.shared.guess import guess  # noqa: E402
from pages.shared.hands import by_hand, encoded  # noqa: E402
from pages.shared.layout import close_lab, controls, escaped, fill_chip, mishaps, more, open_lab, tabs  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.remembered import Pictures, remembered  # noqa: E402
from pages.shared.show import show  # noqa: E402
from pages.shared.takeaway import Taken, share  # noqa: E402

figures = Pictures("rope")
measured = Pictures("rope_measure")

PANEL = Panel(
    RopeParams,
    tabs=("Turn", "Stretch", "Measure", "Guess"),
    model=models.control(),
    scheme=Named("Law", tuple(LAWS), free=False),
    factor=Number("Factor", 1.0, 64.0, 0.05),
    reach=Integer("Length, in trained contexts", 1, min(8, settings().sweep)),
    position=Scrubbed("Position", 0, 1_000_000),
    base=parts.Turned("Base", 2.0, 1e9, 0.01),
    d_head=Integer("Head width", 4, 256, 4),
    original_context=Integer("Trained context, in tokens", 16, 1_000_000),
    length=Integer("Tokens in use, for dynamic NTK and LongRoPE (0: twice the trained)", 0, 10_000_000),
    beta_fast=Number("Turns above which a pair is kept", 5.0, 64.0, 1.0),
    beta_slow=Number("Turns below which it is divided", 0.25, 4.0, 0.25),
    truncate=Switch("Round the ramp's ends outwards"),
    ramp=Choice("Ramp of by parts and YaRN", RAMPS),
    pairs=Choice("Pairs that the law changes", PAIRS),
    low_freq_factor=Number("Llama 3: divided below this many turns", 0.25, 2.0, 0.25),
    high_freq_factor=Number("Llama 3: kept above this many turns", 2.5, 16.0, 0.5),
    short_factor=TypedNumbers("LongRoPE: divisors within the trained length", 4000),
    long_factor=TypedNumbers("LongRoPE: divisors beyond it", 4000),
    attention_factor=Number("Attention factor of YaRN and LongRoPE (0: the law's own)", 0.0, 2.0, 0.01),
    kind=Choice("Query and key", {"same": "", "random": "", "dragged": ""}, by_hand=True),
    q=Numbers("Query", -4.0, 4.0, 16, 4),
    k=Numbers("Key", -4.0, 4.0, 16, 4),
)

SELDOM = (
    *("d_head", "original_context", "length", "beta_fast", "beta_slow", "truncate"),
    *("low_freq_factor", "high_freq_factor", "attention_factor", "short_factor", "long_factor"),
)
"""Controls behind *More*."""

lab = open_lab("rope")
models.shape(PANEL)
models.sidebar(PANEL)


@st.fragment
def explore() -> None:
    """Draw all that a control changes; nothing else of the page runs again while a slider moves."""
    params = PANEL.read()
    with controls():
        PANEL.draw("scheme", "factor", "reach")
        more(PANEL, *SELDOM, rest=lambda: parts.example(PANEL, params))
    if said := refusal(params):
        st.error(escaped(f"{said} Shown is plain RoPE."))
        params = replace(params, scheme="none")
    law, turning = run(frequencies, params), run(rotor, params)
    left, right = st.columns(2)
    with left:
        by_hand("rotor", key="rotor", data=rotor_data(params, turning), height="content", on_release=PANEL.pick)
    tab = tabs(PANEL)
    for name, section in (("Turn", parts.turn), ("Stretch", parts.stretch)):
        if tab[name].open:
            with tab[name], mishaps():
                section(PANEL, params)
    turned = remembered(rotor_numbers)(params, turning, law)
    with right:
        found, is_all = parts.losses(params, [turned["unfinished"], turned["score"]])
    if tab["Measure"].open:
        with tab["Measure"], mishaps():
            parts.measure(params, found, is_all)
    if tab["Guess"].open:
        with tab["Guess"]:
            for question in lab.guesses:
                guess(question, PANEL, number_of, picture_of)
    fill_chip(PANEL)


def taken() -> Taken:
    """Return what can be taken from the page as it stands."""
    asked = PANEL.read()
    params = replace(asked, scheme="none") if refusal(asked) else asked
    law, found = run(frequencies, params), so_far(losses_by_position, params)
    return Taken(params, {"frequencies": frequencies}, lambda: parts.shown_table(law, asked, found))


@remembered
def rotor_data(params: RopeParams, turning) -> bytes:
    """Return what the rotor starts from."""
    arrays = {name: getattr(turning, name).tolist() for name in ("inv_freq", "scaled_inv_freq", "q", "k")}
    far = max(params.reach * params.original_context, params.position)
    same = {"d": turning.d, "base": params.base, "position": params.position, "original_context": params.original_context, "farthest": far}
    label = f"{turning.d // 2} of {params.d_head // 2} pairs of dimensions turning with position"
    drawn = f"{turning.d // 2} of {params.d_head // 2} pairs drawn" if turning.d < params.d_head else ""
    return encoded({**same, **arrays, "attention_factor": turning.attention_factor, "kind": params.kind, "label": label, "drawn": drawn})


def number_of(params: RopeParams, name: str) -> Measured:
    """Return the number that a guess is about."""
    if name == "slow_saves_more":
        return run(pairs_number, params)
    if name == "nearer":
        return rotor_numbers(params, run(rotor, params), run(frequencies, params))[name]
    return loss_numbers(params, run(losses_by_position, params))[name]


def picture_of(params: RopeParams, name: str, key: str) -> None:
    """Draw what a guess was about: the score against distance, or the loss by position."""
    if name == "nearer":
        show(figures.score_curve(run(score_by_distance, params), params), key=key, label="Score against distance")
    else:
        losses = run(losses_by_position, params)
        show(measured.loss(losses, params.scheme, 0, params.model), key=key, label="Loss by position, plain and under the law")


place = st.container()
share("rope", PANEL, taken)
close_lab(lab, PANEL)
with place:
    explore()
