"""Controls whose value lives in the link alone: a component of the page draws them, or they draw themselves (``by_hand``)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from engine.errors import InputError
from engine.heads import parse_heads, write_heads
from pages.shared.link import OneOf, Pick, Unreadable


@dataclass(frozen=True)
class Numbers:
    """A few numbers set by hand in a browser component; the link alone holds them, separated by commas, a multiple of ``group``.

    ``check`` raises InputError for numbers that the engine cannot use.
    """

    label: str
    low: float
    high: float
    most: int
    fewest: int = 1
    digits: int = 3
    group: int = 1
    check: Callable[[tuple[float, ...]], object] | None = None

    by_hand = True

    def parse(self, raw: str) -> tuple[float, ...]:
        """Return the numbers; raise Unreadable if there are too many or too few, or one is none."""
        words = raw.split(",") if len(raw) <= 24 * self.most else []
        try:
            values = tuple(float(word) for word in words if len(word) <= 24)
        except ValueError:
            values = ()
        counted = self.fewest <= len(values) <= self.most and len(values) % self.group == 0 and len(values) == len(words)
        if not counted:
            raise Unreadable("is not a list of numbers of the right length")
        if not all(map(math.isfinite, values)):
            raise Unreadable("holds a number that is not finite")
        try:
            if self.check:
                self.check(tuple(round(value, self.digits) for value in values))
        except InputError as error:
            raise Unreadable(f"cannot be used. {error}") from error
        return values

    def clamp(self, value: tuple[float, ...]) -> tuple[float, ...]:
        """Return the numbers within the limits, rounded as the link holds them."""
        return tuple(round(min(max(number, self.low), self.high), self.digits) + 0.0 for number in value)

    @property
    def accepted(self) -> str:
        """How many numbers, and their range, in words."""
        count = f"{self.fewest} to {self.most}" if self.fewest < self.most else f"{self.most}"
        count = count if self.group == 1 else f"in groups of {self.group}, {count}"
        return f"{count} numbers from {self.low:g} to {self.high:g} with commas between"

    def write(self, value: tuple[float, ...]) -> str:
        """Return the numbers as the link holds them."""
        return ",".join(f"{number:.12g}" for number in self.clamp(value))


@dataclass(frozen=True)
class Menu(OneOf):
    """One of many, from a menu that shows their names in words: ``options`` maps what the link holds to those words."""

    label: str
    options: dict[str, str]
    help: str | None = None

    by_hand = True

    def draw(self, key: str, value: str, pick: Pick) -> None:
        """Draw the menu at a value; ``pick`` takes the next one."""
        shown = f"{key}_menu_{value}"  # another widget for another value: what a browser still holds of the old one is dropped
        chosen = lambda: pick({key: st.session_state[shown]})  # noqa: E731
        at = list(self.options).index(value)
        st.selectbox(self.label, list(self.options), at, format_func=self.options.get, key=shown, on_change=chosen, help=self.help)


@dataclass(frozen=True)
class Heads:
    """A set of heads such as ``2.5,2.6``; ``high`` is (layers, heads) of the chosen model, ``most`` how many may be named."""

    label: str
    most: int = 1024
    high: tuple[int, int] | None = None

    by_hand = True

    def parse(self, raw: str) -> str:
        """Return the set in its one written form; raise Unreadable if the text names no heads."""
        try:
            return write_heads(parse_heads(raw))
        except InputError as error:
            raise Unreadable("is not a list of heads") from error

    def clamp(self, value: str) -> str:
        """Return the set without heads that the model lacks."""
        layers, heads = self.high or (math.inf, math.inf)
        return write_heads([head for head in parse_heads(value) if head[0] < layers and head[1] < heads][: self.most])

    @property
    def accepted(self) -> str:
        """What may be named, in words."""
        limits = f", layers 0 to {self.high[0] - 1}, heads 0 to {self.high[1] - 1}" if self.high else ""
        return f"at most {self.most} heads as LAYER.HEAD with commas between{limits}"

    def write(self, value: str) -> str:
        """Return the set as the link holds it."""
        return value

    def draw(self, key: str, value: str, pick: Pick) -> None:
        """Draw the set as chips; of a model whose heads are not known, as text."""
        layers, heads = self.high or (0, 0)
        shown, options = f"{key}_chips_{value}", [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]
        now = [name for name in value.split(",") if name]
        chosen = lambda: pick({key: ",".join(st.session_state[shown])})  # noqa: E731
        st.multiselect(self.label, options, now, key=shown, max_selections=self.most, on_change=chosen, placeholder="none")
