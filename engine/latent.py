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

BYTES = 2  # a number in float16
CHANCE_SEED = 0


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


@dataclass(frozen=True)
class SharedLatentResult:
    """Relative errors of keys and values together, [K V] = X [W_K; W_V]^T, kept in r numbers per token, r = 1 .. 2n.

    Each (2n,): ``best`` (the best rank r for this prompt, Eckart & Young 1936), ``from_weights`` ([W_K; W_V] cut to its r
    largest singular directions, on this prompt), ``weights`` (error of the cut weight itself, Frobenius). ``chance``: as
    ``from_weights``, for Gaussian weights of the same shape (seeded). ``keys_best``, ``keys_from_weights`` (n,): keys alone.
    """

    latent: int
    n: int
    n_tokens: int
    best: np.ndarray
    from_weights: np.ndarray
    weights: np.ndarray
    chance: np.ndarray
    keys_best: np.ndarray
    keys_from_weights: np.ndarray

    def numbers(self) -> tuple[Number, ...]:
        """Return what is lost at the latent size asked for, in per cent, and bytes saved per token and layer in float16."""
        r, by_chance = self.latent - 1, 100 * float(self.chance[self.latent - 1])
        saved = f"Bytes saved per token and layer, {BYTES} x ({2 * self.n} - {self.latent})"
        return (
            Number("Error, weights truncated", 100 * float(self.from_weights[r]), by_chance, 1, " %"),
            Number(f"Error, best for these {self.n_tokens} tokens", 100 * float(self.best[r]), None, 1, " %"),
            Number("Error of the weights themselves", 100 * float(self.weights[r]), None, 1, " %"),
            Number(saved, float(BYTES * (2 * self.n - self.latent)), None, 0),
        )


@uses("model", "layer", "head", "prompt", "latent")
def shared_latent(params: SpectraParams, on_step: OnStep = silent) -> SharedLatentResult:
    """Return the errors of a layer's keys and values kept as one shared latent, as in MLA (DeepSeek-V2, 2405.04434, sec. 2.1).

    Keys before the rotation, biases and norms: a rotated model unpacks them first, or keeps the rotated part beside.
    Raises InputError if ``latent`` is above the 2n numbers per token that keys and values take now.
    """
    shape = model_shape(params.model)
    check_head(params, shape)
    n = shape.n_kv_heads * shape.d_head
    if params.latent > 2 * n:
        said = f"a layer of this model keeps {2 * n} numbers of keys and values per token, so 1 to {2 * n} are accepted."
        raise InputError(f"The latent size is {params.latent}; {said}")
    ids, _ = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 1, "Keys and values of the prompt")
    X = attention_input(open_model(params.model, on_step), ids, params.layer).double().cpu()
    (heads,) = read_layers(params.model, [params.layer])
    W_K, W_V = (W.double().flatten(0, 1) for W in (heads.W_K, heads.W_V))
    W = torch.cat([W_K, W_V])
    drawn = torch.randn(W.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(CHANCE_SEED))
    squares = torch.linalg.svdvals(W).square()
    weights = torch.sqrt(_tails(squares, 2 * n) / squares.sum().clamp_min(torch.finfo(torch.float64).tiny))
    errors = (*latent_errors(X, W), weights, latent_errors(X, drawn)[1], *latent_errors(X, W_K))
    return SharedLatentResult(params.latent, n, len(ids), *(frozen(e) for e in errors))
