"""The catalogue of labs, each with its question, its picture and links that are worth opening."""

import streamlit as st

from pages.shared import data, navigation

navigation.require_frame()

from pages.shared.show import picture  # noqa: E402

st.markdown("# Bare Weights\nThe linear algebra of a real transformer, by hand: move it, remove it, and see what was holding the numbers up.")
left, right = st.columns([6, 5], vertical_alignment="center")
with left:
    picture("thumbnails/home.svg", "The heads of a trained transformer, coloured by how many directions each one carries", key="hero")
with right:
    st.markdown("#### Start here: five minutes")
    for slug in navigation.LABS:
        lab = data.lab(slug)
        for step, label in enumerate(lab.tour, 1):
            preset = lab.preset(label)
            st.page_link(navigation.page(slug), label=f"{step}. {preset.label}", query_params=preset.link)
            st.caption(preset.look)
st.markdown("#### Labs")
for slug in navigation.LABS:
    lab = data.lab(slug)
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        with st.container(width=220):
            picture(f"thumbnails/{slug}.svg", lab.title, key=f"thumbnail_{slug}")
        with st.container():
            st.page_link(navigation.page(slug), label=f"**{lab.title}**")
            st.markdown(lab.question)
            with st.container(horizontal=True):
                for preset in lab.presets:
                    st.page_link(navigation.page(slug), label=preset.label, query_params=preset.link)
