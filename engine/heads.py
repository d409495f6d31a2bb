"""Sets of attention heads and their text form: ``2.5,2.6`` is layer 2, head 5 and layer 2, head 6."""

from collections.abc import Iterable

from engine.errors import InputError

MOST = 1024
LONGEST = 4  # digits of a layer or a head


def parse_heads(text: str) -> tuple[tuple[int, int], ...]:
    """Return the (layer, head) pairs of a text such as ``2.5,2.6``, sorted, each once; an empty text gives none.

    Raises InputError for anything that is not a list of LAYER.HEAD, and for more than 1024 of them.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > MOST:
        raise InputError(f"The list names {len(parts)} heads; at most {MOST} are accepted.")
    return tuple(sorted({_parse(part) for part in parts}))


def write_heads(heads: Iterable[tuple[int, int]]) -> str:
    """Return the text of a set of (layer, head) pairs, sorted, each once: what ``parse_heads`` reads."""
    return ",".join(f"{layer}.{head}" for layer, head in sorted(set(heads)))


def _parse(part: str) -> tuple[int, int]:
    numbers = part.split(".")
    if len(numbers) != 2 or not all(n.isascii() and n.isdecimal() and len(n) <= LONGEST for n in numbers):
        raise InputError(f"{part[:40]!r} is no head; write LAYER.HEAD, with commas between heads, such as 2.5,2.6.")
    return int(numbers[0]), int(numbers[1])
