"""The least that Streamlit can show: what the first page of the lab is compared with."""

import streamlit as st

st.title("Bare")
