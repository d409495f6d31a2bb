"""The one way to draw a figure, and the other small browser components."""

import json
from collections.abc import Callable, Mapping

import streamlit as st

from pages.shared import data, static
from pages.shared.remembered import Picture

_figure = st.components.v2.component(
    "bare_weights_figure",
    html='<div class="figure" role="img"></div>',
    css=data.text("components/figure.css"),
    js=data.text("components/figure.js"),
    isolate_styles=False,
)
_copy_link = st.components.v2.component(
    "bare_weights_copy_link",
    html='<button type="button"></button><input readonly hidden aria-label="Link to this view">',
    css=data.text("components/copy_link.css"),
    js=data.text("components/copy_link.js"),
)
_picture = st.components.v2.component("bare_weights_picture", html="<div></div>", js=data.text("components/picture.js"))


def show(picture: Picture, *, key: str, label: str, on_pick: Callable[[dict], None] | None = None, narrow: Picture | None = None) -> None:
    """Draw a picture that keeps its node and its zoom when its data change.

    ``label`` says in words what is seen; ``narrow`` is another of the same height for a phone. A click on a point
    that carries ``customdata`` calls ``on_pick`` with it before the page runs again; where ``layout.meta`` holds a
    ``cursor`` (row, column), the arrow keys do the same for the points next to it.
    """

    def clicked() -> None:
        picked = st.session_state[key].get("click")
        if on_pick and isinstance(picked, dict):
            on_pick(picked)

    about = json.dumps({"label": label, "library": f"app/static/{static.PLOTLY}", "clicks": on_pick is not None})
    lines = [about.encode(), *picture.lines, *(narrow.lines if narrow else ())]
    _figure(key=key, data=b"\n".join(lines), height=picture.height, on_click_change=clicked)


def copy_link(defaults: Mapping[str, str], behind: Mapping[str, tuple[str | None, str]]) -> None:
    """Draw the button that copies the address of this page with every setting in it, ``defaults`` for what it leaves out.

    ``behind``: what the address says wrongly, and what is meant.
    """
    _copy_link(key="copy_link", data={"defaults": dict(defaults), "behind": dict(behind)}, height="content")


def picture(path: str, label: str, *, key: str) -> None:
    """Draw an SVG of the project's own ``assets/``, which takes its colours from the theme."""
    _picture(key=key, data={"svg": data.text(path), "label": label})
