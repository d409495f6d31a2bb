"""Cause, not only correlation: switch heads off, or leave them a few directions, and measure what the model can still do.

Two measures: nats per token on held-out prose, and the share of repeated random tokens that the model predicts. Both are
taken with and without the change, on the same text. Sources: Olsson et al. 2022 (arXiv 2209.11895), copying and ablation of
induction heads; Eckart & Young 1936, the truncation.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.behaviour import REPEAT_LENGTH, behaviour_scores
from engine.circuits import circuits
from engine.errors import InputError, ModelError
from engine.heads import parse_heads
from engine.linalg import truncating_factors
from engine.models.attention import tensors_of
from engine.models.behaviour import repeated_tokens
from engine.models.catalog import ASSETS
from engine.models.families import Shape
from engine.models.interventions import Change, Member, mean_z, measured, sequence_copying, sequence_losses
from engine.models.loading import open_model, open_tokenizer, require_causal, require_unembedding
from engine.models.weights import layer_heads, model_shape
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams

PROSE = ASSETS / "data" / "held-out-prose.txt"
CONTEXT = 128
INDUCTION = 0.4  # prefix matching above which a head counts as an induction head
PER_SEED = 4
CHANGING = ("model", "fold", "off", "removal", "keep")
"""What says which change is made; ``fold``: whether the truncated matrix has the norm's gain multiplied in."""


@dataclass(frozen=True)
class Budget:
    """How much is measured: windows of held-out prose, and seeds of repeated random tokens (four sequences each)."""

    windows: int
    seeds: int


ONE, MANY = Budget(16, 5), Budget(8, 2)


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
        percent = lambda label, share: Number(label, 100 * share, 100 * self.copying_chance, 1, " %")  # noqa: E731
        before = (percent("Copying before", self.copying_before), percent("Copying after", self.copying_after))
        nats = lambda label, loss: Number(label, loss, self.loss_chance, 3, " nats")  # noqa: E731
        return (*before, nats("Loss per token before", self.loss_before), nats("Loss per token after", self.loss_after))


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
        """Return how many directions the heads need for 90 % of the intact accuracy, beside the share that needs by chance alone."""
        return (Number("Directions for 90 % of copying", float(self.directions_90), None, 0, f" of {int(self.k[-1])}"),)


def heads_of(params: SpectraParams) -> tuple[tuple[int, int], ...]:
    """Return the heads that the parameters name, as (layer, head) pairs."""
    return parse_heads(params.off)


@uses(*CHANGING)
def effect(params: SpectraParams, on_step: OnStep = silent) -> EffectResult:
    """Return loss and copying accuracy with and without the change that ``off``, ``removal`` and ``keep`` describe.

    16 windows of held-out prose, spread over it, and 20 sequences of repeated random tokens. Raises InputError for heads or
    directions that the model does not have, ModelError for an encoder or a model that cannot be changed as asked.
    """
    subject = _Subject(params, on_step)
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
    subject, losses, copying = _Subject(params, on_step), [], []
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
    heads = heads_of(params) or induction_heads(params, on_step)
    circuit = "qk" if params.removal == "keep_qk" else "ov"
    subject = _Subject(replace(params, removal=f"keep_{circuit}", keep=0), on_step)
    k = _steps(subject.shape.d_head)
    members = [subject.changes(heads, kept) for kept in k]
    losses, copying = subject.measure(members, MANY, on_step)
    loss, error = _mean_and_error(losses)
    accuracy, spread = _mean_and_spread(copying, MANY.seeds)
    enough = np.logical_and.accumulate((accuracy >= 0.9 * accuracy[-1])[::-1])[::-1]
    arrays = {"copying": accuracy, "copying_spread": spread, "loss": loss, "loss_error": error, "k": np.array(k)}
    chance = 1 / subject.shape.vocab_size
    return KeepResult(heads, circuit, copying_chance=chance, directions_90=k[int(enough.argmax())], **{n: frozen(v) for n, v in arrays.items()})


def induction_heads(params: SpectraParams, on_step: OnStep = silent) -> tuple[tuple[int, int], ...]:
    """Return all (layer, head) with prefix matching above 0.4, the strongest first; raise ModelError if there is none."""
    scores = behaviour_scores(params, on_step).prefix_matching
    found = sorted(zip(*np.nonzero(scores > INDUCTION), strict=True), key=lambda where: -scores[where])
    if not found:
        best = scores.max()
        raise ModelError(f"No head of this model is an induction head: the largest prefix matching is {best:.2f}, above {INDUCTION} is needed.")
    return tuple((int(layer), int(head)) for layer, head in found)


