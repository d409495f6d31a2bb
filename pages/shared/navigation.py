"""Which pages there are, one row per lab, and the frame that every page runs in."""

from contextvars import ContextVar
from pathlib import Path

import streamlit as st

from pages.shared import data, layout, static

PAGES = Path(__file__).resolve().parents[1]

LABS = ("projections", "ffn", "rope", "norms", "lora", "spectra")
"""One row per lab, in the order of the navigation."""

_PAGE = "_page"
_framed: ContextVar[bool] = ContextVar("framed", default=False)


def page(slug: str):
    """Return the ``st.Page`` of a lab."""
    return st.Page(PAGES / f"{slug}.py", title=data.lab(slug).title, url_path=slug)


def navigate():
    """Declare all pages and return the one that the address names; home is the default."""
    home = st.Page(PAGES / "home.py", title="Home", default=True)
    return st.navigation([home, *(page(slug) for slug in LABS)], position="hidden" if layout.presenting() else "top")


def run() -> None:
    """Run the chosen page inside the frame."""
    static.prepare()
    chosen = navigate()
    _begin(chosen.url_path)
    layout.style(layout.presenting())
    token = _framed.set(True)
    try:
        with layout.mishaps():
            chosen.run()
    finally:
        _framed.reset(token)


def _begin(address: str) -> None:
    """Drop what the controls of the page before stood at: pages have controls of the same name, and begin where their link says."""
    if st.session_state.get(_PAGE, address) != address:
        for name in [name for name in st.session_state if not str(name).startswith("_")]:
            del st.session_state[name]
    st.session_state[_PAGE] = address


def require_frame() -> None:
    """Declare the pages and start over if Streamlit ran this page by itself.

    On a fresh server whose first visitor follows a lab's link, Streamlit finds the file in ``pages/`` before
    ``streamlit_app.py`` has declared anything, and runs it alone.
    """
    if not _framed.get():
        navigate()
        st.rerun()
