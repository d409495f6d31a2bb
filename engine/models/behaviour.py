"""What a language model and its heads do on repeated random tokens, and how well it predicts text."""

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from engine.errors import InputError


@dataclass(frozen=True)
class HeadScores:
    """Mean attention on the three diagonals that matter, each (n_layers, n_heads), averaged over sequences."""

    prefix_matching: np.ndarray
    previous_token: np.ndarray
    duplicate_token: np.ndarray


def repeated_tokens(vocab_size: int, repeat_length: int, n_sequences: int, seed: int, bos: int | None = 0, first: int = 1):
    """Return ids (n_sequences, [1 +] 2 * repeat_length): <s>, then uniformly random tokens twice over.

    ``first`` is the lowest id drawn, to leave out special tokens; ``bos=None`` leaves out the first column.
    """
    if repeat_length < 2:
        raise InputError(f"The repeat length is {repeat_length}; at least 2 tokens are needed.")
    half = torch.from_numpy(np.random.default_rng(seed).integers(first, vocab_size, (n_sequences, repeat_length)))
    body = torch.cat([half, half], dim=1)
    return body if bos is None else torch.cat([torch.full((n_sequences, 1), bos), body], dim=1)


@torch.no_grad()
def copying_accuracy(model, repeat_length: int, n_sequences: int = 64, seed: int = 0) -> float:
    """Return the share of the second half of repeated random tokens that the model predicts (argmax).

    The first token of the second half cannot be known and is not counted. Chance: 1 / vocab_size.
    """
    ids = repeated_tokens(model.config.vocab_size, repeat_length, n_sequences, seed).to(model.device)
    predicted = model(input_ids=ids, use_cache=False).logits[:, repeat_length + 1 : -1].argmax(-1)
    return (predicted == ids[:, repeat_length + 2 :]).double().mean().item()


@torch.no_grad()
def head_scores(model, repeat_length: int = 50, n_sequences: int = 4, seed: int = 0, bos: int | None = 0, first: int = 1) -> HeadScores:
    """Return prefix-matching, previous-token and duplicate-token scores of every head on repeated random tokens.

    With T = repeat_length and i a position of the second half: prefix matching is the mean of A[i, i - T + 1] (the
    token after the earlier occurrence), duplicate-token of A[i, i - T]; previous-token is the mean of A[i, i - 1]
    over both halves, <s> left out. The model must have been loaded with eager attention.
    Source: Olsson et al. 2022 (arXiv 2209.11895), section "Prefix matching".
    """
    ids = repeated_tokens(model.config.vocab_size, repeat_length, n_sequences, seed, bos, first).to(model.device)
    attentions = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    A = torch.stack([a.double().mean(0) for a in attentions])  # (n_layers, n_heads, tokens, tokens)
    return HeadScores(*(mean.cpu().numpy() for mean in _diagonal_means(A, repeat_length, bos is not None)))


def uniform_scores(repeat_length: int, with_bos: bool) -> tuple[float, float, float]:
    """Return the three scores, in the order of ``HeadScores``, of a head that looks evenly at every visible token."""
    n = 2 * repeat_length + with_bos
    evenly = torch.ones(n, n, dtype=torch.float64).tril() / torch.arange(1, n + 1)[:, None]
    return tuple(mean.item() for mean in _diagonal_means(evenly, repeat_length, with_bos))


def with_attention_weights(model):
    """Return a second model over the same tensors whose attention is eager, so that it can return its weights.

    Only modules and config are copied; the shared model keeps its own attention, and nothing of it is changed.
    """
    tensors = [*model.parameters(), *model.buffers()]
    twin = copy.deepcopy(model, memo={id(t): t for t in tensors})
    twin.set_attn_implementation("eager")
    return twin


def _diagonal_means(A: torch.Tensor, repeat_length: int, with_bos: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the means of A (..., tokens, tokens) along the diagonals of prefix matching, previous token, duplicate token."""
    start = with_bos + repeat_length
    mean = lambda offset, begin: A.diagonal(-offset, -2, -1)[..., begin - offset :].mean(-1)  # noqa: E731
    return mean(repeat_length - 1, start), mean(1, 1 + with_bos), mean(repeat_length, start)


@torch.no_grad()
def token_losses(model, tokens, context: int, stride: int | None = None, bos: int = 0, max_windows: int | None = None, batch_size: int = 16):
    """Return nats for every predicted token, (windows, context - 1), over windows of <s> and context - 1 tokens.

    Windows begin ``stride`` tokens apart (default: end to end, so that every token is predicted once).
    """
    stride = stride or context - 1
    starts = list(range(0, len(tokens) - (context - 1) + 1, stride))[:max_windows]
    if not starts:
        raise InputError(f"The text has {len(tokens)} tokens; a context of {context} needs at least {context - 1}.")
    ids = torch.stack([torch.as_tensor(tokens[s : s + context - 1]) for s in starts])
    ids = torch.cat([torch.full((len(ids), 1), bos), ids], dim=1).to(model.device)
    losses = []
    for part in ids.split(batch_size):
        logits = model(input_ids=part, use_cache=False).logits[:, :-1].float()
        losses.append(cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="none").view(len(part), -1).cpu())
    return torch.cat(losses).numpy()


def bits_per_byte(nats_per_token: float, n_tokens: int, n_bytes: int) -> float:
    """Return the bits that the model needs for each byte of text: nats / ln 2 * tokens / bytes."""
    return nats_per_token / math.log(2) * n_tokens / n_bytes
