"""A real model under every law without fine-tuning: loss by position, the price at 1x, induction by repeat distance."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch

from engine.errors import InputError
from engine.models.behaviour import repeated_tokens
from engine.models.catalog import PROSE
from engine.models.families import Rotation
from engine.models.loading import open_model, open_tokenizer, require_causal, require_unembedding
from engine.models.turning import losses, own_rotation, predictions
from engine.models.weights import model_shape
from engine.params import Number, frozen, uses
from engine.progress import OnStep, offer, silent
from engine.rope import LAW, REACH_LIMIT, RopeParams
from engine.rope_laws import LAWS, scaled

POINTS, WINDOWS = 8, 6
TOKEN_LIMIT, BATCH_TOKENS = 8192, 4096
REPEATS, SEQUENCES = (16, 32, 64, 128, 256, 512, 1024), 4
MEASURED = tuple(name for name in LAW if name not in ("scheme", "base", "d_head", "original_context", "length"))
"""The fields that a measurement under every law depends on: the model brings its own base, width and trained context."""


@dataclass(frozen=True)
class LossResult:
    """Nats per token under every law, window by window.

    ``schemes``: the laws, in order. ``at_1x`` and ``longer`` (laws, windows, points): mean loss in each eighth of a
    trained context, over windows of 1 and of ``reach`` contexts; ``point_tokens`` tokens behind each. ``refused``: law ->
    why it was left out, as pairs. ``uniform``: ln(vocabulary), the loss of even guessing.
    """

    schemes: tuple[str, ...]
    context: int
    reach: int
    at_1x: np.ndarray
    longer: np.ndarray
    point_tokens: int
    uniform: float
    refused: tuple[tuple[str, str], ...]

    @property
    def positions(self) -> np.ndarray:
        """The middle of each point, in tokens."""
        return (np.arange(self.longer.shape[-1]) + 0.5) * self.context / POINTS

    def curve(self, scheme: str) -> tuple[np.ndarray, np.ndarray]:
        """Return mean loss by position and its standard error over windows, each (points,)."""
        of = self.longer[self.schemes.index(scheme)]
        return of.mean(0), of.std(0, ddof=1) / np.sqrt(len(of)) if len(of) > 1 else np.zeros(of.shape[1])

    def mean(self, scheme: str, where: str = "longer") -> tuple[float, float]:
        """Return mean loss over all positions and its standard error over windows; ``where``: longer or at_1x."""
        of = getattr(self, where)[self.schemes.index(scheme)].mean(-1)
        return float(of.mean()), float(of.std(ddof=1) / np.sqrt(len(of))) if len(of) > 1 else 0.0

    def beyond(self, scheme: str) -> float:
        """Return mean loss beyond the trained context; at 1x, within it."""
        return float(self.longer[self.schemes.index(scheme)][:, POINTS if self.reach > 1 else 0 :].mean())


def together(found: list[LossResult]) -> LossResult:
    """Return several windows as one result."""
    return replace(found[0], **{name: frozen(np.concatenate([getattr(f, name) for f in found], axis=1)) for name in ("at_1x", "longer")})


@uses("model", "reach", *MEASURED)
def losses_by_position(params: RopeParams, on_step: OnStep = silent) -> LossResult:
    """Return the loss by position under every law over six windows of held-out text; offers what it has after every window."""
    found = []
    for window in range(WINDOWS):
        found.append(window_losses(params, window, on_step))
        offer(on_step, lambda: together(found))
    return together(found)


def window_losses(params: RopeParams, window: int, on_step: OnStep = silent) -> LossResult:
    """Return the losses of one window, under every law that can be formed for it."""
    model, context = _model(params, on_step)
    long = params.reach * context
    row = window_ids(params.model, model, window, long)
    at_length = {length: _rotations(params, context, length) for length in (context, long)}
    refused = {name: why for _, said in at_length.values() for name, why in said.items()}
    schemes = tuple(name for name in LAWS if name not in refused)
    rotations = {length: [made[name] for name in schemes] for length, (made, _) in at_length.items()}
    told = partial(on_step, window, WINDOWS, f"Held-out text under {len(schemes)} laws, windows of {long:,} tokens read")
    found = {length: frozen(_points(nats, context)[:, None]) for length, nats in _one_window(model, row, rotations, told).items()}
    vocabulary = model.config.vocab_size
    return LossResult(
        *(schemes, context, params.reach, found[context], found[long], context // POINTS),
        uniform=float(np.log(vocabulary)),
        refused=tuple(refused.items()),
    )


def _one_window(model, row: torch.Tensor, rotations: dict[int, list[Rotation]], told: Callable[[], None]) -> dict[int, np.ndarray]:
    """Return nats (laws, length) of one window at every length; what a longer reading under the same rotation says is not read again.

    Long windows are read in batches of a few laws, with ``told()`` before each: nobody waits long for an abandoned one to stop.
    """
    known = {}
    for length in sorted(rotations, reverse=True):
        missing = [r for r in dict.fromkeys(rotations[length]) if r not in known]
        few = max(1, BATCH_TOKENS // length)
        for batch in (missing[i : i + few] for i in range(0, len(missing), few)):
            told()
            known |= zip(batch, losses(model, row[None, : length + 1].expand(len(batch), -1), batch), strict=True)
    return {length: np.stack([known[r][:length] for r in asked]) for length, asked in rotations.items()}


def _points(nats: np.ndarray, context: int) -> np.ndarray:
    """Return means over eighths of a context: (laws, tokens) -> (laws, points)."""
    size = context // POINTS
    return nats[:, : nats.shape[1] // size * size].reshape(len(nats), -1, size).mean(-1)


def _under(read, model, row: torch.Tensor, rotations: list[Rotation]) -> np.ndarray:
    """Return ``read`` of one row under every rotation, (rotations, tokens), in one batch; equal rotations are read once."""
    different = list(dict.fromkeys(rotations))
    return read(model, row[None].expand(len(different), -1), different)[[different.index(r) for r in rotations]]


def _model(params: RopeParams, on_step: OnStep):
    """Return the shared model and its trained context; raise ModelError or InputError for one that cannot be measured."""
    shape = model_shape(params.model)
    require_causal(shape, "loss by position")
    require_unembedding(shape, "loss by position")
    own_rotation(shape)
    if shape.context % POINTS or params.reach * shape.context > TOKEN_LIMIT:
        raise InputError(f"{params.reach} x {shape.context} tokens are to be read at once; at most {TOKEN_LIMIT} can be, so choose a shorter length.")
    return open_model(params.model, on_step), shape.context


def _rotations(params: RopeParams, context: int, length: int) -> tuple[dict[str, Rotation], dict[str, str]]:
    """Return every law's rotation of the model at a length in use, and why a law cannot be formed."""
    own, made, refused = own_rotation(model_shape(params.model)), {}, {}
    base = own.inv_freq[-1] ** (-len(own.inv_freq) / max(len(own.inv_freq) - 1, 1))
    for scheme in LAWS:
        try:
            theta, factor = scaled(scheme, params.stretch(own.n_rotary, base, context, length), params.pairs)
            made[scheme] = replace(own, inv_freq=tuple(float(t) for t in theta), attention_factor=float(factor))
        except InputError as error:
            refused[scheme] = str(error)
    return made, refused


