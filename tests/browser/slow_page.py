"""A page with one long computation that leaves a mark at every step; for the test of visitors who leave."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from engine.params import uses
from pages.shared import compute


@dataclass(frozen=True)
class SlowParams:
    """Nothing to choose."""

    steps: int = 400


@st.cache_resource
def impatient_store():
    """A store that waits half a second for visitors to come back."""
    return compute.Store(grace=0.5)


@uses("steps")
def slow(params, on_step):
    """Take a twentieth of a second a step."""
    marks = Path(os.environ["SLOW_PAGE_MARKS"])
    for step in range(params.steps):
        on_step(step, params.steps, "Counting")
        with marks.open("a") as file:
            file.write(".")
        time.sleep(0.05)
    return params.steps


compute.store = impatient_store
st.title("Slow")
compute.run(slow, SlowParams())
st.write("done")
