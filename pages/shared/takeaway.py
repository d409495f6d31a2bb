"""Share it or take it away: the link, the pictures of the page, the numbers behind them, where they come from, and the code that computes them."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import streamlit as st

from pages.shared import data
from pages.shared.compute import run
from pages.shared.panel import Panel
from pages.shared.show import copy_link

_pictures = st.components.v2.component(
    "bare_weights_pictures",
    html='<div class="pictures"></div>',
    css=data.text("components/pictures.css"),
    js=data.text("components/pictures.js"),
    isolate_styles=False,
)


class Taken(NamedTuple):
    """What can be taken from a page: parameters, the functions behind it by the name that the JSON gives their results, and the
    CSV's header and rows, made when somebody asks for them.
    """

    params: object
    functions: Mapping[str, Callable]
    table: Callable[[], tuple[list, Sequence]]


@st.fragment
def share(name: str, panel: Panel, taken: Callable[[], Taken]) -> None:
    """Draw the buttons that copy the link, take things away and reset the page; no move of a control draws them again.

    ``taken()`` tells what can be taken, once somebody asks; ``name`` is what the files are called.
    """
    with st.container(key="share", horizontal=True, vertical_alignment="center"):
        copy_link(panel.unmoved, panel.behind())
        _take_away(name, taken)
        if st.button("Reset", on_click=panel.apply, args=({},), help="Every setting back to its default"):
            st.rerun()


def _take_away(name: str, taken: Callable[[], Taken]) -> None:
    from engine.provenance import as_json, code_for

    def made_csv() -> str:
        header, rows = offered.table()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        return text.getvalue()

    def made_json() -> str:
        return as_json(offered.params, **{key: run(function, offered.params) for key, function in offered.functions.items()})

    with st.popover("Take it away", key="take_away", on_change="rerun") as popover:
        if not popover.open:
            return
        offered = taken()
        _pictures(key="pictures", data={"name": name}, height="content")
        with st.container(horizontal=True):
            st.download_button("CSV, the numbers shown", made_csv, f"{name}.csv", "text/csv", on_click="ignore")
            st.download_button("JSON, with provenance", made_json, f"{name}.json", "application/json", on_click="ignore")
        st.caption("The same numbers from Python, in a folder with this project:")
        for function in offered.functions.values():
            st.code(code_for(function, offered.params), language="python")
