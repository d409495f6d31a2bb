"""A question before the picture: choose, then see the picture, the number just computed, and why."""

from collections.abc import Callable

import streamlit as st

from engine.params import Number
from pages.shared.data import Guess
from pages.shared.panel import Panel


def guess(asked: Guess, panel: Panel, number_of: Callable[[object, str], Number], picture: Callable[[object, str, str], None]) -> None:
    """Ask one question; when a choice is made, draw ``picture(params, asked.decides, key)`` and give the answer.

    The answer is ``number_of(params, asked.decides)``, computed then, at the guess's own setting.
    """
    st.markdown(f"**{asked.question}**")
    labels = [label for label, _ in asked.choices]
    chosen = st.pills(asked.question, labels, key=f"guess_{asked.id}", label_visibility="collapsed")
    if chosen is None:
        return
    params = panel.params(panel.settle(asked.setting)[0])
    number = number_of(params, asked.decides)
    answer = asked.answer(number.value)
    beside = f" ({number.beside})" if number.beside else ""
    said = f"**{answer}.** {number.label}: **{number.value:.{number.digits}f}{number.unit}**{beside}. {asked.why}"
    (st.success if chosen == answer else st.info)(f"{'You saw it' if chosen == answer else 'Not quite'}: {said}")
    picture(params, asked.decides, f"picture_{asked.id}")
