"""What follows the hand: components that compute in the browser while something is dragged, and report on release."""

import json
from collections.abc import Callable, Mapping

import streamlit as st

from pages.shared import data

NAMES: tuple[str, ...] = ("arrows", "block", "fit_points", "rotor", "sketch")
"""One JavaScript file and one style sheet in ``assets/components/`` per name."""

_COMPONENTS = {
    name: st.components.v2.component(
        f"bare_weights_{name}",
        html=f'<div class="{name}"></div>',
        css=data.text(f"components/{name}.css"),
        js=data.text(f"components/{name}.js"),
        isolate_styles=False,
    )
    for name in NAMES
}


def by_hand(name: str, *, key: str, data: Mapping | bytes, height: int | str, on_release: Callable[[dict], None] = lambda _: None) -> None:
    """Draw a component; when the hand lets go it triggers ``release`` with the new values, before the page runs again.

    ``data`` is what the component starts from and adopts whenever it changes, but not while something is being dragged; as
    bytes, what ``encoded`` made of it.
    ``on_release`` gets a plain dictionary that comes from the visitor's browser: ``Panel.pick`` settles it like a link.
    """

    def released() -> None:
        values = st.session_state[key].get("release")
        if isinstance(values, dict):
            on_release(values)

    _COMPONENTS[name](key=key, data=data if isinstance(data, bytes) else encoded(data), height=height, on_release_change=released)


def encoded(data: Mapping) -> bytes:
    """Return data as a component's script reads them: bytes, which Streamlit passes on without writing them out twice."""
    return json.dumps(data).encode()
