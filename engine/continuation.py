"""How a model goes on from a prompt, with and without a change to its heads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from engine.ablation import CHANGING
from engine.changes import Subject, heads_of
from engine.errors import InputError
from engine.models.interventions import Member, steered
from engine.models.loading import open_tokenizer, tokenize
from engine.params import uses
from engine.progress import OnStep, silent
from engine.spectra import TOKEN_LIMIT, SpectraParams

NEW_TOKENS = 60
TEMPERATURE = 0.7
SEED = 0


@dataclass(frozen=True)
class ContinuationResult:
    """What follows the prompt without and with the change; the texts are equal up to token ``parted``, or None throughout.

    Sampled at ``temperature`` from ``seed``: both texts use the same random numbers, token by token, so that they part
    where the change matters and not by luck. ``n_tokens``: how many were drawn at most.
    """

    before: str
    after: str
    parted: int | None
    n_tokens: int
    temperature: float
    seed: int


@uses("prompt", *CHANGING)
def continuation(params: SpectraParams, on_step: OnStep = silent) -> ContinuationResult:
    """Return up to 60 tokens after the prompt from the model as it is and as changed; a text ends where the model ends it.

    Raises InputError for an empty prompt, one of more than 128 tokens, or one that leaves no room in the model's context.
    """
    subject = Subject(params, on_step)
    ids, _ = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, subject.shape.context))
    ids = ids if subject.bos is None or ids[0] == subject.bos else [subject.bos, *ids]
    room = min(NEW_TOKENS, subject.shape.context - len(ids))
    if room < 1:
        raise InputError(f"The prompt has {len(ids)} tokens, which leaves no room in a context of {subject.shape.context}.")
    changes, steps = subject.changes(heads_of(params)), []
    for token in _drawn(subject.model, ids, [(), changes] if changes else [()], room):
        steps.append(token)
        on_step(len(steps), room, "Writing, token by token")
    texts, tokenizer = np.stack(steps, axis=1), open_tokenizer(params.model)
    parted = np.flatnonzero(texts[0] != texts[-1])
    before, after = (tokenizer.decode(_until(text, subject.model.config.eos_token_id), skip_special_tokens=True) for text in (texts[0], texts[-1]))
    return ContinuationResult(before, after, int(parted[0]) if len(parted) else None, texts.shape[1], TEMPERATURE, SEED)


@torch.no_grad()
def _drawn(model, ids: list[int], members: list[Member], count: int) -> Iterator[np.ndarray]:
    """Yield the next token of every member, (members,): argmax of logits / temperature + Gumbel noise, the same for all.

    That draws from the softmax (Gumbel 1954). Later steps read the keys and values of the tokens before from a cache.
    """
    rng, cache = np.random.default_rng(SEED), None
    given = torch.tensor([ids] * len(members), device=model.device)
    for _ in range(count):
        with steered(members, 1):
            out = model(input_ids=given, past_key_values=cache, use_cache=True)
        noise = torch.from_numpy(rng.gumbel(size=out.logits.shape[-1])).to(model.device)
        chosen, cache = (out.logits[:, -1].double() / TEMPERATURE + noise).argmax(-1), out.past_key_values
        given = chosen[:, None]
        yield chosen.cpu().numpy()


def _until(ids: np.ndarray, end: int | list[int] | None) -> list[int]:
    """Return the ids before the first token that ends a text."""
    ends = np.flatnonzero(np.isin(ids, [] if end is None else end))
    return ids[: ends[0] if len(ends) else len(ids)].tolist()
