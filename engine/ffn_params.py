"""What the feed-forward lab can be asked, and the activations that it knows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.errors import InputError

TARGETS = ("abs", "sine", "square", "step", "drawn")
EDITS = ("mute", "keep")
SHAPES = ("gpt2", "llama-2-7b", "llama-3-8b", "mistral-7b", "qwen3-8b", "gemma-7b", "mixtral-8x7b", "deepseek-v3", "own")
STEPS, SNAPSHOT_EVERY = 2000, 50
MOST_UNITS, MOST_LINES = 100, 24
ABS_DRAWING = (-2.0, 2.0, -1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0)


@dataclass(frozen=True)
class Activation:
    """A nonlinearity of a feed-forward layer: ``value(z)`` and ``slope(z)``, z of any shape; ``gated`` layers multiply by W_up x."""

    name: str
    gated: bool
    value: Callable[[torch.Tensor], torch.Tensor]
    slope: Callable[[torch.Tensor], torch.Tensor]


def gelu_slope(z: torch.Tensor) -> torch.Tensor:
    """Return d/dz of z Phi(z): Phi(z) + z phi(z), with the Gaussian's own Phi and not its tanh approximation."""
    return torch.special.ndtr(z) + z * torch.exp(-0.5 * z * z) / (2 * torch.pi) ** 0.5


def silu_slope(z: torch.Tensor) -> torch.Tensor:
    """Return d/dz of z s(z), s the logistic function: s (1 + z (1 - s))."""
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


ACTIVATIONS = {
    "relu": Activation("ReLU", False, torch.relu, lambda z: (z > 0).to(z.dtype)),
    "gelu": Activation("GELU", False, torch.nn.functional.gelu, gelu_slope),
    "geglu": Activation("GeGLU", True, torch.nn.functional.gelu, gelu_slope),
    "swiglu": Activation("SwiGLU", True, torch.nn.functional.silu, silu_slope),
}
"""Plain layers first, then gated ones (Shazeer 2020, arXiv 2002.05202)."""


@dataclass(frozen=True)
class FfnParams:
    """What the feed-forward lab can be asked.

    Fit: ``activation`` (relu, gelu, geglu, swiglu), ``width`` (units of a plain layer, in fives; a gated one gets three fifths,
    so that all have 3 width + 1 parameters), ``steps`` of training (multiples of 50 up to 2000; 0: random weights), ``seed``,
    ``cutoff`` (subtracted from the gate's input), ``target`` (abs, sine, square, step, drawn) with ``drawing`` x1, y1, x2, y2, ...
    (on the command line ``--drawing=-2,0,-1,1,1,-1,2,0``).
    Token: ``model``, ``prompt``, ``token``, ``layer``, ``neuron``, ``edit`` (mute that neuron, or keep the ``keep`` largest of
    every token). Regions: ``lines`` ReLU units on two inputs, with ``biases`` or without. Cost: ``shape`` (a published
    configuration, or own: ``d_model``, ``ratio``, ``gated``, ``experts``, ``top_k``) at a ``context`` of tokens and a ``batch``.
    """

    model: str = "fable"
    activation: str = "relu"
    width: int = 10
    steps: int = STEPS
    seed: int = 0
    cutoff: float = 0.0
    target: str = "sine"
    drawing: tuple[float, ...] = ABS_DRAWING
    layer: int = 2
    token: int = 6
    neuron: int = 0
    edit: str = "mute"
    keep: int = 64
    prompt: str = "Once upon a time there was a little girl who lived in the"
    lines: int = 8
    biases: bool = True
    shape: str = "llama-2-7b"
    d_model: int = 4096
    ratio: float = 4.0
    gated: bool = False
    experts: int = 1
    top_k: int = 1
    context: int = 4096
    batch: int = 16

    def __post_init__(self):
        for name, accepted in (("activation", tuple(ACTIVATIONS)), ("target", TARGETS), ("edit", EDITS), ("shape", SHAPES)):
            if getattr(self, name) not in accepted:
                raise InputError(f"The {name} is {str(getattr(self, name))[:40]!r}; accepted are {', '.join(accepted)}.")
        if self.width % 5:
            raise InputError(f"The width is {self.width}; multiples of 5 only, so that three fifths of it is a whole number of gated units.")
        if self.steps % SNAPSHOT_EVERY:
            raise InputError(f"The steps are {self.steps}; multiples of {SNAPSHOT_EVERY} only.")
        for name, (low, high) in LIMITS.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"{name} is {getattr(self, name)}; accepted are {low:g} to {high:g}.")


LIMITS = {
    "width": (5, MOST_UNITS),
    "steps": (0, STEPS),
    "seed": (0, 10**6),
    "cutoff": (-2, 2),
    "layer": (0, 10**4),
    "token": (0, 10**6),
    "neuron": (0, 10**6),
    "keep": (0, 10**6),
    "lines": (1, MOST_LINES),
    "d_model": (16, 2**16),
    "ratio": (0.25, 16),
    "experts": (1, 1024),
    "top_k": (1, 1024),
    "context": (1, 2**20),
    "batch": (1, 2**16),
}
"""What the engine accepts, ends included; a page may offer less."""
