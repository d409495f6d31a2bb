"""What the LoRA lab depends on: the teacher, the sweep, one chosen rank, and what is asked of Fable."""

import math
from dataclasses import dataclass

from engine.adapters import RULES, STARTS
from engine.errors import InputError
from engine.models.adapters import SETS

TASKS = {"flat": "k equal directions", "falling": "falling by e every k", "tail": "k strong, a weak rest"}
INPUTS = {"white": "all directions alike", "coloured": "a few strong"}
WIDEST, MOST_SEEDS, MOST_STEPS = 512, 8, 5000
FABLE_RANKS = (1, 2, 4, 8, 16, 32, 64)
WHOLE_NUMBERS = {
    "d_in": (4, WIDEST, "The input width"),
    "d_out": (4, WIDEST, "The output width"),
    "n_seeds": (1, MOST_SEEDS, "The number of seeds"),
    "steps": (1, MOST_STEPS, "The number of steps"),
    "batch": (1, 256, "The batch"),
    "seed": (0, 2**31, "The seed"),
    "fable_seeds": (1, 3, "The number of seeds"),
    "fable_steps": (1, 200, "The number of steps on Shakespeare"),
}


@dataclass(frozen=True)
class LoraParams:
    """A linear teacher W + M and students W + s B A of every rank; one rank looked at closely; Fable and Shakespeare.

    ``task``: the spectrum of M (flat: ``teacher_rank`` equal singular values; falling: exp(-i / teacher_rank); tail: that many
    equal ones and the rest at a fifth); ``inputs``: the covariance of x (white, or coloured: variance of coordinate j
    proportional to 1 / j). Ranks 1, 2, 4 ... ``max_rank`` and full fine-tuning; seeds ``seed``, ``seed`` + 1 ...

    ``rank``: the one looked at; ``dropout``: of the variant that has one. ``places``: qv, attention or all; ``fable_ranks``
    such as ``2,8``, ``fable_seeds``, ``fable_steps``: the live run on Shakespeare.
    ``adapter``: a folder with an adapter of Fable in peft's format, or "" for the one that comes with the lab.
    """

    task: str = "flat"
    teacher_rank: int = 16
    inputs: str = "white"
    rule: str = "standard"
    start: str = "zero_b"
    rank: int = 4
    d_in: int = 64
    d_out: int = 64
    max_rank: int = 64
    n_seeds: int = 3
    steps: int = 300
    learning_rate: float = 0.02
    alpha: float = 16.0
    batch: int = 32
    seed: int = 0
    dropout: float = 0.1
    places: str = "qv"
    fable_ranks: str = "2,16"
    fable_seeds: int = 1
    fable_steps: int = 20
    adapter: str = ""

    def __post_init__(self):
        options = {"task": TASKS, "inputs": INPUTS, "rule": RULES, "start": STARTS, "places": SETS}
        for name, accepted in options.items():
            if getattr(self, name) not in accepted:
                raise InputError(f"The {name} is {str(getattr(self, name))[:40]!r}; accepted are {', '.join(accepted)}.")
        for name, (low, high, words) in WHOLE_NUMBERS.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{words} is {getattr(self, name)}; accepted are {low} to {high}.")
        narrow = min(self.d_in, self.d_out)
        for name, words in (("rank", "The rank"), ("max_rank", "The highest rank"), ("teacher_rank", "The teacher's rank")):
            if not 1 <= getattr(self, name) <= narrow:
                raise InputError(f"{words} is {getattr(self, name)}; accepted are 1 to min(d_in, d_out) = {narrow}.")
        for name, low, high in (("learning_rate", 0.0, 100.0), ("alpha", 0.0, 4096.0), ("dropout", 0.0, 0.95)):
            if not (math.isfinite(getattr(self, name)) and low <= getattr(self, name) <= high):
                raise InputError(f"The {name.replace('_', ' ')} is {getattr(self, name)}; accepted are {low:g} to {high:g}.")
        if self.start == "orthogonal" and (self.max_rank < 2 or self.rank % 2):
            raise InputError(f"An orthogonal start needs an even rank; the rank is {self.rank}, the highest rank {self.max_rank}.")
        object.__setattr__(self, "fable_ranks", ",".join(map(str, parse_ranks(self.fable_ranks))))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the sweep: powers of two up to the highest, and that; even ones for an orthogonal start."""
        powers = {2**k for k in range(10) if 2**k <= self.max_rank} | {self.max_rank}
        return tuple(rank for rank in sorted(powers) if self.start != "orthogonal" or rank % 2 == 0)


def parse_ranks(text: str) -> tuple[int, ...]:
    """Return the ranks of a text such as ``2,16``, ascending; raise InputError for anything but powers of two to 64."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    accepted = {str(rank): rank for rank in FABLE_RANKS}
    wrong = [word for word in words if word not in accepted]
    if wrong or not words:
        asked = f"{wrong[0][:20]!r} is no rank of this run" if wrong else "No rank is chosen"
        raise InputError(f"{asked}; accepted are {', '.join(map(str, FABLE_RANKS))}, with commas between.")
    return tuple(sorted({accepted[word] for word in words}))
