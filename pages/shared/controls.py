"""What can be moved, how far, and its text form in the link.

A control knows how to ``parse`` a link's text, ``clamp`` a value, ``write`` it back and ``draw`` itself. The first
three are pure: ``parse(write(v)) == v`` for every value that ``clamp`` leaves as it is.
"""

import math
import re
from dataclasses import dataclass, replace

import streamlit as st

from engine.settings import settings
from pages.shared.link import OneOf, Unreadable, quoted
from pages.shared.linked import Heads, Menu, Numbers
from pages.shared.typed import Typed

FINEST = 5000
"""Steps that a slider can hold; more are typed."""


@dataclass(frozen=True)
class Integer:
    """A whole number on a slider, or in a field where a slider would be too coarse; a ``high`` of None is set later, by the chosen model."""

    label: str
    low: int
    high: int | None = None
    step: int = 1

    def parse(self, raw: str) -> int:
        """Return the number; raise Unreadable if the text is none."""
        text = raw.strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
            raise Unreadable("is not a whole number")
        return int(text)

    def clamp(self, value: int) -> int:
        """Return the nearest value that the slider can take."""
        value = max(value, self.low) if self.high is None else min(max(value, self.low), self.high)
        return self.low + round((value - self.low) / self.step) * self.step

    @property
    def accepted(self) -> str:
        """The range in words."""
        if self.high is None:
            return f"{self.low} and up"
        return f"{self.low} to {self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def write(self, value: int) -> str:
        """Return the value as the link holds it."""
        return str(int(value))

    def draw(self, key: str, value: int) -> int:
        """Draw the slider; a range of one value is drawn switched off."""
        if self.low >= self.high:
            return st.slider(self.label, self.low, self.low + 1, self.low, disabled=True, key=f"{key}_only")
        widget = st.number_input if (self.high - self.low) / self.step > FINEST else st.slider
        return widget(self.label, self.low, self.high, value, self.step, key=key, bind="query-params")


@dataclass(frozen=True)
class Scrubbed(Integer):
    """A whole number that a component of the page sets; the link alone holds it."""

    by_hand = True


@dataclass(frozen=True)
class Number:
    """A real number on a slider, or in a field where a slider would be too coarse."""

    label: str
    low: float
    high: float
    step: float

    def parse(self, raw: str) -> float:
        """Return the number; raise Unreadable if the text is none, or not finite."""
        try:
            value = float(raw) if len(raw) <= 40 and raw.isascii() and "_" not in raw else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise Unreadable("is not a number")
        return value

    def clamp(self, value: float) -> float:
        """Return the nearest value that the slider can take."""
        value = min(max(value, self.low), self.high)
        return round(min(self.low + round((value - self.low) / self.step) * self.step, self.high), 10)

    @property
    def accepted(self) -> str:
        """The range in words."""
        return f"{self.low:g} to {self.high:g} in steps of {self.step:g}"

    def write(self, value: float) -> str:
        """Return the value as the link holds it."""
        return f"{round(float(value), 10):.12g}"

    def draw(self, key: str, value: float) -> float:
        """Draw the slider or the field, with as many decimals as a step has."""
        widget = st.number_input if (self.high - self.low) / self.step > FINEST else st.slider
        fine = None if self.step >= 0.01 else f"%.{math.ceil(-math.log10(self.step))}f"
        return widget(self.label, self.low, self.high, value, self.step, format=fine, key=key, bind="query-params")


@dataclass(frozen=True)
class Steps:
    """One of a few numbers on a slider, in ascending order: for what is better moved by factors than by amounts."""

    label: str
    values: tuple[float, ...]

    def parse(self, raw: str) -> float:
        """Return the number, whole if the steps are; raise Unreadable if the text is none, or not finite."""
        value = Number(self.label, 0, 0, 1).parse(raw)
        return int(value) if all(isinstance(step, int) for step in self.values) and value == int(value) else value

    def clamp(self, value: float) -> float:
        """Return the step nearest to a value."""
        return min(self.values, key=lambda step: abs(step - value))

    @property
    def accepted(self) -> str:
        """The steps in words."""
        return ", ".join(map(self.write, self.values))

    def write(self, value: float) -> str:
        """Return the value as the link holds it."""
        return f"{value:g}"

    def draw(self, key: str, value: float) -> float:
        """Draw the slider."""
        return st.select_slider(self.label, self.values, value, format_func=self.write, key=key, bind="query-params")