class _Subject:
    """A model, what is measured on it, and the changes that its heads can undergo."""

    def __init__(self, params: SpectraParams, on_step: OnStep):
        self.params, self.shape = params, model_shape(params.model)
        require_causal(self.shape, "switching heads off")
        require_unembedding(self.shape, "switching heads off")
        check_change(params, self.shape)
        self.model = open_model(params.model, on_step)
        self.bos = self.model.config.bos_token_id
        self.context = min(CONTEXT, self.shape.context)
        self.repeat_length = min(REPEAT_LENGTH, (self.shape.context - (self.bos is not None)) // 2)
        self._means = None

    def changes(self, heads, keep: int | None = None) -> Member:
        """Return the changes that remove the heads as the parameters say; none if all directions are kept."""
        keep = self.params.keep if keep is None else keep
        removal, shape = self.params.removal, self.shape
        if removal == "zero":
            return tuple(Change("z", *head) for head in heads)
        if removal == "mean":
            if self._means is None:
                self._means = mean_z(self.model, shape, self.windows(ONE)[1]).float()
            return tuple(Change("z", *head, shift=self._means[head]) for head in heads)
        return () if keep >= shape.d_head else tuple(truncation(self.model, shape, head, removal[-2:], keep, self.params.fold) for head in heads)

    def measure(self, members: list[Member], budget: Budget, on_step: OnStep = silent) -> tuple[np.ndarray, np.ndarray]:
        """Return losses (members, windows) in nats per token and copying accuracies (members, sequences)."""
        text = measured(self.model, members, self.windows(budget)[0], sequence_losses, lambda: on_step(0, 2, "Reading held-out prose"))
        count = lambda logits, ids: sequence_copying(logits, ids, self.repeat_length)  # noqa: E731
        repeats = measured(self.model, members, self.repeats(budget), count, lambda: on_step(1, 2, "Reading repeated random tokens"))
        return text.numpy(), repeats.numpy()

    def windows(self, budget: Budget) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids (windows, context) to measure on and as many others for means, in turn from places spread evenly over the prose."""
        ids = prose_windows(self.params.model, 2 * budget.windows, self.context, self.bos)
        return ids[::2], ids[1::2]

    def repeats(self, budget: Budget) -> torch.Tensor:
        """Return ids of repeated random tokens, four sequences for each seed."""
        first = 1 if self.bos == 0 else 0
        drawn = [repeated_tokens(self.shape.vocab_size, self.repeat_length, PER_SEED, seed, self.bos, first) for seed in range(budget.seeds)]
        return torch.cat(drawn)

    def sizes(self, budget: Budget) -> dict:
        """Return what a result says about how it was measured."""
        seen = {"context": self.context, "n_tokens": budget.windows * (self.context - 1)}
        return {**seen, "repeat_length": self.repeat_length, "n_seeds": budget.seeds, "copying_chance": 1 / self.shape.vocab_size}


def check_change(params: SpectraParams, shape: Shape) -> None:
    """Raise InputError for heads or directions that the model does not have, ModelError where W_QK cannot be truncated."""
    for layer, head in heads_of(params):
        if layer >= shape.n_layers or head >= shape.n_heads:
            accepted = f"layers 0 to {shape.n_layers - 1} and heads 0 to {shape.n_heads - 1}"
            raise InputError(f"Head {layer}.{head}: this model has {accepted}.")
    if params.keep > shape.d_head:
        raise InputError(f"{params.keep} directions cannot be kept; a head of this model has {shape.d_head}.")
    if params.removal == "keep_qk" and shape.qk_norm:
        raise ModelError(f"{shape.family} normalises queries per head, so its scores are not x^T W_QK y: W_QK cannot be truncated; W_OV can.")


def truncation(model, shape: Shape, where: tuple[int, int], circuit: str, keep: int, fold: bool) -> Change:
    """Return the change after which a head's W_OV or W_QK (at distance 0) is its own rank-``keep`` truncation.

    For W_OV, z - b_V becomes P (z - b_V) with W_O P W_V the truncation; for W_QK, q - b_Q becomes P^T (q - b_Q) with
    W_Q^T P W_K the truncation: before the rotation, on the query's side only, so that heads that share the key or value
    keep it. Biases stay: rows of A sum to 1, so z = A (W_V x) + b_V.
    """
    layer, head = where
    heads = layer_heads(shape, tensors_of(model), layer)
    A, B = circuits(heads, None, 0, fold, str(model.device)).of(circuit, head)
    left, right = truncating_factors(A, B)
    P = left[:, :keep] @ right[:keep]
    P, place = (P, "z") if circuit == "ov" else (P.mT, "q")
    biases, of = (heads.b_V, head // shape.group_size) if circuit == "ov" else (heads.b_Q, head)
    shift = None if biases is None else (biases[of].double() - P @ biases[of].double()).float()
    return Change(place, layer, head, P.float(), shift)


def prose_windows(model: str, count: int, context: int, bos: int | None) -> torch.Tensor:
    """Return ids (count, context) of held-out prose from places spread evenly over it, each after <s> if the model has one."""
    text, tokenizer = PROSE.read_text(encoding="ascii"), open_tokenizer(model)
    starts = [text.index(" ", i * len(text) // count) for i in range(count)]
    n = context - (bos is not None)
    ids = [tokenizer(text[s : s + 10 * context], add_special_tokens=False)["input_ids"][:n] for s in starts]
    if min(map(len, ids)) < n:
        raise ModelError(f"The tokenizer of this model makes fewer than {n} tokens of {10 * context} characters; held-out loss is not defined here.")
    return torch.tensor([[*([] if bos is None else [bos]), *window] for window in ids])


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
