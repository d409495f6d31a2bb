"""What a link may hold: how a value that cannot be read is refused, and how a visitor's text is quoted."""

import string
from collections.abc import Callable

SHOWN = 40
Pick = Callable[[dict], None]


class Unreadable(ValueError):
    """The link's text is no value of this control; the message says what is accepted."""


def quoted(raw: str) -> str:
    """Return a visitor's text for a message: shortened, on one line with ``;`` for a line break, in quotes."""
    line = "".join(c if c.isprintable() else "?" for c in ";".join(raw[: 2 * SHOWN].splitlines())[: SHOWN + 1])
    return f"'{line[:SHOWN]}{'…' if len(line) > SHOWN else ''}'"


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join("\\" + c if c in string.punctuation else c for c in text)


class OneOf:
    """What controls with named options share."""

    def parse(self, raw: str) -> str:
        """Return the option; raise Unreadable if there is none of that name."""
        if raw not in self.options:
            raise Unreadable("is not an option")
        return raw

    def clamp(self, value: str) -> str:
        """Return the value: what ``parse`` lets through is acceptable."""
        return value

    @property
    def accepted(self) -> str:
        """The options in words."""
        return ", ".join(self.options)

    def write(self, value: str) -> str:
        """Return the value as the link holds it."""
        return value