@dataclass(frozen=True)
class Choice(OneOf):
    """One of a few; ``options`` maps what the link and the page call it (short ASCII, never renamed) to a word beneath."""

    label: str
    options: dict[str, str]
    help: str | None = None
    by_hand: bool = False

    def draw(self, key: str, value: str) -> str:
        """Draw the options side by side."""
        shown = list(self.options)
        captions = list(self.options.values()) if any(self.options.values()) else None
        chosen = st.radio(self.label, shown, shown.index(value), key=key, captions=captions, horizontal=True, bind="query-params", help=self.help)
        return chosen if chosen is not None else value


@dataclass(frozen=True)
class Switch:
    """On or off."""

    label: str
    accepted = "true, false"

    def parse(self, raw: str) -> bool:
        """Return the value; raise Unreadable for anything but true and false."""
        if raw.lower() not in ("true", "false"):
            raise Unreadable("is neither true nor false")
        return raw.lower() == "true"

    def clamp(self, value: bool) -> bool:
        """Return the value."""
        return value

    def write(self, value: bool) -> str:
        """Return the value as the link holds it."""
        return str(bool(value)).lower()

    def draw(self, key: str, value: bool) -> bool:
        """Draw the switch."""
        return st.toggle(self.label, value, key=key, bind="query-params")


@dataclass(frozen=True)
class Text:
    """A line of text of limited length."""

    label: str
    limit: int

    def parse(self, raw: str) -> str:
        """Return the text without control characters."""
        return "".join(c if c.isprintable() else " " for c in raw)

    def clamp(self, value: str) -> str:
        """Return the text cut to the limit."""
        return value[: self.limit]

    @property
    def accepted(self) -> str:
        """The limit in words."""
        return f"the limit of {self.limit} characters"

    def write(self, value: str) -> str:
        """Return the value as the link holds it."""
        return self.parse(value)

    def draw(self, key: str, value: str) -> str:
        """Draw the text field."""
        return st.text_input(self.label, value, max_chars=self.limit, key=key, bind="query-params")


def prompt(limit: int) -> Text:
    """Return the control of a prompt: as long as the page allows, and the operator."""
    return Text("Prompt", min(limit, settings().prompt))


@dataclass(frozen=True)
class TypedNumbers(Text):
    """Positive numbers typed as text with commas between, or nothing."""

    def parse(self, raw: str) -> str:
        """Return the text; raise Unreadable if it is no such list."""
        try:
            fine = len(raw) <= self.limit and all(0 < float(word) < math.inf for word in raw.split(",") if raw.strip())
        except ValueError:
            fine = False
        if not fine:
            raise Unreadable("is not a list of positive numbers with commas between")
        return raw.strip()


@dataclass(frozen=True)
class Named(OneOf):
    """One of a list, or where ``free`` any other name of limited length, typed into the same field."""

    label: str
    options: tuple[str, ...]
    free: bool
    limit: int = 200

    def parse(self, raw: str) -> str:
        """Return the name; raise Unreadable if it may not be asked for."""
        if raw not in self.options and not (self.free and raw.strip() and len(raw) <= self.limit and raw.isprintable()):
            raise Unreadable("is not offered here")
        return raw

    def draw(self, key: str, value: str) -> str:
        """Draw the list, with a field for another name where that is allowed."""
        return st.selectbox(self.label, self.options, self.options.index(value), key=key, accept_new_options=self.free, bind="query-params")


Control = Integer | Number | Steps | Choice | Switch | Text | Typed | Named | Numbers | Menu | Heads
"""The value of a control with ``by_hand`` lives in the link alone: a component of the page draws it, or it draws itself."""


def within(control: Control, high: int | None) -> Control:
    """Return the control with a new upper limit, as a chosen model sets it."""
    return control if high is None else replace(control, high=high)


def settle(control: Control, raw: str, default) -> tuple[str, str | None]:
    """Return the text that the link should hold, and a sentence if that is not what it holds."""
    try:
        value = control.parse(raw)
    except Unreadable as error:
        used = control.write(control.clamp(default))
        return used, f"{control.label}: {quoted(raw)} {error} (accepted: {control.accepted}); using {quoted(used)}."
    good = control.clamp(value)
    if good == value:
        return control.write(value), None
    return control.write(good), f"{control.label}: {quoted(raw)} is outside {control.accepted}; using {quoted(control.write(good))}."
