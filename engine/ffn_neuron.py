"""What one neuron stands for: the tokens that its value promotes, the text that excites it, and what is lost without it.

Sources: seed 004 (key-value memory); Geva et al. 2021, arXiv 2012.14913, read keys by the text that excites them most.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from engine.ffn_params import FfnParams
from engine.ffn_token import TOKEN_LIMIT, WINDOW, check_token, held_out_inputs, require_neuron, text_ids
from engine.models.behaviour import token_losses
from engine.models.catalog import identity
from engine.models.configuration import shape_of
from engine.models.feedforward import down_module, feed_forward, unembedding, watching
from engine.models.loading import label_of, open_model, open_tokenizer, tokenize
from engine.models.weights import model_shape
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

EXCERPTS, SHOWN = 8, 10
LOSS_WINDOWS, RANDOM_EDITS = 4, 4


@dataclass(frozen=True)
class NeuronResult:
    """What a neuron writes and reads: tokens that its value promotes or holds back most (by their logits' change per unit of a),
    and the places of held-out text at which |a| is largest.

    ``random_top``: largest logit change of a random direction as long as the value, mean of 64. ``excerpts``: (before, token, after, a).
    """

    neuron: int
    promoted: tuple[tuple[str, float], ...]
    held_back: tuple[tuple[str, float], ...]
    random_top: float
    excerpts: tuple[tuple[str, str, str, float], ...]
    tokens_read: int


@dataclass(frozen=True)
class EditResult:
    """The model with activations of one layer set to 0 at every token: next-token probabilities at the token, and the loss.

    ``tokens``: the ten likeliest before or after, with ``before`` and ``after`` (n,). ``divergence``: KL(before || after), nats.
    Losses are nats per token on 508 tokens of held-out prose; ``random_losses``: as many neurons, chosen at random, four times.
    ``uniform_loss``: that of the uniform guess, ln of the vocabulary's size.
    """

    what: str
    tokens: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray
    divergence: float
    loss: float
    edited_loss: float
    random_losses: np.ndarray
    uniform_loss: float

    def numbers(self) -> dict[str, Number]:
        """Return how far prediction and loss moved, beside an edit of random neurons."""
        moved, by_chance = self.edited_loss - self.loss, float(self.random_losses.mean()) - self.loss
        return {
            "loss_change": Number("Loss on held-out prose, change", moved, by_chance, 4, " nats"),
            "loss": Number("Loss before", self.loss, self.uniform_loss, 3, " nats", against="uniform guess"),
            "divergence": Number("Next token moved by (KL)", self.divergence, None, 4, " nats"),
        }


@uses("model", "layer", "neuron")
def neuron(params: FfnParams, on_step: OnStep = silent) -> NeuronResult:
    """Return what a neuron's value promotes and which held-out text excites it most."""
    require_neuron(params)
    model, tokenizer = open_model(params.model, on_step), open_tokenizer(params.model)
    W_U, centred = unembedding(model)
    value = feed_forward(model, params.layer).W_down[:, params.neuron]
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(len(value), 64, generator=generator).to(value)
    random *= value.norm() / random.norm(dim=0)
    directions = torch.cat([value[:, None], random], dim=1)
    change = W_U @ (directions - directions.mean(0) if centred else directions)
    words = lambda picked: tuple((label_of(tokenizer, int(i)), float(change[i, 0])) for i in picked)  # noqa: E731
    order = change[:, 0].argsort()
    excerpts, read = _excerpts(params, on_step)
    return NeuronResult(params.neuron, words(order.flip(0)[:SHOWN]), words(order[:SHOWN]), float(change[:, 1:].max(0).values.mean()), excerpts, read)


@uses("model", "layer", "token", "prompt", "neuron", "edit", "keep")
@torch.no_grad()
def edit(params: FfnParams, on_step: OnStep = silent) -> EditResult:
    """Return what muting a neuron, or keeping only the k largest of every token, does to the next token and to the loss."""
    require_neuron(params)
    ids, labels = tokenize(params.model, params.prompt, TOKEN_LIMIT)
    check_token(params, labels)
    model, tokenizer = open_model(params.model, on_step), open_tokenizer(params.model)
    module, chosen = down_module(model, shape_of(model.config.to_dict()), params.layer), edits(params, model)
    text, window = text_ids(params.model), min(WINDOW, model_shape(params.model).context)
    bos = model.config.bos_token_id if isinstance(model.config.bos_token_id, int) else int(text[0])

    def predict(change) -> torch.Tensor:
        with watching({} if change is None else {module: change}):
            return model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0, params.token].double().softmax(-1).cpu()

    losses = []
    for done, change in enumerate([None, *chosen]):
        on_step(done, 1 + len(chosen), "Loss on held-out prose: the model as it is, edited, and with random neurons instead")
        with watching({} if change is None else {module: change}):
            losses.append(float(token_losses(model, text, window, bos=bos, max_windows=LOSS_WINDOWS).mean()))
    before, after = predict(None), predict(chosen[0])
    top = torch.maximum(before, after).argsort(descending=True)[:SHOWN]
    top = top[before[top].argsort(descending=True)]
    divergence = float((before * (before.clamp_min(1e-300).log() - after.clamp_min(1e-300).log())).sum())
    names = tuple(label_of(tokenizer, int(i)) for i in top)
    what = f"neuron {params.neuron} muted" if params.edit == "mute" else f"{params.keep} largest of every token kept"
    moved = (frozen(before[top]), frozen(after[top]), divergence)
    return EditResult(what, names, *moved, *losses[:2], frozen(np.array(losses[2:])), float(np.log(len(before))))


