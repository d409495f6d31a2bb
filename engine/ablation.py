"""Cause, not only correlation: switch heads off, or leave them a few directions, and measure what the model can still do.

Two measures: nats per token on held-out prose, and the share of repeated random tokens that the model predicts. Both are
taken with and without the change, on the same text. Sources: Olsson et al. 2022 (arXiv 2209.11895), copying and ablation of
induction heads; Eckart & Young 1936, the truncation.
"""

from dataclasses import dataclass, replace

import numpy as np

from engine.behaviour import behaviour_scores
from engine.changes import MANY, ONE, Subject, heads_of
from engine.errors import ModelError
from engine.params import Number, frozen, restrict, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams

STRONG = 0.4  # a score above which a head counts as an induction or a previous-token head
CHANGING = ("model", "fold", "off", "removal", "keep")
"""What says which change is made; ``fold``: whether the truncated matrix has the norm's gain multiplied in."""


@dataclass(frozen=True)
class EffectResult:
    """Loss and copying accuracy before and after heads are changed.

    ``loss_*`` nats per token over ``n_tokens`` predicted tokens in windows of ``context``; ``loss_*_error`` the standard
    error over windows, that of the change paired. ``copying_*`` shares in [0, 1]: mean over ``n_seeds`` seeds and
    ``*_spread``, the standard deviation over seeds. ``*_chance``: log(vocab) and 1 / vocab, guessing evenly.
    """

    heads: tuple[tuple[int, int], ...]
    removal: str
    keep: int
    context: int
    n_tokens: int
    loss_before: float
    loss_before_error: float
    loss_after: float
    loss_after_error: float
    loss_change: float
    loss_change_error: float
    loss_chance: float
    repeat_length: int
    n_seeds: int
    copying_before: float
    copying_before_spread: float
    copying_after: float
    copying_after_spread: float
    copying_chance: float

    def numbers(self) -> tuple[Number, ...]:
        """Return what is read off: accuracy and loss, before and after, beside even guessing."""
        accuracy, chance, before = (100 * share for share in (self.copying_after, self.copying_chance, self.copying_before))
        return (
            Number("Copying: repeats predicted", accuracy, chance, 1, " %", before=before),
            Number("Loss per token of prose", self.loss_after, self.loss_chance, 3, " nats", before=self.loss_before),
        )


@dataclass(frozen=True)
class SweepResult:
    """What each head alone costs, each array (n_layers, n_heads); units and errors as in ``EffectResult``."""

    removal: str
    keep: int
    context: int
    n_tokens: int
    repeat_length: int
    n_seeds: int
    loss_before: float
    loss_change: np.ndarray
    loss_change_error: np.ndarray
    copying_before: float
    copying: np.ndarray
    copying_spread: np.ndarray
    copying_chance: float


@dataclass(frozen=True)
class KeepResult:
    """Loss and copying accuracy when every one of ``heads`` keeps k singular directions of its W_OV or W_QK.

    ``k`` (n,) ends with d_head, the intact model; ``copying``, ``copying_spread``, ``loss``, ``loss_error`` (n,).
    ``directions_90``: the least k tried from which on the accuracy stays at or above 90 % of the intact model's.
    """

    heads: tuple[tuple[int, int], ...]
    circuit: str
    k: np.ndarray
    copying: np.ndarray
    copying_spread: np.ndarray
    copying_chance: float
    loss: np.ndarray
    loss_error: np.ndarray
    directions_90: int

    def numbers(self) -> tuple[Number, ...]:
        """Return how many directions the heads need for 90 % of the intact accuracy, of all that they have."""
        return (Number("Directions for 90 % of copying", float(self.directions_90), None, 0, f" of {int(self.k[-1])}"),)


@dataclass(frozen=True)
class LesionResult:
    """What is left of copying without single heads and without all heads of a kind; the heads are found by their scores.

    ``strongest_*``: the (layer, head) with the largest prefix matching or previous-token score; ``induction``, ``previous``:
    all above 0.4, the strongest first. ``copying_*`` shares in [0, 1], means over ``n_seeds`` seeds, heads set to zero.
    """

    induction: tuple[tuple[int, int], ...]
    previous: tuple[tuple[int, int], ...]
    n_seeds: int
    copying_before: float
    copying_chance: float
    without_strongest_induction: float
    without_strongest_previous: float
    without_induction: float
    without_previous: float

    def numbers(self) -> dict[str, Number]:
        """Return what is left of the intact accuracy, in per cent, beside even guessing."""
        labels = {
            "without_strongest_induction": "Copying left without the strongest induction head",
            "without_strongest_previous": "Copying left without the strongest previous-token head",
            "without_induction": "Copying left without all induction heads",
            "without_previous": "Copying left without all previous-token heads",
        }
        left = lambda share: 100 * share / self.copying_before if self.copying_before else 0.0  # noqa: E731
        return {name: Number(label, left(getattr(self, name)), left(self.copying_chance), 1, " %") for name, label in labels.items()}


@uses(*CHANGING)
def effect(params: SpectraParams, on_step: OnStep = silent) -> EffectResult:
    """Return loss and copying accuracy with and without the change that ``off``, ``removal`` and ``keep`` describe.

    16 windows of held-out prose, spread over it, and 20 sequences of repeated random tokens. Raises InputError for heads or
    directions that the model does not have, ModelError for an encoder or a model that cannot be changed as asked.
    """
    subject = Subject(params, on_step)
    changes = subject.changes(heads_of(params))
    losses, copying = subject.measure([(), changes] if changes else [()], ONE, on_step)
    loss, error = _mean_and_error(losses)
    change, change_error = _mean_and_error(losses[-1:] - losses[:1])
    accuracy, spread = _mean_and_spread(copying, ONE.seeds)
    both = lambda name, values: {f"{name}_before": float(values[0]), f"{name}_after": float(values[-1])}  # noqa: E731
    errors = {f"{name}_error": value for name, value in both("loss", error).items()}
    spreads = {f"{name}_spread": value for name, value in both("copying", spread).items()}
    return EffectResult(
        *(heads_of(params), params.removal, params.keep),
        **both("loss", loss),
        **errors,
        **both("copying", accuracy),
        **spreads,
        **subject.sizes(ONE),
        loss_change=float(change[0]),
        loss_change_error=float(change_error[0]),
        loss_chance=float(np.log(subject.shape.vocab_size)),
    )


