"""What a smaller key cache would lose: one layer's keys on a prompt, kept as a few numbers per token.

The keys of all key-value heads together, K = X W_K^T (tokens, n_kv_heads * d_head), as the cache holds them: X is what the
layer reads; before rotation, biases and query/key norms. Source: seed 004, "multi-head latent attention", K = U Z.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.models.attention import attention_input
from engine.models.loading import open_model, tokenize
from engine.models.weights import model_shape, read_layers
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import TOKEN_LIMIT, SpectraParams, check_head


@dataclass(frozen=True)
class LatentResult:
    """Error |K - K_r|_F / |K|_F of keys kept in r numbers per token, for r = 1 .. n: ``best`` and ``from_weights``, each (n,).

    ``best``: K_r is the best rank-r approximation of these very keys (Eckart & Young 1936), so 0 from r = number of tokens
    on: no cache made without seeing the prompt can do better. ``from_weights``: W_K of the layer cut to its r largest
    singular directions, which can be done once and for all. ``latent``: the r asked for; ``n``: numbers per token now.
    """

    latent: int
    n: int
    n_tokens: int
    best: np.ndarray
    from_weights: np.ndarray

    def numbers(self) -> tuple[Number, ...]:
        """Return what is kept and what is lost at the latent size asked for, in per cent."""
        r = self.latent - 1
        return (
            Number("Numbers kept per token", 100 * self.latent / self.n, None, 1, " %"),
            Number(f"Error, best for these {self.n_tokens} keys", 100 * float(self.best[r]), None, 1, " %"),
            Number("Error, weight truncated", 100 * float(self.from_weights[r]), None, 1, " %"),
        )


@uses("model", "layer", "head", "prompt", "latent")
def latent_cache(params: SpectraParams, on_step: OnStep = silent) -> LatentResult:
    """Return the error of a layer's keys on the prompt at every latent size. Raises InputError if ``latent`` is above a key's size."""
    shape = model_shape(params.model)
    check_head(params, shape)
    n = shape.n_kv_heads * shape.d_head
    if params.latent > n:
        raise InputError(f"The latent size is {params.latent}; a layer of this model keeps {n} key numbers per token, so 1 to {n} are accepted.")
    ids, _ = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 1, "Keys of the prompt")
    X = attention_input(open_model(params.model), ids, params.layer).double().cpu()
    (heads,) = read_layers(params.model, [params.layer])
    best, from_weights = latent_errors(X, heads.W_K.double().flatten(0, 1))
    return LatentResult(params.latent, n, len(ids), frozen(best), frozen(from_weights))


def latent_errors(X: torch.Tensor, W_K: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return relative errors of rank 1 .. n of K = X W_K^T, (n,) each: K truncated, and K from W_K truncated.

    X (tokens, d_model), W_K (n, d_model), float64. With W_K = sum_i s_i u_i v_i^T, what truncating the weight loses is
    sum_(i>r) s_i^2 |X v_i|^2, since the u_i are orthonormal. All zeros if K is 0.
    """
    n = len(W_K)
    K = X @ W_K.T
    of_keys = torch.linalg.svdvals(K).square()
    _, s, Vh = torch.linalg.svd(W_K, full_matrices=False)
    of_weights = s.square() * (X @ Vh.T).square().sum(0)
    total = K.square().sum()
    return tuple(torch.sqrt(_tails(energy, n) / total) if total > 0 else torch.zeros(n, dtype=K.dtype) for energy in (of_keys, of_weights))


def _tails(energy: torch.Tensor, n: int) -> torch.Tensor:
    """Return sum_(i>r) energy_i for r = 1 .. n, summed from the small end."""
    padded = torch.nn.functional.pad(energy, (0, n + 1 - len(energy)))
    return padded.flip(0).cumsum(0).flip(0)[1:]
