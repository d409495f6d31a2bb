"""The first screen's sketch and the tabs of the feed-forward page."""

import json
from collections.abc import Hashable
from functools import lru_cache

import numpy as np
import streamlit as st

from engine.errors import LabError
from engine.ffn import fit_numbers, sweep_numbers
from engine.ffn_cost import cost
from engine.ffn_fit import FitResult, Fitted, drawn_points, fit, grid, sweep, target_values
from engine.ffn_jacobian import jacobian
from engine.ffn_ledger import ledger
from engine.ffn_neuron import edit, neuron
from engine.ffn_params import ACTIVATIONS, SNAPSHOT_EVERY, FfnParams
from engine.ffn_regions import linear, regions
from engine.ffn_roofline import machine
from engine.ffn_token import TOKEN_LIMIT
from engine.models.loading import tokenize
from engine.params import Number
from pages.shared.compute import identity_now, run
from pages.shared.guess import guess
from pages.shared.hands import by_hand
from pages.shared.layout import escaped, mishaps, numbers, prose
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures, remembered
from pages.shared.show import show

figures = Pictures("ffn")
costs = Pictures("ffn_cost")
tokens = Pictures("ffn_token")

HEIGHT = 400
KNOTS = 17


def sketch(panel: Panel, params: FfnParams, result: FitResult) -> None:
    """Draw the target and the fit of the chosen activation; the hand draws a target, and scrubs or plays the training."""
    fitted, drawn = result.fits[params.activation], params.target == "drawn"
    x, y = drawn_points(params.drawing) if drawn else (grid(KNOTS), target_values(params, grid(KNOTS)))
    data = {
        "points": np.stack([x, y], axis=1).tolist(),
        "drawn": drawn,
        "target": np.round(result.target, 3).tolist(),
        "course": remembered(_course)(fitted),
        "curvesKey": f"{params.activation} {params.width} {params.seed} {params.cutoff} {params.target} {params.drawing if drawn else ''}",
        "steps": result.steps.tolist(),
        "step": params.steps,
        "name": ACTIVATIONS[params.activation].name,
        "label": "Target curve and fitted curve on -2 to 2",
    }
    by_hand("sketch", key="sketch", data=data, height=HEIGHT, on_release=panel.pick)


