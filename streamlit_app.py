"""Bare Weights: page configuration, navigation, and the chosen page inside the frame."""

import os
import sys

if "numpy" not in sys.modules:  # afterwards it would come too late: see engine.device.symmetric_product
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import streamlit as st

from pages.shared import hosting, layout, navigation

st.set_page_config(page_title="Bare Weights", page_icon="assets/icon.svg", layout="wide", initial_sidebar_state="collapsed")
with layout.mishaps():
    hosting.settle()
    navigation.run()
