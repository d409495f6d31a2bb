"""The changes that heads can undergo, and what is measured on a model that has undergone them.

Source of the truncation: Eckart & Young 1936.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.behaviour import REPEAT_LENGTH
from engine.circuits import circuits
from engine.errors import InputError, ModelError
from engine.heads import parse_heads
from engine.linalg import truncating_factors
from engine.models.attention import tensors_of
from engine.models.behaviour import repeated_tokens
from engine.models.catalog import PROSE
from engine.models.families import Shape
from engine.models.interventions import Change, Member, mean_z, measured, sequence_copying, sequence_losses
from engine.models.loading import open_model, open_tokenizer, require_causal, require_unembedding
from engine.models.weights import layer_heads, model_shape
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams

CONTEXT = 128
PER_SEED = 4


@dataclass(frozen=True)
class Budget:
    """How much is measured: windows of held-out prose, and seeds of repeated random tokens (four sequences each)."""

    windows: int
    seeds: int


ONE, MANY = Budget(16, 5), Budget(8, 2)


def heads_of(params: SpectraParams) -> tuple[tuple[int, int], ...]:
    """Return the heads that the parameters name, as (layer, head) pairs."""
    return parse_heads(params.off)


class Subject:
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
        return text.numpy(), self.copying(members, budget, on_step)

    def copying(self, members: list[Member], budget: Budget, on_step: OnStep = silent) -> np.ndarray:
        """Return copying accuracies (members, sequences), seed by seed."""
        count = lambda logits, ids: sequence_copying(logits, ids, self.repeat_length)  # noqa: E731
        return measured(self.model, members, self.repeats(budget), count, lambda: on_step(1, 2, "Reading repeated random tokens")).numpy()

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