def units(params: FfnParams, result: FitResult) -> None:
    """Draw what every unit of the chosen activation adds."""
    picture = figures.units(result.fits[params.activation], params.steps, params.steps // SNAPSHOT_EVERY)
    show(picture, key="units", label="What every unit adds to the fitted curve, by place of its switch")


def last_token(params: FfnParams) -> int | None:
    """Return the index of the prompt's last token, or None if it cannot be read."""
    return _last_token(params.model, params.prompt, identity_now(params.model))


@lru_cache(maxsize=256)
def _last_token(model: str, prompt: str, _identity: Hashable) -> int | None:
    try:
        return len(tokenize(model, prompt, TOKEN_LIMIT)[0]) - 1
    except LabError:
        return None


def fitting(panel: Panel, params: FfnParams, limits: dict) -> None:
    """Draw the training of all activations, and error against size over several seeds."""
    prose(
        "Gated layers are said to be more flexible for their parameters. Here all four have equally many, the same data and the same "
        "steps of Adam. Only ReLU makes straight pieces; the other three are smooth. The best constant is what chance amounts to."
    )
    result = run(fit, params)
    numbers(_final(name, result) for name in result.fits)
    sizes = st.toggle("Train four sizes of each, eight seeds (up to half a minute on two busy cores)", key="sizes", value=False)
    left, right = st.columns(2) if sizes else (st.container(), None)
    with left:
        show(figures.training(result, params.steps), key="training", label="Error of every activation through training")
    if sizes:
        with right:
            found = run(sweep, params)
            show(figures.sizes(found), key="sweep", label="Error after training against parameters")
            st.caption(f"{found.networks} networks, trained side by side.")


def token(panel: Panel, params: FfnParams, limits: dict) -> None:
    """Draw one token's ledger, one neuron, and what the model says without it."""
    prose("A layer's output is a sum: neuron i adds its column of $W_{down}$, scaled by its activation. How many does a token need?")
    _where(panel, limits)
    found = run(ledger, params)
    _tokens(found)
    left, right = st.columns(2)
    with left:
        show(tokens.reconstruction(found), key="ledger", label="What is left of the output after the largest k neurons")
    with right:
        show(tokens.gates(found, params.neuron), key="gates", label="Every neuron's gate against its up-projection", on_pick=panel.pick)
    numbers([*found.numbers().values(), Number("Sum against the module, digits", -float(np.log10(max(found.mismatch, 1e-17))))])
    st.markdown("#### One neuron: what it writes, what excites it, what is lost without it")
    st.caption("Each change runs the model six times over 508 tokens: seconds, up to half a minute on two busy cores.")
    largest = int(found.order[0])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        panel.draw("neuron", "edit", **limits)
        if params.edit == "keep":
            panel.draw("keep", **limits)
        st.button(f"The largest here: {largest}", on_click=panel.pick, args=({"neuron": largest},))
    left, right = st.columns(2)
    with left:
        of_neuron = run(neuron, params)
        show(tokens.words(of_neuron), key="words", label=f"Tokens that neuron {params.neuron} promotes and holds back")
    with right, mishaps():
        edited = run(edit, params)
        show(tokens.next_token(edited), key="next", label="Next-token probabilities before and after")
        numbers(edited.numbers().values())
    st.caption(f"The text that excites it most, of {of_neuron.tokens_read} tokens of held-out prose:")
    lines = [
        f"`{value:+.1f}`&ensp;{_plain(before)} :primary-background[{_plain(here)}] {_plain(after)}"
        for before, here, after, value in of_neuron.excerpts
    ]
    st.markdown("  \n".join(lines))


def plane(panel: Panel, params: FfnParams, limits: dict) -> None:
    """Draw the regions of ReLU units on two inputs, and what the nonlinearity adds in a real layer."""
    prose(
        "Each ReLU switches along a line, so $h$ of them cut the plane into at most $1 + h + h(h-1)/2$ regions, or $2h$ if all lines pass "
        "through the origin. A new line gains one region for each that it passes through, and it meets each older line once: so the "
        "regions grow like $h^2$, and are never $2^h$ once $h > 2$."
    )
    left, right = st.columns(2)
    with left:
        panel.draw("lines", "biases")
        found = run(regions, params)
        show(figures.regions(found), key="regions", label="The plane cut into regions by ReLU units")
        numbers(found.numbers().values())
    with right:
        panel.draw("layer", **limits)
        real = run(linear, params)
        st.caption("A real layer: going up alone adds no direction; the nonlinearity between does.")
        show(tokens.ranks(real), key="ranks", label="Singular values of hidden vectors before and after the nonlinearity")
        numbers(real.numbers().values())
    prose(
        f"This layer has {real.d_ff} switches on {real.d_model} inputs. ReLUs there could cut at most $10^{{{real.bound_digits:.0f}}}$ regions, "
        f"not $2^{{{real.d_ff}}} = 10^{{{real.patterns_digits:.0f}}}$."
    )


def slopes(panel: Panel, params: FfnParams, limits: dict) -> None:
    """Draw the Jacobian's spectrum at a token."""
    prose(
        "$J = W_{down}\\,\\mathrm{diag}(f'(z))\\,W_{up}$, in a gated layer "
        "$J = W_{down}[\\mathrm{diag}(f(g))\\,W_{up} + \\mathrm{diag}(u f'(g))\\,W_{gate}]$: how the layer answers a small change of its input."
    )
    _where(panel, limits)
    found = run(jacobian, params)
    _tokens(found)
    show(tokens.jacobian(found), key="jacobian", label="Singular values of the layer's Jacobian at the token")
    numbers(found.numbers().values())


def price(panel: Panel, params: FfnParams, limits: dict) -> None:
    """Draw arithmetic by part, the widths that models chose, and the roofline."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        panel.draw("shape", "context", "batch")
    if params.shape == "own":
        with st.container(horizontal=True, vertical_alignment="bottom"):
            panel.draw("d_model", "ratio", "gated", "experts", "top_k", **limits)
    found = run(cost, params)
    numbers(found.numbers().values())
    left, right = st.columns(2)
    with left:
        show(costs.arithmetic(found, params.context), key="arithmetic", label="Share of the arithmetic by part as the sequence grows")
    with right:
        show(costs.widths(found), key="widths", label="Width over d_model of published models")
    asked = st.toggle("Measure this machine now (some seconds, up to half a minute if it is busy)", key="measure", value=False)
    measured = run(machine, params) if asked else None
    show(costs.roofline(found, measured, params.batch), key="roofline", label="Roofline of accelerators and of this machine")
    if measured:
        st.caption(
            "This machine in float32: a SwiGLU layer whose weights come from memory, 16 copies in turn, under the best speed of a square product "
            "and of matrix times vector, or of the layer itself where that was faster. The accelerators: makers' figures in bfloat16."
        )


def guesses(panel: Panel, params: FfnParams, limits: dict, lab) -> None:
    """Ask the lab's questions."""
    for asked in lab.guesses:
        guess(asked, panel, number_of, picture_of)


def number_of(params: FfnParams, key: str) -> Number:
    """Return the number that a guess is about, just computed."""
    sources = {
        "regions_bound": lambda: run(regions, params).numbers(),
        "best_at_31": lambda: sweep_numbers(run(sweep, params)),
        "neurons_90": lambda: run(ledger, params).numbers(),
    }
    return sources[key]()[key]


def picture_of(params: FfnParams, decides: str, key: str) -> None:
    """Draw what a guess was about."""
    if decides == "regions_bound":
        show(figures.regions(run(regions, params)), key=key, label="The plane cut into regions")
    elif decides == "neurons_90":
        show(tokens.reconstruction(run(ledger, params)), key=key, label="What is left of the output")
    else:
        show(figures.sizes(run(sweep, params)), key=key, label="Error against parameters")


def about_training() -> None:
    """Say what the settings under *More* do."""
    st.caption("Random weights: step 0. The cutoff shifts every switch; a bias that is trained can take it back.")
    st.caption("A new setting trains 2000 steps, some seconds; another setting abandons it. Replay shows the training that was done.")


TABS = {"Fit": fitting, "One token": token, "Regions": plane, "Jacobian": slopes, "Cost": price}


def first_numbers(params: FfnParams, result: FitResult) -> list[Number]:
    """Return the numbers of the first screen."""
    return list(fit_numbers(params, result).values())


def taken(params: FfnParams, result: FitResult) -> tuple[list[str], list[list[float]]]:
    """Return header and rows of the CSV: the target and every fit at the chosen step, at each x."""
    curves = [fitted.curves[params.steps // SNAPSHOT_EVERY] for fitted in result.fits.values()]
    return ["x", "target", *result.fits], np.stack([grid(), result.target, *curves], axis=1).tolist()


def _final(name: str, result: FitResult) -> Number:
    return Number(f"{ACTIVATIONS[name].name}, {result.fits[name].units} units", float(result.fits[name].errors[-1]), result.constant_error, 4)


def _where(panel: Panel, limits: dict) -> None:
    panel.draw("prompt")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        panel.draw("token", "layer", **limits)


def _tokens(found) -> None:
    """Write the prompt with the chosen token marked."""
    words = [f" :primary-badge[{_plain(label.strip()) or '␣'}] " if i == found.token else _plain(label) for i, label in enumerate(found.labels)]
    st.markdown("".join(words))


def _plain(text: str) -> str:
    return escaped(text.replace("\n", " "))


def _course(fitted: Fitted) -> str:
    """Return the curve and the switches at every snapshot as JSON: text, which is made once."""
    switches = [_in_view(fitted, snapshot) for snapshot in range(len(fitted.curves))]
    return json.dumps({"curves": np.round(fitted.curves, 3).tolist(), "switches": switches}, separators=(",", ":"))


def _in_view(fitted: Fitted, snapshot: int) -> list[float]:
    places = fitted.switches(snapshot)
    return np.round(places[(places > -2) & (places < 2)], 3).tolist()
