"""Take it away: the pictures of the page, the numbers behind them, where they come from, and the code that computes them."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from pages.shared import data
from pages.shared.compute import run

_pictures = st.components.v2.component(
    "bare_weights_pictures",
    html='<div class="pictures"></div>',
    css=data.text("components/pictures.css"),
    js=data.text("components/pictures.js"),
    isolate_styles=False,
)


def take_away(name: str, params, functions: Mapping[str, Callable], table: Callable[[], tuple[list, Sequence]]) -> None:
    """Draw the popover with everything that can be taken from a page.

    ``functions``: what the page shows, engine functions by the name that the JSON gives their results; ``table()``: header
    and rows of the CSV. Files are made when somebody asks for them.
    """
    from engine.provenance import as_json, code_for

    def made_csv() -> str:
        header, rows = table()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        return text.getvalue()

    def made_json() -> str:
        return as_json(params, **{key: run(function, params) for key, function in functions.items()})

    with st.popover("Take it away", key="take_away", on_change="rerun") as popover:
        if not popover.open:
            return
        _pictures(key="pictures", data={"name": name}, height="content")
        with st.container(horizontal=True):
            st.download_button("CSV, the numbers shown", made_csv, f"{name}.csv", "text/csv", on_click="ignore")
            st.download_button("JSON, with provenance", made_json, f"{name}.json", "application/json", on_click="ignore")
        st.caption("The same numbers from Python, in a folder with this project:")
        for function in functions.values():
            st.code(code_for(function, params), language="python")
