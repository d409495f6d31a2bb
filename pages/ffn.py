"""What can a feed-forward layer do that a matrix cannot, and what does it cost?

Sources: seeds on projections (up, switch, down), on deep learning as linear algebra, on transformers; Shazeer 2020, "GLU Variants
Improve Transformer"; Geva et al. 2021, "Transformer Feed-Forward Layers Are Key-Value Memories".
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

from engine.ffn_cost import ARCHITECTURES, cost  # noqa: E402
from engine.ffn_fit import drawn_points, fit  # noqa: E402
from engine.ffn_ledger import ledger  # noqa: E402
from engine.ffn_params import MOST_LINES, SNAPSHOT_EVERY, STEPS, FfnParams  # noqa: E402
from engine.models.feedforward import d_ff_of  # noqa: E402
from pages.parts import ffn as parts  # noqa: E402
from pages.shared import models  # noqa: E402
from pages.shared.compute import run  # noqa: E402
from pages.shared.controls import Choice, Integer, Number, Scrubbed, Switch, prompt  # noqa: E402
from pages.shared.layout import close_lab, controls, fill_chip, mishaps, more, numbers, open_lab, tabs  # noqa: E402
from pages.shared.linked import Menu, Numbers  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.takeaway import Taken, share  # noqa: E402

PANEL = Panel(
    FfnParams,
    tabs=(*parts.TABS, "Guess"),
    model=models.control(),
    activation=Choice("Activation", {"relu": "", "gelu": "", "geglu": "", "swiglu": ""}),
    width=Integer("Width (gated: three fifths)", 5, 80, 5),
    steps=Scrubbed("Training steps", 0, STEPS, SNAPSHOT_EVERY),
    seed=Integer("Random weights, number", 0, 99),
    cutoff=Number("Cutoff, subtracted from the gate's input", 0.0, 2.0, 0.1),
    target=Choice("Target", {"abs": "", "sine": "", "square": "", "step": "", "drawn": ""}, help="|x|, sin 3x, x²/2 - 1, a step, or yours"),
    drawing=Numbers("Drawing", -2.0, 2.0, 66, fewest=8, group=2, check=drawn_points),
    layer=Integer("Layer", 0),
    token=Integer("Token", 0),
    neuron=Integer("Neuron", 0),
    edit=Choice("At every token", {"mute": "this neuron", "keep": "only the k largest"}),
    keep=Integer("Neurons kept, k", 0),
    prompt=prompt(400),
    lines=Integer("ReLU units on two inputs", 1, MOST_LINES),
    biases=Switch("With biases"),
    shape=Menu("Configuration", {**{name: of.label for name, of in ARCHITECTURES.items()}, "own": "your own"}),
    d_model=Integer("d_model", 128, 16384, 128),
    ratio=Number("Width / d_model", 0.5, 8.0, 0.01),
    gated=Switch("Gated"),
    experts=Integer("Experts", 1, 256),
    top_k=Integer("Experts per token", 1),
    context=Integer("Tokens in the sequence", 1024, 131072, 1024),
    batch=Integer("Tokens at once", 1, 512),
)

lab = open_lab("ffn")
shape = models.shape(PANEL)
with models.refusing(PANEL):
    d_ff = d_ff_of(PANEL.read().model)
    models.sidebar(PANEL)


def limits_now() -> dict[str, int]:
    """Return the upper limits that the model, the prompt and the number of experts set."""
    now = PANEL.read()
    last = parts.last_token(now)
    known = {} if last is None else {"token": last}
    return {"layer": shape.n_layers - 1, "neuron": d_ff - 1, "keep": d_ff, "token": 127, "top_k": min(16, now.experts), **known}


def first_screen(params: FfnParams) -> None:
    """Draw sketch, units and numbers; while a new training runs, those of the one before stay, and its progress stands below them."""
    left, right = st.columns([6, 5])
    with st.container():
        result = run(fit, params)
    with left:
        parts.sketch(PANEL, params, result)
    with right:
        parts.units(params, result)
    numbers(parts.first_numbers(params, result))


@st.fragment
def explore() -> None:
    """Draw all that a control changes; nothing else of the page runs again while a slider moves."""
    limits = limits_now()
    params = PANEL.read(**limits)
    with controls():
        PANEL.draw("activation", "width", "target")
        more(PANEL, "seed", "cutoff", rest=parts.about_training)
    with mishaps():
        first_screen(params)
    for name, tab in tabs(PANEL).items():
        if tab.open:
            with tab, mishaps():
                parts.guesses(PANEL, params, limits, lab) if name == "Guess" else parts.TABS[name](PANEL, params, limits)
    fill_chip(PANEL)


def taken() -> Taken:
    """Return what can be taken from the page as it stands."""
    params = PANEL.read(**limits_now())
    return Taken(params, {"fit": fit, "ledger": ledger, "cost": cost}, lambda: parts.taken(params, run(fit, params)))


explore()
share("feed-forward", PANEL, taken)
close_lab(lab, PANEL)
