"""Attention of all heads of a layer on a prompt, and two numbers a row: how spread it is, and how much goes to the first token."""

from dataclasses import dataclass

import numpy as np

from engine.models.attention import heads_attention, hidden
from engine.models.loading import open_model, tokenize
from engine.models.weights import model_shape
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import TOKEN_LIMIT, SpectraParams, check_head


@dataclass(frozen=True)
class LayerAttentionResult:
    """Attention of every head of a layer: token labels and ``attention`` (n_heads, tokens, tokens), float32, rows summing to 1.

    ``attention[h, i, j]``: weight that token i gives to token j. ``visible`` (tokens,): how many tokens token i sees.
    ``entropy`` (n_heads, tokens): -sum_j A_ij log A_ij / log visible_i, in [0, 1]: 1 is what even attention gives (chance);
    nan where only one token is seen, as in the first row of a causal model. ``sink`` (n_heads, tokens): weight on the first
    token, and ``sink_uniform`` (tokens,): what even attention would put there, 0 where a window hides it.
    """

    labels: tuple[str, ...]
    causal: bool
    attention: np.ndarray
    visible: np.ndarray
    entropy: np.ndarray
    sink: np.ndarray
    sink_uniform: np.ndarray

    def numbers(self, head: int) -> tuple[Number, ...]:
        """Return means over the rows of one head that see two tokens or more: entropy share, sink, weight on the token before."""
        rows = self.visible > 1
        if rows.sum() < 2:
            return ()
        before = self.attention[head].diagonal(-1)
        return (
            Number("Entropy, share of the largest possible", 100 * float(self.entropy[head, rows].mean()), 100.0, 0, " %"),
            Number("Weight on the first token", 100 * float(self.sink[head, rows].mean()), 100 * float(self.sink_uniform[rows].mean()), 0, " %"),
            Number("Weight on the token before", 100 * float(before[1:].mean()), 100 * float((1 / self.visible[2:]).mean()), 0, " %"),
        )


@uses("model", "layer", "prompt")
def layer_attention(params: SpectraParams, on_step: OnStep = silent) -> LayerAttentionResult:
    """Return the attention of every head of the layer on the prompt, at most 512 tokens or the model's context.

    One forward pass that ends at this layer. Raises InputError for a layer that the model does not have, for an empty
    prompt and for one that is too long.
    """
    shape = model_shape(params.model)
    check_head(params, shape)
    ids, labels = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 1, "Running the model up to that layer")
    A = heads_attention(open_model(params.model, on_step), ids, params.layer)
    seen = ~hidden(shape, params.layer, len(ids)).numpy()
    visible = seen.sum(-1)
    A = frozen(A)
    even = frozen(seen[:, 0] / visible)
    return LayerAttentionResult(tuple(labels), shape.causal, A, frozen(visible), frozen(entropy_share(A, visible)), frozen(A[:, :, 0]), even)


def entropy_share(A: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Return the entropy of each row of A (..., tokens, tokens) over log visible (tokens,): (..., tokens), nan where one token is visible."""
    entropy = -(A * np.log(np.where(A > 0, A, 1.0))).sum(-1, dtype=np.float64)
    largest = np.log(visible)
    return np.divide(entropy, largest, out=np.full_like(entropy, np.nan), where=largest > 0)