def window_ids(name: str, model, window: int, length: int) -> torch.Tensor:
    """Return ids (length + 1,) of a window of held-out text after the model's first token; the same text at every length."""
    tokens, bos = _tokens(name), model.config.bos_token_id
    longest = REACH_LIMIT * model_shape(name).context
    every = (len(tokens) - 1 - (longest if len(tokens) > 2 * longest else length)) // WINDOWS
    if every < 1:
        raise InputError(f"The held-out text has {len(tokens)} tokens for this model; {WINDOWS} windows of {length} need more.")
    start = window * every
    first = [] if bos is None else [bos]
    return torch.tensor((first + tokens[start : start + length + 1])[: length + 1])


@lru_cache(maxsize=4)
def _tokens(name: str) -> list[int]:
    return open_tokenizer(name)(PROSE.read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]


@dataclass(frozen=True)
class InductionResult:
    """Share of a repeat that each law's model predicts, by repeat distance: ``accuracy`` and ``spread`` (laws, distances).

    ``spread``: standard error over sequences; ``tokens``: predictions behind each point; ``chance``: 1 / vocabulary.
    """

    schemes: tuple[str, ...]
    context: int
    distances: tuple[int, ...]
    accuracy: np.ndarray
    spread: np.ndarray
    tokens: tuple[int, ...]
    chance: float


