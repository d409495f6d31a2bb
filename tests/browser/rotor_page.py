"""A page with the turning circles alone; it counts its runs and shows what the hand released."""

import streamlit as st

from pages.shared.hands import by_hand

FIELDS = ("position", "base", "kind", "q", "k")

link = {name: st.query_params.get(name) for name in ("d", "law", *FIELDS)}
d, base, factor = int(link["d"] or 8), float(link["base"] or 10000), float(link["law"] or 1)
inv_freq = [base ** (-2 * i / d) for i in range(d // 2)]
scaled = [float(v) for v in st.query_params["frequencies"].split(",")] if "frequencies" in st.query_params else [t / factor for t in inv_freq]
ones = [1.0, 0.0] * (d // 2)


def released(values):
    """Keep what the hand set in the address."""
    st.session_state["told"] = [*st.session_state.get("told", []), sorted(values)]
    for name in FIELDS:
        if name in values:
            st.query_params[name] = str(values[name])


def preset():
    """Set the position and the width, as a preset does."""
    st.query_params.update(position="100", d="12")


st.session_state["runs"] = st.session_state.get("runs", 0) + 1
st.title("Rotor")
by_hand(
    "rotor",
    key="rotor",
    data={
        "d": d,
        "base": base,
        "position": int(link["position"] or 12),
        "original_context": 256,
        "attention_factor": float(st.query_params.get("attention") or 1),
        "inv_freq": inv_freq,
        "scaled_inv_freq": scaled,
        "q": [float(v) for v in link["q"].split(",")] if link["q"] else ones,
        "k": [float(v) for v in link["k"].split(",")] if link["k"] else ones,
        "kind": link["kind"] or "same",
        "farthest": 512,
        "drawn": f"{d // 2} of 16 pairs drawn",
        "label": "Pairs of a vector turning with position",
    },
    height="content",
    on_release=released,
)
st.write(f"runs {st.session_state['runs']}; told {st.session_state.get('told', [])}")
st.button("Another setting", on_click=preset)
