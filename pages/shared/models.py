"""Choosing a model: what may be asked for here, what it is, and what to do when it cannot be had."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
import torch

from engine.device import compute_device
from engine.errors import ModelError
from engine.models.catalog import CATALOG, is_here, offered
from engine.models.facts import ModelFacts, model_facts
from engine.models.families import Shape
from engine.models.weights import model_shape
from engine.settings import is_hosted
from pages.shared.compute import run
from pages.shared.controls import Named
from pages.shared.layout import escaped
from pages.shared.panel import Panel

_CONSENT = "_download"


def control() -> Named:
    """Return the model control: what is offered, and on one's own machine any hub id or folder as well."""
    names = tuple(offered())
    return Named("Model" if is_hosted() else "Model: a name, a hub id, or a folder", names, free=not is_hosted())


def shape(panel: Panel) -> Shape:
    """Return the shape of the chosen model; one that cannot be read is refused, one that must be downloaded is asked about."""
    model = panel.read().model
    with refusing(panel):
        found = model_shape(model)
        if not is_here(model) and st.session_state.get(_CONSENT) != model:
            with st.sidebar:
                panel.draw("model")
            st.info(f"{escaped(model)} is not on this machine yet. Its weights come from the Hugging Face hub, once.")
            if not st.button("Download it", type="primary"):
                st.button("Stay with Fable", on_click=panel.apply, args=({},))
                st.stop()
            st.session_state[_CONSENT] = model
    return found


@contextmanager
def refusing(panel: Panel) -> Iterator[None]:
    """Go back to the default model, saying why, if the chosen one turns out to be unusable."""
    try:
        yield
    except ModelError as error:
        if panel.read().model == panel.defaults["model"]:
            raise
        panel.refuse("model", str(error))


def sidebar(panel: Panel) -> None:
    """Draw the choice of model, and say which weights these are; a model that turns out to be unusable is refused."""
    with st.sidebar, refusing(panel):
        panel.draw("model")
        _provenance(run(model_facts, panel.read()))


def _provenance(facts: ModelFacts) -> None:
    entry = CATALOG.get(facts.model)
    if entry:
        st.markdown(f"**{entry.label}**")
        st.caption(f"Licence: {entry.licence}" + ("" if entry.verified else ", to be checked on the hub"))
    st.caption(f"{facts.n_layers} layers, {facts.n_heads} heads, {facts.n_kv_heads} key-value heads, d_model {facts.d_model}, d_head {facts.d_head}")
    st.caption(f"SHA-256 of the weights: `{facts.sha256[:16]}…`")
    st.caption(f"Computed on {compute_device().label}: spectra in float64, forward passes in float32.")
    st.caption(f"torch {torch.__version__}, streamlit {st.__version__}.")