@uses("model", "reach", *MEASURED)
def induction(params: RopeParams, on_step: OnStep = silent) -> InductionResult:
    """Return how well uniformly random tokens are copied when they come again, by how far back, under every law in one batch.

    Sequences of <s>, n tokens, and the same n again; counted is the second half but for its first token, which cannot be
    known. A distance n reads 2 n + 1 tokens, which is the length in use for dynamic NTK and LongRoPE.
    """
    model, context = _model(params, on_step)
    vocabulary, bos = model.config.vocab_size, model.config.bos_token_id
    distances = tuple(n for n in REPEATS if 2 * n <= params.reach * context)
    found = []
    for done, n in enumerate(distances):
        on_step(done, len(distances), "Copying repeated random tokens, distance by distance")
        rotations, _ = _rotations(params, context, 2 * n + 1)
        schemes = tuple(rotations)
        ids = repeated_tokens(vocabulary, n, SEQUENCES, 0, bos, first=1 if bos == 0 else 0)
        right = [_under(predictions, model, row, list(rotations.values()))[:, -n + 1 :] == row[-n + 1 :].numpy() for row in ids]
        found.append((schemes, np.stack([r.mean(1) for r in right])))
    kept = tuple(s for s in LAWS if all(s in schemes for schemes, _ in found))
    shares = [values[:, [schemes.index(s) for s in kept]] for schemes, values in found]
    accuracy = np.stack([v.mean(0) for v in shares], axis=1)
    spread = np.stack([v.std(0, ddof=1) / np.sqrt(len(v)) for v in shares], axis=1)
    counts = tuple(SEQUENCES * (n - 1) for n in distances)
    return InductionResult(kept, context, distances, frozen(accuracy), frozen(spread), counts, 1 / vocabulary)


def loss_rows(result: LossResult) -> list[list]:
    """Return rows (quantity, law, position, nats per token, standard error): every curve, and the loss and the price at 1x."""
    rows, plain = [], result.mean("none", "at_1x")[0]
    for name in result.schemes:
        rows += [["loss", name, float(x), float(y), float(e)] for x, y, e in zip(result.positions, *result.curve(name), strict=True)]
        value, error = result.mean(name, "at_1x")
        rows += [["loss at 1x", name, "", value, error], ["price at 1x", name, "", value - plain, ""]]
        rows.append(["loss beyond 1x", name, "", result.beyond(name), ""])
    return rows


def loss_numbers(params: RopeParams, result: LossResult) -> dict[str, Number]:
    """Return the losses that a page reads off for the chosen law (plain, if it could not be formed), beside even guessing."""
    scheme = params.scheme if params.scheme in result.schemes else "none"
    plain_1x = result.mean("none", "at_1x")[0]
    price = result.mean(scheme, "at_1x")[0] - plain_1x
    rescued = result.beyond("none") - result.beyond(scheme)
    return {
        "loss": Number(f"Loss {'beyond' if result.reach > 1 else 'at'} 1x", result.beyond(scheme), result.uniform, 2),
        "loss_1x": Number("Plain loss at 1x", plain_1x, result.uniform, 2),
        "price": Number("Price of the law at 1x", price, None, 2),
        "rescued": Number("Nats per token that the law saves beyond 1x", rescued, 0.0, 2),
    }


@uses("model", "scheme", "reach", *MEASURED)
def pairs_number(params: RopeParams, on_step: OnStep = silent) -> Number:
    """Return how much more of the loss beyond 1x a law saves on the slow pairs alone than on the fast pairs alone."""
    slow, fast = (losses_by_position(replace(params, pairs=pairs), on_step).beyond(params.scheme) for pairs in ("slow", "fast"))
    return Number("Saved by the slow pairs less saved by the fast, nats per token", fast - slow, 0.0, 2)