def edits(params: FfnParams, model) -> list:
    """Return functions of a layer's activations (batch, tokens, d_ff): the edit asked for, then four of random neurons."""
    W_down = feed_forward(model, params.layer).W_down
    lengths, d_ff = W_down.norm(dim=0), W_down.shape[1]
    if params.edit == "mute":
        others = np.random.default_rng(0).choice(d_ff, min(RANDOM_EDITS, d_ff), replace=False)
        return [_mute(int(i)) for i in (params.neuron, *others)]
    return [_keep(params.keep, lengths), *(_keep(params.keep, lengths, seed) for seed in range(RANDOM_EDITS))]


def _strongest(params: FfnParams, on_step: OnStep = silent) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every neuron, the largest |a| on held-out prose with their signs, (d_ff, 8), and the places, flat (d_ff, 8)."""
    x = held_out_inputs(params, on_step)
    with torch.no_grad():
        a = feed_forward(open_model(params.model), params.layer).activations(x.flatten(0, 1))
    places = a.abs().topk(EXCERPTS, dim=0).indices
    return a.gather(0, places).T.cpu().numpy(), places.T.cpu().numpy()


@lru_cache(maxsize=8)
def _strongest_of(params: FfnParams, _identity: tuple) -> tuple[np.ndarray, np.ndarray]:
    return _strongest(params)


def _excerpts(params: FfnParams, on_step: OnStep) -> tuple[tuple[tuple[str, str, str, float], ...], int]:
    on_step(0, 1, "Reading held-out prose")
    only = FfnParams(model=params.model, layer=params.layer)
    values, places = _strongest_of(only, identity(params.model))
    tokenizer, ids = open_tokenizer(params.model), text_ids(params.model)
    n = min(WINDOW, model_shape(params.model).context)
    found = []
    for value, place in zip(values[params.neuron], places[params.neuron], strict=True):
        start = place - place % n  # what the model saw before it
        before, after = tokenizer.decode(ids[max(start, place - 12) : place]), tokenizer.decode(ids[place + 1 : place + 5])
        found.append((before, label_of(tokenizer, ids[place]), after, float(value)))
    return tuple(found), len(ids)


def _mute(i: int):
    def change(a: torch.Tensor) -> torch.Tensor:
        a = a.clone()
        a[..., i] = 0
        return a

    return change


def _keep(k: int, lengths: torch.Tensor, seed: int | None = None):
    """Return a function that keeps the k largest |a_i| |c_i| of every token, or k at random."""

    def change(a: torch.Tensor) -> torch.Tensor:
        random = None if seed is None else torch.rand(a.shape, generator=torch.Generator().manual_seed(seed)).to(a.device)
        size = a.abs() * lengths if random is None else random
        kept = torch.zeros_like(a, dtype=torch.bool).scatter_(-1, size.topk(k, dim=-1).indices, True)
        return a * kept

    return change
