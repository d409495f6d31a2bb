"""The tabs of the RoPE page: what holds of the rotation, what a law changes, what a model does under every law."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import streamlit as st

from engine.models.rope_config import difference, export, of_model, read_pasted
from engine.models.weights import model_shape
from engine.params import Number
from engine.rope import RopeParams, RopeResult, example_lists, frequencies, refusal
from engine.rope import table as frequency_table
from engine.rope_laws import LAWS
from engine.rope_measure import LossResult, induction, loss_numbers, loss_rows, losses_by_position
from engine.rope_scores import costs, rotation, score_by_distance, shift_errors, sinusoidal, stale_cache, temperature, unseen_phases
from pages.shared.compute import follow, run
from pages.shared.controls import Number as Control
from pages.shared.layout import escaped, mishaps, numbers, prose
from pages.shared.panel import Panel
from pages.shared.remembered import Pictures
from pages.shared.show import show

figures = Pictures("rope")
measured = Pictures("rope_measure")


class Turned(Control):
    """A real number that the rotor sets; the link alone holds it."""

    by_hand = True


def turn(panel: Panel, params: RopeParams) -> None:
    """Draw what holds of the rotation itself."""
    prose("Move query and key together, and their score stays: only the distance counts. In floating point the angles are rounded, and it drifts.")
    found = run(rotation, params)
    _two_by_two(
        ("rotation", figures.rotation(found.matrix, found.position), "The rotation matrix of the pairs drawn above, plain"),
        ("precision", figures.precision(run(shift_errors, params)), "Change of a score when both positions move, by precision"),
    )
    numbers(
        [
            Number("RᵀR = I, to decimal digits", _digits(found.orthogonal), _digits(found.unrelated), against="with the next R"),
            Number("RₐR_b = Rₐ₊b, to decimal digits", _digits(found.hops), _digits(found.unrelated), against="with the next R"),
        ]
    )
    with folded("Beside it: sinusoidal and learned positions, and what each costs", "beside") as is_open:
        if is_open:
            _beside(params)


def _digits(error: float) -> float:
    """Return how many decimal digits an error leaves right; an error of 0 counts as the last bit."""
    return -math.log10(max(error, 2.0**-53))


def stretch(panel: Panel, params: RopeParams) -> None:
    """Draw what the law changes, for the pairs that it is applied to."""
    panel.draw("pairs", "ramp")
    forms = [p for p in (replace(params, scheme=name) for name in LAWS) if not refusal(p)]
    unseen, context = run(unseen_phases, params), params.original_context
    _two_by_two(
        ("laws", figures.laws({p.scheme: run(frequencies, p) for p in forms}, params.scheme), "Speed left to each pair under every law"),
        ("waves", figures.wavelengths(run(frequencies, params), params.scheme), "Wavelength of each pair against the trained context"),
        ("unseen", figures.unseen(unseen, "plain", params.scheme, context), "Angles that training never saw, plain"),
        ("unseen_law", figures.unseen(unseen, "scaled", params.scheme, context), "Angles that training never saw, under the law"),
        ("scores", figures.score_curve(run(score_by_distance, params), params), "Score against distance, plain and under the law"),
        ("softmax", figures.temperatures(run(temperature, params)), "Softmax weights with and without the attention factor"),
    )
    with folded("Settings as JSON: from a model or pasted, and for transformers", "json") as is_open:
        if is_open:
            _settings(panel, params)


def measure(params: RopeParams, found: LossResult | None, is_all: bool) -> None:
    """Draw the model under every law, without fine-tuning: the losses as far as they are read, then copying."""
    if found is not None:
        _two_by_two(
            ("all_laws", measured.all_laws(found, params.scheme), "Loss by position under every law"),
            ("price", measured.price(found, params.scheme), "Loss at 1x and beyond it, law by law"),
        )
        if is_all:
            show(measured.copying(run(induction, params), params.scheme), key="copying", label="Copying by repeat distance under every law")
        with folded("The numbers, with their spread and the tokens behind them", "numbers") as is_open:
            if is_open:
                st.dataframe(table(found), hide_index=True)
                st.caption("  \n".join(escaped(f"{name} is left out. {why}") for name, why in found.refused))
    with folded("Dynamic NTK and the cache: keys turned under an old base", "cache") as is_open:
        if is_open:
            prose("Dynamic NTK has another base at every length. Keys that stay in a cache as they were turned then do not fit the query of today.")
            show(figures.stale(run(stale_cache, params), params.used_length), key="stale", label="Error of a score by distance, keys left as cached")


def losses(params: RopeParams, first: list[Number]) -> tuple[LossResult | None, bool]:
    """Draw the loss by position, growing while windows of text are read, and the numbers; return what there is, and whether that is all.

    ``first``: numbers that need no model.
    """
    chart, row, found, is_all = st.container(), st.container(), None, True
    with mishaps():
        found, is_all = follow(losses_by_position, params)
    if found is not None:
        with chart:
            show(measured.loss(found, params.scheme, params.position, params.model), key="loss", label="Loss by position, plain and under the law")
        read = loss_numbers(params, found)
        first = [*first, read["loss"], read["loss_1x"]]
    with row:
        numbers(first)
    return found, is_all


def example(panel: Panel, params: RopeParams) -> None:
    """Draw the button that fills in lists for LongRoPE, said to be ours."""
    with mishaps():
        lists = example_lists(params)
        st.button("Fill in example lists for LongRoPE", on_click=panel.pick, args=(lists,))
        st.caption("The example is ours, not the paper's: 1 within the trained length, and beyond it the divisors of by parts.")


def shown_table(law: RopeResult, params: RopeParams, found: LossResult | None) -> tuple[list[str], list[list]]:
    """Return header and rows of what the page shows: a row per pair, and as far as measured per law and position, and its price."""
    header, pairs = frequency_table(law)
    rows = [[name, law.scheme, row[0], value, ""] for row in pairs for name, value in zip(header[1:], row[1:], strict=True)]
    return ["quantity", "law", "pair or position", "value", "standard error"], rows + (loss_rows(found) if found else [])


def table(losses: LossResult) -> list[dict]:
    """Return a row per law: loss at 1x, its price, loss at the length, and their standard errors over windows."""
    plain, rows = losses.mean("none", "at_1x")[0], []
    tokens = losses.longer.shape[1] * losses.point_tokens
    for name in losses.schemes:
        (short, short_error), (long, long_error) = losses.mean(name, "at_1x"), losses.mean(name)
        row = {"law": figures.NAMES[name], "at 1x": short, "± 1x": short_error, "price at 1x": short - plain}
        row |= {f"at {losses.reach}x": long, f"± {losses.reach}x": long_error, "beyond 1x": losses.beyond(name)}
        rows.append({key: value if isinstance(value, str) else round(value, 3) for key, value in row.items()} | {"tokens a point": tokens})
    return rows


@contextmanager
def folded(label: str, key: str) -> Iterator[bool]:
    """Draw what is folded away and tell whether it is open: what is closed is not to be computed."""
    fold = st.expander(label, key=f"fold_{key}", on_change="rerun")
    with fold, mishaps():
        yield fold.open


def _two_by_two(*pictures: tuple) -> None:
    """Draw (key, figure, label) side by side in rows of two."""
    for i in range(0, len(pictures), 2):
        for column, (key, figure, label) in zip(st.columns(2), pictures[i : i + 2], strict=True):
            with column:
                show(figure, key=key, label=label)


def _beside(params: RopeParams) -> None:
    """Draw sinusoidal positions, the check of their shift matrix, and the costs on the chosen model's shape."""
    found = run(sinusoidal, params)
    prose("Sinusoidal positions are added, not turned. Yet a step of k is a matrix there too: PE(p + k) = M_k PE(p), block by block.")
    show(figures.positions(found), key="positions", label="Sinusoidal encoding, a row per position")
    error, wrong = 1e14 * float(found.error.max()), 1e14 * found.wrong_step
    worst = Number("Largest |PE(p + k) − M_k PE(p)|, × 10⁻¹⁴", error, wrong, 1, against="with M of a wrong step")
    numbers([worst])
    shape = model_shape(params.model)
    cost = costs(shape.n_layers, shape.n_heads, shape.n_kv_heads, shape.d_model, shape.d_head, shape.context)
    header = {
        "positions": cost.kinds,
        "operations a token": cost.operations,
        "bytes of weights": cost.parameter_bytes,
        "bytes of a table": cost.table_bytes,
    }
    st.dataframe(header, hide_index=True)
    st.caption("RoPE turns queries and keys in every layer and learns nothing; the others act once, at the input. Values are not turned.")


