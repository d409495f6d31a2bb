"""The catalogue of labs, each with its question, its picture and links that are worth opening."""

import streamlit as st

from engine.models.catalog import allowed, offered
from engine.settings import is_hosted
from pages.shared import data, navigation

navigation.require_frame()

from pages.shared.show import picture  # noqa: E402

st.markdown("# Bare Weights\nThe linear algebra of a real transformer, by hand: move it, and see what the numbers do.")
left, right = st.columns([6, 5], gap="medium")
with left:
    picture("thumbnails/home.svg", "The heads of a trained transformer, coloured by how many directions each one carries", key="hero")
    st.caption(
        "Every head of Fable, the model that travels with this lab; a row is a layer. Colour: how many directions its W_OV carries, "
        "from few (violet) to many (green). Line: its singular values over two decades. Drawn from the shipped weights."
    )
with right, st.container(key="tour"):
    st.markdown("#### Start here: five minutes")
    stops = [(slug, data.lab(slug).preset(label)) for slug in navigation.LABS for label in data.lab(slug).tour]
    for step, (slug, preset) in enumerate(stops, 1):
        st.page_link(navigation.page(slug), label=f":primary[**{step}. {preset.label}**]", query_params=preset.link)
        st.caption(preset.look)
st.markdown("#### Labs")
for slug in navigation.LABS:
    lab = data.lab(slug)
    with st.container(border=True, key=f"card_{slug}"):
        thumbnail, words = st.columns([1, 4], vertical_alignment="center")
        with thumbnail:
            picture(f"thumbnails/{slug}.svg", lab.title, key=f"thumbnail_{slug}")
        with words:
            st.page_link(navigation.page(slug), label=f":primary[**{lab.title}**]")
            st.markdown(lab.question)
            with st.container(horizontal=True):
                for preset in lab.presets:
                    if not is_hosted() or preset.link.get("model", "fable") in (*offered(), *allowed()):
                        st.page_link(navigation.page(slug), label=preset.label, query_params=preset.link)
