"""The norms of a real model: what reaches them on a prompt, what they do to it, and what another norm would cost.

Source: seed 004 (LayerNorm linearised); Zhang & Sennrich 2019 for the claim that the mean can be left alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from engine.linalg import energy_effective_rank
from engine.models.behaviour import token_losses
from engine.models.catalog import PROSE
from engine.models.loading import open_model, open_tokenizer, require_causal, require_unembedding, tokenize
from engine.models.streams import Replacement, folded, mean_direction, norm_inputs, stream_norms, with_norms
from engine.models.weights import model_shape
from engine.norm_values import NormsParams
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams, head_spectra

TOKEN_LIMIT = 128
WINDOWS, CONTEXT = 4, 256
OUTLIERS = 8
VARIANTS = {
    "RMSNorm, same gain": (None, True, True),
    "LayerNorm, same gain": ("mean", True, True),
    "a random direction removed": ("random", True, True),
    "RMSNorm, no gain": (None, False, True),
    "LayerNorm, no gain": ("mean", False, True),
    "gain only, no norm": (None, True, False),
}
"""What takes the place of every norm: the direction that it removes, whether it keeps its gain, whether it divides at all."""


@dataclass(frozen=True)
class StreamResult:
    """What every norm of a model receives on a prompt, in the order of execution; means over tokens, (norms,) each.

    ``rms`` of the stream; ``mean_share`` = |mean| / RMS, the cosine between the stream and the direction of ones;
    ``mean_chance``: the same for a random direction, sqrt(2 / (pi d)); ``angle`` in degrees between LayerNorm's and RMSNorm's
    output (their own epsilon, no gain). ``largest`` = max |x_i| / RMS, ``largest_chance``: for a Gaussian vector of that size.
    ``outliers`` (norms, 8): the features with the largest mean square; ``outlier_share`` (norms, 8): share of |x|^2 in each.
    ``gain`` (norms, d_model): the learned gains. ``first_rms`` (norms,): RMS at the first token alone.
    """

    names: tuple[str, ...]
    n_tokens: int
    d_model: int
    centred: bool
    rms: np.ndarray
    first_rms: np.ndarray
    mean_share: np.ndarray
    mean_chance: float
    angle: np.ndarray
    largest: np.ndarray
    largest_chance: float
    outliers: np.ndarray
    outlier_share: np.ndarray
    gain: np.ndarray

    def numbers(self) -> tuple[Number, ...]:
        """Return the largest mean component, angle and single feature over all norms, each beside chance, and how far the stream grows."""
        angle = math.degrees(math.asin(min(self.mean_chance, 1)))
        return (
            Number("Largest angle between the two norms", float(self.angle.max()), angle, 1, "°"),
            Number("Mean component, largest share", 100 * float(self.mean_share.max()), 100 * self.mean_chance, 1, " %"),
            Number("Largest feature over RMS", float(self.largest.max()), self.largest_chance, 1),
            Number("The stream grows", float(self.rms[-1] / self.rms[0]), None, 0, " times"),
        )


@dataclass(frozen=True)
class SwapResult:
    """Loss of a model whose every norm is replaced: nats per token on ``n_tokens`` of held-out prose; ``chance`` = ln(vocabulary).

    ``trained``: which of the ``losses`` is the model as it was trained.
    """

    n_tokens: int
    chance: float
    trained: str
    losses: dict[str, float]

    def numbers(self) -> tuple[Number, ...]:
        """Return the loss as trained beside chance, and what the other norm and no gain cost beside removing a random direction."""
        base = self.losses[self.trained]
        other = next(name for name in ("LayerNorm, same gain", "RMSNorm, same gain") if name != self.trained)
        random, plain = self.losses["a random direction removed"], self.losses[self.trained.replace("same", "no")]
        return (
            Number("Loss as trained, nats per token", base, self.chance, 3),
            Number(f"More with {other}", self.losses[other] - base, random - base, 3, against="random direction"),
            Number("More without the gains", plain - base, self.chance - base, 2, against="knowing nothing"),
        )


@dataclass(frozen=True)
class FoldResult:
    """A model with the gain before attention folded into W_Q, W_K and W_V of every layer.

    ``difference``: largest difference of logits on the prompt, ``largest``: largest logit; ``before``, ``after``
    (n_layers, n_heads): energy effective rank of W_QK at distance 0.
    """

    n_folded: int
    difference: float
    largest: float
    before: np.ndarray
    after: np.ndarray

    def numbers(self) -> tuple[Number, ...]:
        """Return how much the function and the spectra change."""
        change = np.abs(self.after / self.before - 1)
        return (
            Number("Function: largest change of a logit, relative", self.difference / self.largest * 1e6, None, 2, " millionths"),
            Number("Spectra: largest change of a head's effective rank", 100 * float(change.max()), None, 1, " %"),
        )


@uses("model", "prompt")
def stream(params: NormsParams, on_step: OnStep = silent) -> StreamResult:
    """Return what every norm over d_model receives on the prompt, at most 128 tokens."""
    shape = model_shape(params.model)
    ids, _ = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 1, "Running the model")
    model = open_model(params.model, on_step)
    norms = {norm.name: norm for norm in stream_norms(model)}
    seen = {name: x[0].double().cpu() for name, x in norm_inputs(model, [ids]).items()}
    found = {name: _measured(x, norms[name].eps) for name, x in seen.items()}
    column = lambda key: frozen(np.array([values[key] for values in found.values()]))  # noqa: E731
    draws = np.abs(np.random.default_rng(0).standard_normal((200, shape.d_model)))
    return StreamResult(
        tuple(_short(name) for name in found),
        len(ids),
        shape.d_model,
        norms[next(iter(found))].centred,
        mean_chance=math.sqrt(2 / (math.pi * shape.d_model)),
        largest_chance=float(draws.max(1).mean()),
        gain=frozen(np.stack([norms[name].gain.double().cpu().numpy() for name in found])),
        **{key: column(key) for key in next(iter(found.values()))},
    )


def _measured(x: torch.Tensor, eps: float) -> dict:
    """Return the numbers of ``StreamResult`` for one norm's input (tokens, d_model)."""
    square, mean = x.square().mean(-1), x.mean(-1)
    c = x - mean[:, None]
    layer, rms = (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps) for z in (c, x))
    cosine = torch.nn.functional.cosine_similarity(layer, rms, dim=-1).clamp(-1, 1)
    share = (x.square() / x.square().sum(-1, keepdim=True)).mean(0)
    top = share.topk(min(OUTLIERS, len(share)))
    return {
        "rms": float(square.sqrt().mean()),
        "first_rms": float(square[0].sqrt()),
        "mean_share": float((mean.abs() / square.sqrt()).mean()),
        "angle": float(torch.rad2deg(cosine.arccos()).mean()),
        "largest": float((x.abs().amax(-1) / square.sqrt()).mean()),
        "outliers": top.indices.numpy(),
        "outlier_share": top.values.numpy(),
    }


