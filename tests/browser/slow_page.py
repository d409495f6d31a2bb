"""A page with one long computation that leaves a mark at every step; for the test of visitors who leave."""

import streamlit as st

from pages.shared import compute
from pages.shared.jobs import Store
from tests.browser.slow import SlowParams, slow


@st.cache_resource
def impatient_store():
    """A store that waits half a second for visitors to come back."""
    return Store(grace=0.5)


compute.store = impatient_store
st.title("Slow")
compute.run(slow, SlowParams())
st.write("done")
