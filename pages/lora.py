"""LoRA: what rank does this change need?

Sources: Hu et al. 2021, "LoRA" (arXiv 2106.09685); Eckart & Young 1936; Kalajdzievski 2023, "rsLoRA" (arXiv 2312.03732);
seed notes on parameter-efficient fine-tuning, exercises 10 and 14.
"""

import streamlit as st

from pages.shared import navigation

navigation.require_frame()

from engine.adapters import RULES, STARTS  # noqa: E402
from engine.lora import LoraParams, numbers_at, sweep  # noqa: E402
from engine.lora_params import INPUTS, TASKS  # noqa: E402
from pages.parts import lora as parts  # noqa: E402
from pages.shared.compute import follow  # noqa: E402
from pages.shared.controls import Choice, Integer, Menu, Number, Steps, Text  # noqa: E402
from pages.shared.layout import close_lab, controls, fill_chip, mishaps, more, numbers, open_lab, tabs  # noqa: E402
from pages.shared.panel import Panel  # noqa: E402
from pages.shared.remembered import Pictures  # noqa: E402
from pages.shared.show import show  # noqa: E402
from pages.shared.takeaway import Taken, share  # noqa: E402

figures = Pictures("lora")

PANEL = Panel(
    LoraParams,
    tabs=tuple(parts.TABS),
    task=Menu("Change to learn", TASKS),
    teacher_rank=Integer("Its rank k", 1, 64),
    inputs=Menu("Inputs", INPUTS),
    rule=Menu("Scaling s", RULES),
    start=Menu("Start", STARTS),
    rank=Steps("Rank looked at", (1, 2, 4, 8, 16, 32, 64)),
    d_in=Integer("Input width", 64, 256, 64),
    d_out=Integer("Output width", 64, 256, 64),
    max_rank=Integer("Highest rank", 1, 64),
    n_seeds=Integer("Seeds", 1, 5),
    steps=Integer("Steps", 50, 1000, 50),
    learning_rate=Number("Learning rate", 0.002, 1.0, 0.002),
    alpha=Number("alpha", 1, 64, 1),
    batch=Integer("Batch", 8, 128, 8),
    seed=Integer("First seed", 0, 99),
    dropout=Number("Dropout of the variant", 0.0, 0.9, 0.05),
    places=Choice("Modules", {"qv": "q and v", "attention": "q, k, v, o", "all": "and the MLP"}),
    fable_ranks=Menu("Ranks of your run", {"1": "1", "8": "8", "2,16": "2 and 16", "1,8,64": "1, 8 and 64", "1,2,4,8,16,32,64": "all seven"}),
    fable_seeds=Integer("Seeds of your run", 1, 3),
    fable_steps=Integer("Steps of your run", 5, 200, 5),
    adapter=Text("Folder of an adapter (on your own machine)", 300),
)

lab = open_lab("lora")


@st.fragment
def explore() -> None:
    """Draw all that a control changes."""
    params = parts.read(PANEL)
    with controls():
        PANEL.draw("task", "teacher_rank", "rule", "start", "rank")
        more(PANEL, "inputs", "learning_rate", "alpha", "steps", "n_seeds", "max_rank", "d_in", "d_out", "batch", "seed")
    result = None
    with mishaps():
        result, _ = follow(sweep, params)
        left, right = st.columns(2)
        with left:
            label = "Error left after training at every rank, over the floor"
            show(figures.loss_by_rank(result, params.rank), key="by_rank", label=label, on_pick=PANEL.pick)
        with right:
            show(figures.curves(result), key="curves", label="Error left along the training, a line per rank")
        numbers(numbers_at(result, params.rank))
        parts.say_diverged(result)
    for tab, draw in zip(tabs(PANEL).values(), parts.TABS.values(), strict=True):
        if tab.open:
            with tab, mishaps():
                draw(PANEL, params, result)
    fill_chip(PANEL)


def taken() -> Taken:
    """Return what can be taken from the page as it stands."""
    params, tab = parts.read(PANEL), PANEL.view()["tab"]
    shown = parts.with_usable_adapter(params)[0] if tab == "Merge and save" else params
    return Taken(shown, {"sweep": sweep, **parts.BEHIND.get(tab, {})}, lambda: parts.taken(shown, tab))


explore()
share("lora", PANEL, taken)
close_lab(lab, PANEL)
