"""One slider and one chart by Streamlit's own means: what a slider of the lab is compared with."""

import plotly.graph_objects as go
import streamlit as st

n = st.slider("n", 0, 31, 0)
figure = go.Figure(go.Scatter(x=list(range(32)), y=[(n + 1) * x for x in range(32)]))
figure.update_layout(title=f"n = {n}")
st.plotly_chart(figure)
