"""A control for text that only the engine can judge, such as a pasted matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from engine.errors import InputError
from pages.shared.link import Pick, Unreadable, escaped, quoted


@dataclass(frozen=True)
class Typed:
    """A text of several lines, such as a matrix, that the engine reads: ``reader`` returns it as the link holds it, or raises InputError.

    The link holds the last text that could be read; the field holds what was typed, until that can be read or the link changes.
    """

    label: str
    reader: Callable[[str], str]
    accepted: str

    by_hand = True

    def parse(self, raw: str) -> str:
        """Return the text as the link holds it; raise Unreadable, saying what it is instead, if it cannot be read."""
        try:
            return self.reader(raw)
        except InputError as error:
            raise Unreadable(str(error)) from error

    def clamp(self, value: str) -> str:
        """Return the text: what ``parse`` lets through is acceptable."""
        return value

    def write(self, value: str) -> str:
        """Return the text: ``parse`` has brought it into the link's form."""
        return value

    def draw(self, key: str, value: str, pick: Pick) -> None:
        """Draw the field; ``pick`` takes a text that can be read, another one stays in the field with a sentence beneath."""
        field, drawn = f"{key}_text", f"{key}_drawn"
        if field not in st.session_state or st.session_state.get(drawn) != value:
            st.session_state[field] = st.session_state[drawn] = value
        st.text_area(self.label, height=110, key=field, on_change=lambda: self._typed(key, pick), help=f"Accepted: {self.accepted}.")
        try:
            self.parse(st.session_state[field])
        except Unreadable as error:
            st.warning(escaped(f"{quoted(st.session_state[field])} {error} (accepted: {self.accepted}); still using {quoted(value)}."))

    def _typed(self, key: str, pick: Pick) -> None:
        try:
            pick({key: self.parse(st.session_state[f"{key}_text"])})
        except Unreadable:
            return  # said beneath the field
