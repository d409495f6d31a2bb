"""One number per head, whatever it is about: its spectrum, what it does, or what its removal costs.

The page colours its map by any of them and plots any against any other; each comes with what chance gives.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from engine.ablation import SweepResult, sweep
from engine.behaviour import BehaviourResult, behaviour_scores
from engine.params import Number, frozen
from engine.scalars import Scalars
from engine.spectra import ChanceResult, CopyingResult, SpectraResult, chance, copying_scores, head_spectra
from engine.spectra_params import SpectraParams


@dataclass(frozen=True)
class HeadScore:
    """A number of every head, ``values`` (n_layers, n_heads), beside ``chance``, with the ends of a scale that stays.

    ``low`` and ``high`` are the same for every layer, head and distance, so that a colour keeps its meaning.
    ``by_circuit``: whether it differs between W_OV and W_QK.
    """

    name: str
    values: np.ndarray
    chance: float | None
    low: float
    high: float
    digits: int = 2
    unit: str = ""
    by_circuit: bool = False

    def number(self, layer: int, head: int) -> Number:
        """Return one head's number beside chance."""
        return Number(f"{self.name[0].upper()}{self.name[1:]}", float(self.values[layer, head]), self.chance, self.digits, self.unit)


def _spectral(what: str, high: Callable[[int], float], digits: int = 1, low: float = 0.0, of: Callable = np.asarray):
    def score(name: str, params: SpectraParams, spectra: SpectraResult, by_chance: ChanceResult) -> HeadScore:
        values = frozen(of(spectra.of(params.circuit, what)).astype(float))
        return HeadScore(name, values, float(of(getattr(by_chance.scalars.mean, what))), low, high(spectra.d_head), digits, by_circuit=True)

    return (head_spectra, chance), score


def _behaviour(what: str):
    def score(name: str, params: SpectraParams, found: BehaviourResult) -> HeadScore:
        return HeadScore(name, getattr(found, what), getattr(found, f"{what}_chance"), 0.0, 1.0)

    return (behaviour_scores,), score


def _copying(name: str, params: SpectraParams, found: CopyingResult) -> HeadScore:
    return HeadScore(name, found.copying_score, found.chance, -1.0, 1.0)


def _size(name: str, params: SpectraParams, spectra: SpectraResult) -> HeadScore:
    sizes = np.linalg.norm(spectra.of(params.circuit, "singular_values"), axis=-1)
    return HeadScore(name, frozen(sizes), None, 0.0, float(sizes.max()), by_circuit=True)


def _loss(name: str, params: SpectraParams, found: SweepResult) -> HeadScore:
    return HeadScore(name, found.loss_change, 0.0, min(0.0, float(found.loss_change.min())), float(found.loss_change.max()), 3, " nats")


def _accuracy(name: str, params: SpectraParams, found: SweepResult) -> HeadScore:
    return HeadScore(name, frozen(100 * found.copying), 100 * found.copying_chance, 0.0, 100.0, 0, " %")


def _log10(values) -> np.ndarray:
    return np.log10(np.maximum(np.asarray(values, dtype=float), 1.0))


_SCORES = {
    "effective_rank": ("effective rank", *_spectral("effective_rank", float)),
    "roy_vetterli_rank": ("effective rank (Roy and Vetterli)", *_spectral("roy_vetterli_rank", float)),
    "stable_rank": ("stable rank", *_spectral("stable_rank", float)),
    "participation_ratio": ("participation ratio", *_spectral("participation_ratio", float)),
    "numerical_rank": ("numerical rank", *_spectral("numerical_rank", float, 0)),
    "condition_number": ("log10 of the condition number", *_spectral("condition_number", lambda r: 8.0, 1, of=_log10)),
    "directions_90": ("directions for 90 % of energy", *_spectral("directions_90", float, 0)),
    "directions_99": ("directions for 99 % of energy", *_spectral("directions_99", float, 0)),
    "top_share": ("share of the first direction", *_spectral("top_share", lambda r: 1.0, 2)),
    "size": ("Frobenius norm", (head_spectra,), _size),
    "copying_score": ("copying score (eigenvalues of W_OV)", (copying_scores,), _copying),
    "prefix_matching": ("induction score", *_behaviour("prefix_matching")),
    "previous_token": ("previous-token score", *_behaviour("previous_token")),
    "duplicate_token": ("duplicate-token score", *_behaviour("duplicate_token")),
    "loss_change": ("loss added by changing it alone", (sweep,), _loss),
    "copying_left": ("copying left after changing it alone", (sweep,), _accuracy),
}

SCORES = {name: words for name, (words, *_) in _SCORES.items()}
"""Every score's name in the link, and in words."""

SPECTRAL = tuple(f.name for f in fields(Scalars))
"""The scores that come from the weights alone."""


def sources(name: str) -> tuple[Callable, ...]:
    """Return the engine functions that a score is made from, each called with the page's parameters."""
    return _SCORES[name][1]


def score(name: str, params: SpectraParams, *results) -> HeadScore:
    """Return a score from the results of its ``sources``, in their order.

    ``loss_change`` and ``copying_left`` concern the removal that the parameters describe: zero, mean, or k directions kept.
    """
    words, _, make = _SCORES[name]
    return make(words, params, *results)


def head_score(name: str, params: SpectraParams) -> HeadScore:
    """Return a score of every head, computed here: for notebooks."""
    return score(name, params, *(function(params) for function in sources(name)))


RECORDED = ("copying_score", "previous_token", "prefix_matching")


def in_training(name: str, params: SpectraParams) -> tuple[str, str]:
    """Return the score that can be followed through the training, and its name in ``TrajectoryResult.of``.

    The snapshots hold no embeddings, so what needs a forward pass and was not recorded becomes the induction score.
    """
    if name in SPECTRAL:
        return name, f"{params.circuit}.{name}"
    return (name, name) if name in RECORDED else ("prefix_matching", "prefix_matching")


def at_snapshot(today: HeadScore, values: np.ndarray) -> HeadScore:
    """Return a score with the values (n_layers, n_heads) of a snapshot, on the scale of the trained model."""
    return replace(today, values=frozen(_log10(values) if today.name.startswith("log10") else np.asarray(values, dtype=float)))


def columns(params: SpectraParams, spectra: SpectraResult, *others: HeadScore) -> tuple[list[str], list[list]]:
    """Return header and rows, one per head: every spectral number of both circuits, and other scores."""
    numbers = {f"{circuit} {name}": spectra.of(circuit, name) for circuit in ("ov", "qk") for name in SPECTRAL}
    numbers |= {score.name: score.values for score in others}
    rows = [[layer, head, *(float(v[layer, head]) for v in numbers.values())] for layer, head in np.ndindex(spectra.n_layers, spectra.n_heads)]
    return ["layer", "head", *numbers], rows
