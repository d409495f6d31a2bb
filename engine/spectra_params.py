"""What the head-spectrum lab can be asked."""

from dataclasses import dataclass

from engine.circuits import CIRCUITS
from engine.errors import InputError
from engine.heads import parse_heads, write_heads

KINDS = ("q", "k", "v")
REMOVALS = ("keep_ov", "keep_qk", "zero", "mean")
FARTHEST = 1_000_000


@dataclass(frozen=True)
class SpectraParams:
    """What the head-spectrum lab can be asked. ``circuit``: ov (what a head moves) or qk (where it looks).

    ``model`` is a catalogue name or, outside a hosted page, a folder with a checkpoint. ``delta``: how many tokens back
    from query to key W_QK is taken; ``fold``: whether norm gains are multiplied into the weights.

    ``off``: heads that are changed, such as ``2.5,2.6``; ``removal``: keep_ov or keep_qk (they keep the top ``keep``
    singular directions of W_OV or W_QK; with 0 none), zero or mean (their z is replaced).

    ``partner``: another head, or "" for the one that composes most with the chosen head; ``kind``: through which of a
    later head's query, key or value (q, k, v); ``latent``: how many numbers per token a compressed cache of a layer keeps.
    """

    model: str = "fable"
    circuit: str = "ov"
    layer: int = 0
    head: int = 0
    delta: int = 0
    fold: bool = False
    latent: int = 16
    prompt: str = "The true meaning of life is absurdity, and suffering"
    off: str = ""
    removal: str = "keep_ov"
    keep: int = 0
    partner: str = ""
    kind: str = "k"

    def __post_init__(self):
        for name, options in (("circuit", CIRCUITS), ("removal", REMOVALS), ("kind", KINDS)):
            if getattr(self, name) not in options:
                raise InputError(f"The {name} is {getattr(self, name)[:40]!r}; accepted are {', '.join(options)}.")
        if self.layer < 0 or self.head < 0:
            raise InputError(f"Layer {self.layer}, head {self.head}: both count from 0.")
        if not 0 <= self.delta <= FARTHEST:
            raise InputError(f"The distance delta is {self.delta}; accepted are 0 to {FARTHEST} tokens back from query to key.")
        if self.latent < 1:
            raise InputError(f"The latent size is {self.latent}; it must be at least 1 number per token.")
        if self.keep < 0:
            raise InputError(f"The number of directions to keep is {self.keep}; it counts from 0.")
        for name in ("off", "partner"):  # one form of each set: one link, one cache key
            object.__setattr__(self, name, write_heads(parse_heads(getattr(self, name))))
        if "," in self.partner:
            raise InputError(f"The partner is {self.partner[:40]!r}; accepted is one head such as 1.4, or nothing for the strongest.")
