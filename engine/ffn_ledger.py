"""One token through one feed-forward layer of a real model: which neurons write, how much, and how many it takes.

FFN(x) = sum_i a_i c_i + b, c_i the columns of W_down: every neuron adds one vector, scaled by how far it is open.
Sources: seeds 000, 001 (section 07) and 004 (key-value memory); Geva et al. 2021, arXiv 2012.14913.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.ffn_params import FfnParams
from engine.ffn_token import DRAWS, random_inputs, token_input
from engine.models.feedforward import FeedForward
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

SHARE, DEAD = 0.9, 0.01


@dataclass(frozen=True)
class LedgerResult:
    """One layer at one token, neuron by neuron, (d_ff,) each: ``gate`` (what f is applied to), ``up`` (1 in a plain layer),
    ``activations`` a_i, ``writes`` |a_i| |c_i|, ``order`` (neurons by ``writes``, largest first).

    ``remaining`` (d_ff + 1,): |FFN(x) - b - sum of the first k| / |FFN(x) - b|; ``random_remaining``: the same in random order,
    mean of 16. ``mismatch``: |sum of all + b - the module's own output| / |output|, float32 against float64. ``neurons_90``: least k
    whose remaining is at most 10 %; ``dead``: share with |f(gate)| below 1 % of the token's largest; ``negative``: share of gates
    below 0. ``random_*``: the same for 16 random inputs of x's length, mean.
    """

    labels: tuple[str, ...]
    token: int
    layer: int
    d_ff: int
    gated: bool
    gate: np.ndarray
    up: np.ndarray
    activations: np.ndarray
    writes: np.ndarray
    order: np.ndarray
    remaining: np.ndarray
    random_remaining: np.ndarray
    mismatch: float
    neurons_90: int
    dead: float
    negative: float
    random_neurons_90: float
    random_dead: float
    random_negative: float

    def numbers(self) -> dict[str, Number]:
        """Return what is read off, beside random inputs of the same length."""
        return {
            "neurons_90": Number("Neurons for 90 % of the output", self.neurons_90, self.random_neurons_90, 0, f" of {self.d_ff}"),
            "dead": Number("Gates as good as shut", 100 * self.dead, 100 * self.random_dead, 0, " %"),
            "negative": Number("Gates below zero", 100 * self.negative, 100 * self.random_negative, 0, " %"),
        }


@uses("model", "layer", "token", "prompt")
def ledger(params: FfnParams, on_step: OnStep = silent) -> LedgerResult:
    """Return the ledger of one layer at one token of the prompt, in double precision from the layer's own input."""
    labels, x, ffn, own = token_input(params, on_step)
    parts = _writes(ffn, x)
    total = parts["a"] @ ffn.W_down.mT
    order = parts["writes"].argsort(descending=True)
    generator = torch.Generator().manual_seed(0)
    shuffled = [_remaining(ffn, parts["a"], torch.randperm(len(order), generator=generator)) for _ in range(DRAWS)]
    random = [_summary(ffn, v) for v in random_inputs(x)]
    bias = 0 if ffn.b_down is None else ffn.b_down
    arrays = (parts["gate"], parts["up"], parts["a"], parts["writes"], order, _remaining(ffn, parts["a"], order), torch.stack(shuffled).mean(0))
    return LedgerResult(
        *(tuple(labels), params.token, params.layer, len(order), ffn.W_gate is not None),
        *(frozen(a) for a in arrays),
        float((total + bias - own).norm() / own.norm()),
        *_summary(ffn, x),
        *(float(np.mean(column)) for column in zip(*random, strict=True)),
    )


def _writes(ffn: FeedForward, x: torch.Tensor) -> dict[str, torch.Tensor]:
    gate, up = ffn.inputs(x)
    a = ffn.activation(gate) * up
    return {"gate": gate, "up": up, "a": a, "writes": a.abs() * ffn.W_down.norm(dim=0)}


def _remaining(ffn: FeedForward, a: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return |sum of all - sum of the first k| / |sum of all| for k = 0 .. d_ff."""
    terms = (ffn.W_down * a)[:, order]
    left = terms.sum(1, keepdim=True) - torch.cat([torch.zeros_like(terms[:, :1]), terms.cumsum(1)], dim=1)
    return left.norm(dim=0) / left[:, 0].norm()


def _summary(ffn: FeedForward, x: torch.Tensor) -> tuple[int, float, float]:
    """Return neurons_90, the share of dead gates and the share of negative ones for an input x (d_model,)."""
    parts = _writes(ffn, x)
    left = _remaining(ffn, parts["a"], parts["writes"].argsort(descending=True))
    opened = ffn.activation(parts["gate"]).abs()
    enough = int((left <= 1 - SHARE + 1e-12).nonzero()[0])
    return enough, float((opened < DEAD * opened.max()).double().mean()), float((parts["gate"] < 0).double().mean())