def _settings(panel: Panel, params: RopeParams) -> None:
    """Draw the settings as transformers takes them, how far it agrees, and where others can be pasted."""
    left, right = st.columns(2)
    with left:
        found = run(difference, params)
        st.code(json.dumps(export(params), indent=1), language="json", height=300)
        numbers([Number(f"Largest relative difference to transformers {found.version}, × 10⁻⁷", 1e7 * found.inv_freq, None, 1)])
        st.caption("transformers computes in float32, whose rounding is about 1 × 10⁻⁷. Put both entries into a config.json.")
    with right, mishaps():
        text = st.text_area("rope_parameters, rope_scaling or a whole config.json", key="pasted", height=200)
        if text.strip():
            _apply(panel, "Use what is pasted", lambda: read_pasted(params, text))
        _apply(panel, f"Use the settings of {params.model}", lambda: of_model(params))


def _apply(panel: Panel, label: str, read: Callable[[], RopeParams]) -> None:
    """Draw a button that moves every control to settings read from JSON, or the sentence why they cannot be used."""
    with mishaps():
        found = read()
        law, link = frequencies(found), panel.write(found, tab="Stretch")
        st.button(escaped(label), on_click=panel.apply, args=(link,))
        for note in panel.settle(link)[1]:
            st.warning(escaped(note))
        st.caption(
            f"{figures.NAMES[found.scheme]}, factor {found.factor:g}, base {found.base:g}, width {found.d_head}, attention {law.attention_factor:.4f}"
        )
