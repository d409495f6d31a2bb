"""A control for text that only the engine can judge, such as a pasted matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from engine.errors import InputError
from pages.shared.link import Unreadable


@dataclass(frozen=True)
class Typed:
    """A text of several lines, such as a matrix, that the engine reads: ``reader`` returns it as the link holds it, or raises InputError."""

    label: str
    reader: Callable[[str], str]
    accepted: str

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

    def draw(self, key: str, value: str) -> str:
        """Draw the field."""
        return st.text_area(self.label, value, height=110, key=key, bind="query-params", help=f"Accepted: {self.accepted}.")