@uses("model")
def swap(params: NormsParams, on_step: OnStep = silent) -> SwapResult:
    """Return the loss on held-out prose with every norm replaced, for each of ``VARIANTS``. Needs a causal model with an unembedding."""
    shape = model_shape(params.model)
    require_causal(shape, "loss")
    require_unembedding(shape, "loss")
    model = open_model(params.model, on_step)
    context = min(CONTEXT, shape.context)
    tokens = open_tokenizer(params.model)(PROSE.read_text(encoding="utf-8")[: 8 * WINDOWS * context])["input_ids"][: WINDOWS * (context - 1)]
    losses, norms = {}, stream_norms(model)
    for done, (name, (removed, gain, divide)) in enumerate(VARIANTS.items()):
        on_step(done, len(VARIANTS), "Loss with other norms")
        u = {None: None, "mean": mean_direction(norms[0]), "random": _random_direction(norms[0].gain)}[removed]
        other = with_norms(model, lambda norm, u=u, gain=gain, divide=divide: Replacement(norm, u, gain, divide))
        losses[name] = float(token_losses(other, tokens, context, bos=model.config.bos_token_id or 0).mean())
    trained = f"{'LayerNorm' if norms[0].centred else 'RMSNorm'}, same gain"
    return SwapResult(len(tokens), math.log(shape.vocab_size), trained, losses)


def _random_direction(like: torch.Tensor) -> torch.Tensor:
    u = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    return u / u.norm()


@uses("model", "prompt")
@torch.no_grad()
def fold(params: NormsParams, on_step: OnStep = silent) -> FoldResult:
    """Return what folding the gains into the next weights changes: the function to rounding, the spectra of the heads visibly."""
    shape = model_shape(params.model)
    require_unembedding(shape, "comparing logits")
    ids, _ = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 2, "Running both models")
    model = open_model(params.model, on_step)
    other, n_folded = folded(model)
    ours, theirs = (m(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits for m in (other, model))
    on_step(1, 2, "Spectra of all heads")
    spectra = [head_spectra(SpectraParams(model=params.model, fold=on)).qk_singular_values for on in (False, True)]
    before, after = (frozen(energy_effective_rank(values)) for values in spectra)
    return FoldResult(n_folded, float((ours - theirs).abs().max()), float(theirs.abs().max()), before, after)


def _short(name: str) -> str:
    """Return a norm's name without what all share: ``layers.2.input_layernorm`` becomes ``2 input``."""
    parts = name.split(".")
    layer = next((part for part in parts if part.isdecimal()), "")
    return f"{layer} {parts[-1].removesuffix('_layernorm')}".strip()
