"""How every page looks: title and question, the chip, numbers beside chance, tabs, note, share row."""

import html
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager

import streamlit as st

from engine.errors import LabError
from pages.shared import data
from pages.shared.link import escaped
from pages.shared.panel import TAB, Panel, fresh_notes

_CHIP = "_chip"
NOTES_SHOWN = 3
READING = 640
"""Pixels of a line that is read with ease; on a phone the page's width."""


def style(presenting: bool) -> None:
    """Load the project's style sheet, and the projector's on top of it."""
    st.html(data.ASSETS / "style.css")
    if presenting:
        st.html(data.ASSETS / "present.css")


def open_lab(slug: str) -> data.Lab:
    """Draw the title, the question and the place of the chip; return the lab's data."""
    lab = data.lab(slug)
    with st.container(key="lab_head", horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        st.markdown(f"## {lab.title}\n{lab.question}")
        st.session_state[_CHIP] = st.empty()
    return lab


def fill_chip(panel: Panel) -> None:
    """Say at the top how long the last result took: the end of what controls change."""
    from engine.device import compute_device

    panel.agree()
    seconds = st.session_state.get("_seconds")
    took = "" if seconds is None else f" · last result {1000 * seconds:.0f} ms"
    st.session_state[_CHIP].markdown(f":gray-badge[{compute_device().label}{took}]")


def close_lab(lab: data.Lab, panel: Panel) -> None:
    """Draw the presets and the note: the end of every page, but in the projector's view."""
    if not presenting():
        _presets(lab, panel)
        with st.container(key="prose_note"):
            st.markdown(data.text(f"notes/{lab.slug}.md"))


def presenting() -> bool:
    """Return whether the link asks for the projector's view, ``?present=1``."""
    return st.query_params.get("present") == "1"


def prose(text: str) -> None:
    """Write a paragraph at reading width; nothing in the projector's view."""
    if not presenting():
        st.markdown(text, width=READING)


def numbers(shown: Iterable) -> None:
    """Draw numbers in a row, each a dash for one that is undefined, with what chance would give beneath it, and what it was before a change."""
    cells = [(("dt", "label", number.label), ("dd", "value", _read(number)), ("dd", "beside", number.beside)) for number in shown]
    lists = ["".join(f'<{tag} class="{kind}">{html.escape(text)}</{tag}>' for tag, kind, text in cell if text) for cell in cells]
    st.html(f'<dl class="numbers">{"".join(f"<div>{one}</div>" for one in lists)}</dl>')


def tabs(panel: Panel) -> Mapping:
    """Draw the page's tabs and return them by name; ``.open`` tells which one is to be computed."""
    drawn = st.tabs(panel.tabs, key=TAB, bind="query-params", on_change="rerun", default=panel.tabs[0])
    return dict(zip(panel.tabs, drawn, strict=True))


@contextmanager
def controls():
    """Say what was mended in the link, and stand controls side by side above the picture; they wrap on a phone."""
    if notes := fresh_notes():
        st.warning("  \n".join(escaped(note) for note in notes[:NOTES_SHOWN]))
        if rest := notes[NOTES_SHOWN:]:
            with st.expander(f"{len(rest)} more of this link mended"):
                st.markdown("  \n".join(escaped(note) for note in rest))
    with st.container(key="controls", horizontal=True, vertical_alignment="bottom"):
        yield


def more(panel: Panel, *names: str, rest: Callable[[], None] = lambda: None, key: str = "more", **limits) -> None:
    """Draw a popover with controls that are seldom moved, and the ``rest`` of it, once somebody opens it or one of them has been moved.

    Every control costs the server and the browser their time whenever any other is moved.
    """
    with st.popover("More", key=key, on_change="rerun") as popover:
        if popover.open or panel.is_moved(*names):
            panel.draw(*names, **limits)
            rest()


@contextmanager
def mishaps(said: set[str] | None = None):
    """Show what cannot be done as a sentence in its place, and go on with the rest of the page.

    ``said``: the sentences that this run of the page has shown already; none of them is shown again.
    """
    try:
        yield
    except LabError as error:
        if said is None or str(error) not in said:
            st.error(escaped(str(error)))
        if said is not None:
            said.add(str(error))


def matrix(name: str, M) -> None:
    """Write a small matrix with its name, three decimals an entry, or two digits of a tiny one."""
    rows = r" \\ ".join(" & ".join(_tex(float(entry)) for entry in row) for row in M)
    st.latex(rf"\footnotesize {name} = \begin{{pmatrix}} {rows} \end{{pmatrix}}")


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Write a small table; every cell is shown as it is."""
    lines = [[escaped(str(cell)) for cell in row] for row in (header, *rows)]
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    st.markdown("\n".join("| " + " | ".join(line) + " |" for line in ruled))


def _read(number) -> str:
    """Return a number in words; a dash if there is no such number."""
    return "—" if math.isnan(number.value) else f"{number.value:.{number.digits}f}{number.unit}"


def _tex(x: float) -> str:
    number, _, exponent = (f"{x:.1e}" if 0 < abs(x) < 1e-3 else f"{x:.3f}" if x != round(x) else f"{x:.0f}").partition("e")
    return rf"{number}\!\cdot\!10^{{{int(exponent)}}}" if exponent else number


def _presets(lab, panel: Panel) -> None:
    st.markdown("#### Worth opening")
    with st.container(key="presets"):
        for preset in lab.presets:
            if not panel.offers(preset.link):
                continue
            with st.container(border=True):
                st.button(f":primary[**{preset.label}**]", on_click=panel.apply, args=(preset.link,), key=f"preset_{preset.label}", type="tertiary")
                st.caption(preset.look)
