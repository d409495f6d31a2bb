"""Bare Weights: page configuration, navigation, and the chosen page inside the frame."""

import streamlit as st

from pages.shared import navigation

st.set_page_config(page_title="Bare Weights", page_icon="assets/icon.svg", layout="wide", initial_sidebar_state="collapsed")
navigation.run()
