"""A language model run under other rotations than its own: rows of one batch may turn by different laws.

The shared model is not changed. A hook put on its rotary module once (``make_turnable``) replaces cos and sin for the thread
that asks, and for nobody else.
"""

from contextvars import ContextVar

import numpy as np
import torch

from engine.errors import ModelError
from engine.models.attention import cos_sin
from engine.models.families import Rotation, Shape

_given: ContextVar[tuple[torch.Tensor, torch.Tensor] | None] = ContextVar("given", default=None)
LOGIT_NUMBERS = 2**25


def make_turnable(model):
    """Put a hook on the model's rotary module, if it has one, once and for good, that can replace what it returns."""
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is not None:
        rotary.register_forward_hook(_replace)
    return model


def _replace(module, args, output):
    return _given.get() or output


def own_rotation(shape: Shape) -> Rotation:
    """Return the rotation that all layers share; raise ModelError for a model without one that the laws can stretch."""
    kinds = set(shape.rotations)
    rotation = next(iter(kinds), None)
    if rotation is None or len(kinds) > 1:
        raise ModelError(
            f"This {shape.family} checkpoint {'rotates its layers differently' if len(kinds) > 1 else 'does not rotate queries and keys'}."
        )
    plain = rotation.inv_freq[-1] ** (np.arange(len(rotation.inv_freq)) / max(len(rotation.inv_freq) - 1, 1))
    if rotation.attention_factor != 1 or not np.allclose(plain, rotation.inv_freq, rtol=1e-9):
        raise ModelError(f"This {shape.family} checkpoint is stretched by a law of its own already; a model with plain RoPE is needed.")
    return rotation


@torch.no_grad()
def hidden_states(model, ids: torch.Tensor, rotations: list[Rotation]) -> torch.Tensor:
    """Return the last hidden states (rows, tokens, d_model) of ids (rows, tokens), row r turning by ``rotations[r]``."""
    positions = torch.arange(ids.shape[1])
    of = {rotation: cos_sin(rotation, positions) for rotation in set(rotations)}
    place = lambda part: torch.stack([of[r][part] for r in rotations]).to(model.device, model.dtype)  # noqa: E731
    token = _given.set((place(0), place(1)))
    try:
        return model.base_model(input_ids=ids.to(model.device), use_cache=False).last_hidden_state
    finally:
        _given.reset(token)


@torch.no_grad()
def losses(model, ids: torch.Tensor, rotations: list[Rotation]) -> np.ndarray:
    """Return nats (rows, tokens - 1) for every predicted token under each row's rotation; at most 128 MiB of logits at once."""
    found = [
        torch.logsumexp(z, -1) - z.gather(-1, ids[:, at + 1 : at + 1 + z.shape[1], None].to(z.device))[..., 0]
        for at, z in _logits(model, ids, rotations)
    ]
    return torch.cat(found, 1).double().cpu().numpy()


@torch.no_grad()
def predictions(model, ids: torch.Tensor, rotations: list[Rotation]) -> np.ndarray:
    """Return the likeliest next token (rows, tokens - 1) at every position under each row's rotation."""
    return torch.cat([z.argmax(-1) for _, z in _logits(model, ids, rotations)], 1).cpu().numpy()


def _logits(model, ids: torch.Tensor, rotations: list[Rotation]):
    """Yield (first position, logits (rows, positions, vocabulary)), a few positions at a time, all but the last position."""
    hidden = hidden_states(model, ids, rotations)[:, :-1]
    cap = getattr(model.config, "final_logit_softcapping", None)
    step = max(1, LOGIT_NUMBERS // (len(ids) * model.config.vocab_size))
    for at in range(0, hidden.shape[1], step):
        z = model.get_output_embeddings()(hidden[:, at : at + step]).float()
        yield at, cap * torch.tanh(z / cap) if cap else z