@uses("model", "fold", "removal", "keep")
def sweep(params: SpectraParams, on_step: OnStep = silent) -> SweepResult:
    """Return what switching each head off alone (or leaving it ``keep`` directions) does to loss and copying.

    A layer's heads are members of one batch, which the model computes once up to that layer. 8 windows and 8 sequences.
    """
    subject, losses, copying = Subject(params, on_step), [], []
    shape = subject.shape
    before = subject.measure([()], MANY)
    for layer in range(shape.n_layers):
        members = [subject.changes([(layer, head)]) for head in range(shape.n_heads)]
        of_layer = subject.measure(members, MANY, lambda *_, at=layer: on_step(at, shape.n_layers, "Switching off heads, layer by layer"))
        losses.append(of_layer[0])
        copying.append(of_layer[1])
    on_step(shape.n_layers, shape.n_layers, "Switching off heads, layer by layer")
    of_heads = lambda values: frozen(values.reshape(shape.n_layers, shape.n_heads))  # noqa: E731
    change, error = _mean_and_error(np.concatenate(losses) - before[0])
    accuracy, spread = _mean_and_spread(np.concatenate(copying), MANY.seeds)
    return SweepResult(
        *(params.removal, params.keep),
        **subject.sizes(MANY),
        loss_before=float(before[0].mean()),
        loss_change=of_heads(change),
        loss_change_error=of_heads(error),
        copying_before=float(before[1].mean()),
        copying=of_heads(accuracy),
        copying_spread=of_heads(spread),
    )


@uses("model", "fold", "off", "removal")
def keep_curve(params: SpectraParams, on_step: OnStep = silent) -> KeepResult:
    """Return loss and copying accuracy against k, the singular directions that every chosen head keeps.

    The heads are those of ``off``, or where it is empty all induction heads (prefix matching above 0.4). The matrix is
    W_QK if ``removal`` is keep_qk, else W_OV. Raises ModelError if the model has no induction head.
    """
    heads = heads_of(params) or strong_heads(params, "prefix_matching", on_step)
    circuit = "qk" if params.removal == "keep_qk" else "ov"
    subject = Subject(replace(params, removal=f"keep_{circuit}", keep=0), on_step)
    k = _steps(subject.shape.d_head)
    members = [subject.changes(heads, kept) for kept in k]
    losses, copying = subject.measure(members, MANY, on_step)
    loss, error = _mean_and_error(losses)
    accuracy, spread = _mean_and_spread(copying, MANY.seeds)
    enough = np.logical_and.accumulate((accuracy >= 0.9 * accuracy[-1])[::-1])[::-1]
    arrays = {"copying": accuracy, "copying_spread": spread, "loss": loss, "loss_error": error, "k": np.array(k)}
    chance = 1 / subject.shape.vocab_size
    return KeepResult(heads, circuit, copying_chance=chance, directions_90=k[int(enough.argmax())], **{n: frozen(v) for n, v in arrays.items()})


@uses("model")
def lesions(params: SpectraParams, on_step: OnStep = silent) -> LesionResult:
    """Return what is left of copying after deleting the strongest induction or previous-token head, or all heads of a kind."""
    induction, previous = (strong_heads(params, score, on_step) for score in ("prefix_matching", "previous_token"))
    subject = Subject(replace(params, removal="zero"), on_step)
    members = [(), *(subject.changes(heads) for heads in (induction[:1], previous[:1], induction, previous))]
    before, *left = _mean_and_spread(subject.copying(members, ONE, on_step), ONE.seeds)[0].tolist()
    return LesionResult(induction, previous, ONE.seeds, before, 1 / subject.shape.vocab_size, *left)


def strong_heads(params: SpectraParams, score: str = "prefix_matching", on_step: OnStep = silent) -> tuple[tuple[int, int], ...]:
    """Return all (layer, head) whose behaviour score is above 0.4, the strongest first; raise ModelError if there is none."""
    scores = getattr(behaviour_scores(restrict(behaviour_scores, params), on_step), score)
    found = sorted(np.argwhere(scores > STRONG).tolist(), key=lambda where: -scores[tuple(where)])
    if not found:
        raise ModelError(f"This model has no head with {score.replace('_', ' ')} above {STRONG}; the largest is {scores.max():.2f}.")
    return tuple((layer, head) for layer, head in found)


def _steps(d_head: int) -> list[int]:
    """Return 0, 1, 2, 3, 4, 6, 8, 12, ... d_head: powers of two and what lies halfway."""
    powers = [2**i for i in range(d_head.bit_length())]
    return sorted({0, d_head, *(k for p in powers for k in (p, 3 * p // 2) if k < d_head)})


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard error over the last axis."""
    return values.mean(-1), values.std(-1, ddof=1) / np.sqrt(values.shape[-1])


def _mean_and_spread(values: np.ndarray, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation over seeds of (members, sequences), whose sequences come seed by seed."""
    by_seed = values.reshape(len(values), seeds, -1).mean(-1)
    return by_seed.mean(-1), by_seed.std(-1, ddof=1)
