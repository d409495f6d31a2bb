"""What can a linear map see? A vector on a line, planes, the row space of a real head, four ways to orthogonalise, least squares.

Sources: seed notes on projections and on orthogonality; Higham 2002, "Accuracy and Stability of Numerical Algorithms".
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

import engine.projections as engine  # noqa: E402
from pages.parts import projections as parts  # noqa: E402
from pages.shared import models  # noqa: E402
from pages.shared.compute import run  # noqa: E402
from pages.shared.controls import Choice, Integer, prompt  # noqa: E402
from pages.shared.guess import guess  # noqa: E402
from pages.shared.layout import close_lab, controls, fill_chip, mishaps, numbers, open_lab, tabs  # noqa: E402
from pages.shared.linked import Numbers  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.takeaway import Taken, share  # noqa: E402
from pages.shared.typed import Typed  # noqa: E402

KEYS = "Arrow keys move a tip by 0.1, with Shift by 0.01; in 3-D, Page Up and Page Down lift and lower it, and the background turns the view."

PANEL = Panel(
    engine.ProjectionsParams,
    tabs=("Drag", "Subspace", "A real head", "Orthogonalise", "Least squares", "Guess"),
    view={"angles": (Numbers("Seen from", -180, 180, 2, fewest=2, digits=1), (-50.0, 22.0))},
    model=models.control(),
    space=Choice("Drag the tips of v and a", {"2-D": "", "3-D": ""}, help=KEYS),
    v=Numbers("v", -3, 3, 3, fewest=2),
    a=Numbers("a", -3, 3, 3, fewest=2),
    matrix=Typed("Columns of A, typed or pasted", engine.canonical, "3 rows of 1 or 2 numbers"),
    slant=Integer("Slant of the oblique projection, degrees", 0, 80, 5),
    kappa=Integer("Condition number κ, power of ten", 0, 16),
    weight=Choice("Weight", dict.fromkeys(engine.WEIGHTS, "")),
    layer=Integer("Layer", 0),
    head=Integer("Head", 0),
    prompt=prompt(400),
    method=Choice("Method", dict.fromkeys(engine.METHODS, "")),
    step=Integer("Step", 0),
    points=Numbers("Points", -2, 2, 24, fewest=4, digits=2, group=2),
    degree=Integer("Degree of the polynomial", 0, 6),
    rank=Integer("Directions kept", 1),
)
DRAWN = {
    "Drag": parts.drag,
    "Subspace": parts.subspace,
    "A real head": parts.real_head,
    "Orthogonalise": parts.orthogonalise,
    "Least squares": parts.least_squares,
}

lab = open_lab("projections")
shape = models.shape(PANEL)
of_model = {"layer": shape.n_layers - 1, "head": shape.n_heads - 1, "rank": shape.d_model}
models.sidebar(PANEL)


@st.fragment
def explore() -> None:
    """Draw all that a control or a hand changes; nothing else of the page runs again."""
    params, limits = standing()
    result = run(engine.drag, params)
    with controls():
        PANEL.draw("space")
    parts.line_by_hand(PANEL, params, result)
    for sentence in result.said:
        st.info(sentence)
    numbers(shown(result))
    for name, tab in tabs(PANEL).items():
        if tab.open:
            with tab, mishaps():
                DRAWN.get(name, ask)(PANEL, params, limits)
    fill_chip(PANEL)


def standing() -> tuple[engine.ProjectionsParams, dict[str, int]]:
    """Return the parameters that the page stands at, and the upper limits that the model and the method set."""
    limits = {**of_model, "step": engine.STEP_COUNT[PANEL.read(**of_model).method]}
    return PANEL.read(**limits), limits


def shown(result) -> list:
    """Return the numbers of the first screen; another one answers a guess."""
    return list(engine.drag_numbers(result).values())[:3]


def taken() -> Taken:
    """Return what can be taken from the page as it stands."""
    params, _ = standing()
    functions = {name: engine.PARTS[name] for name in ("drag", "parallel", "reading")}
    rows = [[n.label, n.value, n.chance] for n in shown(run(engine.drag, params))]
    return Taken(params, functions, lambda: (["", "value", "chance"], rows))


def ask(panel: Panel, params, limits: dict) -> None:
    """Ask every guess of the lab."""
    for asked in lab.guesses:
        guess(asked, panel, parts.guess_number, parts.guess_picture)


explore()
share("projections", PANEL, taken)
close_lab(lab, PANEL)
