"""The words of the labs, read from ``assets/``: no page holds a preset, a guess or a note of its own."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "assets"


@dataclass(frozen=True)
class Preset:
    """A setting worth opening: its label, its link parameters, and what to look at."""

    label: str
    link: dict[str, str]
    look: str


@dataclass(frozen=True)
class Guess:
    """A question asked before the picture is shown; ``decides`` names the engine's number that answers it.

    ``choices`` are (label, upper end) in ascending order; the answer is the first whose upper end the number is below,
    and the last has none.
    """

    id: str
    question: str
    choices: tuple[tuple[str, float | None], ...]
    setting: dict[str, str]
    decides: str
    why: str

    def answer(self, value: float) -> str:
        """Return the label of the choice that a value falls into."""
        return next(label for label, end in self.choices if end is None or value < end)


@dataclass(frozen=True)
class Lab:
    """A lab's title, question, presets and guesses."""

    slug: str
    title: str
    question: str
    presets: tuple[Preset, ...]
    guesses: tuple[Guess, ...]
    tour: tuple[str, ...]

    def preset(self, label: str) -> Preset:
        """Return the preset with this label."""
        return next(p for p in self.presets if p.label == label)


@lru_cache
def lab(slug: str) -> Lab:
    """Return a lab's data from ``assets/labs/SLUG.json``."""
    data = json.loads((ASSETS / "labs" / f"{slug}.json").read_text(encoding="utf-8"))
    guesses = tuple(Guess(**{**g, "choices": tuple(tuple(c) for c in g["choices"])}) for g in data["guesses"])
    return Lab(slug, data["title"], data["question"], tuple(Preset(**p) for p in data["presets"]), guesses, tuple(data["tour"]))


@lru_cache
def text(path: str) -> str:
    """Return the contents of a file under ``assets/``."""
    return (ASSETS / path).read_text(encoding="utf-8")
