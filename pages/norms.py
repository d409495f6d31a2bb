"""Which numbers are averaged, and what is lost?

Sources: seed notes on BatchNorm, LayerNorm, RMSNorm, initialisation and orthogonal stacks; the papers in ``engine.normalisation``.
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

from engine.depth import depth_study  # noqa: E402
from engine.norm_values import INITS, PLACES, STACKS, NormsParams  # noqa: E402
from engine.norms import BlockResult, block, block_numbers, entries  # noqa: E402
from engine.params import Number as Reading  # noqa: E402
from engine.settings import settings  # noqa: E402
from pages.parts import norms as parts  # noqa: E402
from pages.shared import models  # noqa: E402
from pages.shared.compute import run  # noqa: E402
from pages.shared.controls import Choice, Integer, Number, Steps, Switch, prompt  # noqa: E402
from pages.shared.guess import guess  # noqa: E402
from pages.shared.hands import by_hand, encoded  # noqa: E402
from pages.shared.layout import close_lab, controls, fill_chip, mishaps, more, numbers, open_lab, tabs  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.remembered import Pictures, remembered  # noqa: E402
from pages.shared.show import show  # noqa: E402
from pages.shared.takeaway import Taken, share  # noqa: E402

stacks = Pictures("depth")
figures = Pictures("norms")

VALUES = ("gaussian", "shifted", "heavy", "constant", "real")
PANEL = Panel(
    NormsParams,
    tabs=(*parts.TABS, "Guess"),
    norm=Choice("Norm", dict.fromkeys(("batch", "layer", "rms"), "")),
    values=Choice("Values", dict.fromkeys(VALUES, ""), help="shifted: features around means of their own; real: a model's residual stream"),
    batch=Integer("Batch size", 1, 8),
    outlier=Steps("Outlier (0: none)", (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)),
    tokens=Integer("Tokens", 1, 8),
    features=Steps("Features", (1, 2, 3, 4, 8, 16, 32, 64, 128, 256)),
    eps=Steps("Epsilon", (0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)),
    seed=Integer("Seed", 0, 20),
    model=models.control(),
    mean=Number("Mean added to every feature", 0.0, 3.0, 0.1),
    prompt=prompt(400),
    stack=Choice("Block", dict.fromkeys(STACKS, ""), help="relu: Linear then ReLU; linear: Linear alone"),
    init=Choice("Initialisation", dict.fromkeys(INITS, "")),
    place=Choice("Place of the norm", dict.fromkeys(PLACES, ""), help="post: after the block and its residual; pre: before the block"),
    residual=Switch("Residual"),
    depth=Steps("Blocks", (1, 2, 5, 10, 20, 50, 100, 200)),
    width=Steps("Width", (8, 16, 32, 64)),
    seeds=Steps("Networks, one seed each", tuple(n for n in (1, 2, 4, 8, 16) if n <= settings().sweep)),
    clip=Switch("Clip gradients at norm 1"),
    running=Switch("Evaluation: running statistics"),
)

lab = open_lab("norms")
shape = models.shape(PANEL)
models.sidebar(PANEL)


@st.fragment
def explore() -> None:
    """Draw all that a control changes; nothing else of the page runs again while a slider moves."""
    params = PANEL.read()
    with controls():
        PANEL.draw("norm", "values", "batch", "outlier")
        if params.norm == "batch":
            PANEL.draw("running")
        more(PANEL, "tokens", "features", "eps", "seed")
    said = set()
    with mishaps(said):
        result = run(block, params)
        by_hand("block", key="block", data=block_data(result), height="content")
        read_off = block_numbers(params, result)
        numbers(read_off[name] for name in ("mean", "rms", "others", "lost") if name in read_off)
        if result.notes:
            st.caption(" ".join(result.notes))
    drawn = tabs(PANEL)
    for name, draw in parts.TABS.items():
        if drawn[name].open:
            with drawn[name], mishaps(said):
                draw(PANEL, params, said)
    if drawn["Guess"].open:
        with drawn["Guess"]:
            for asked in lab.guesses:
                guess(asked, PANEL, number_of, picture_of)
    fill_chip(PANEL)


def taken() -> Taken:
    """Return what can be taken from the page as it stands."""
    params = PANEL.read()
    return Taken(params, {"block": block, "depth": depth_study}, lambda: entries(run(block, params)))


@remembered
def block_data(result: BlockResult) -> bytes:
    """Return what the block's component draws."""
    return encoded(figures.block_data(result))


def number_of(params: NormsParams, name: str) -> Reading:
    """Return the number that a guess is about."""
    return run(depth_study, params).numbers()[name] if name == "difference" else block_numbers(params, run(block, params))[name]


def picture_of(params: NormsParams, name: str, key: str) -> None:
    """Draw what a guess was about."""
    if name == "difference":
        show(stacks.course(run(depth_study, params)), key=key, label="What is left, block by block")
    else:
        by_hand("block", key=key, data=block_data(run(block, params)), height="content")


explore()
share("norms", PANEL, taken)
close_lab(lab, PANEL)
