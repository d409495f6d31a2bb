"""Fable learns Shakespeare: adapters of several ranks and seeds, or whole updates, trained together on one shared model.

What is measured on the way: nats per token on verse that was held out, and on prose of the kind that Fable was trained
on, which says what is forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from engine.adapters import draw_A, scaling_of
from engine.device import autocast, compute_device
from engine.models.adapters import SETS, Dense, LowRank, Update, places_of, with_updates
from engine.models.catalog import ASSETS
from engine.models.loading import open_model, open_tokenizer
from engine.models.training.text import encode
from engine.params import frozen
from engine.progress import OnStep, silent

FULL = 0
"""The rank that stands for full fine-tuning of the same modules."""

HELD_OUT = 0.15
PROMPT = "MENENIUS:\n"


@dataclass(frozen=True)
class Recipe:
    """What determines a run, up to rounding: windows of ``context`` tokens, ``rows`` of them per step and member.

    AdamW (betas 0.9, 0.999, no weight decay), the rate falling linearly to zero; ``full_rate`` is that of full fine-tuning.
    """

    places: str = "all"
    alpha: float = 16.0
    rule: str = "standard"
    rate: float = 3e-3
    full_rate: float = 5e-4
    steps: int = 160
    rows: int = 2
    context: int = 128
    measure_every: int = 20
    windows: int = 8
    bfloat16: bool = False


@dataclass(frozen=True)
class Text:
    """Token ids: verse to learn (n,), windows of verse held out and of prose, each (windows, context) and beginning with <s>."""

    learnt: np.ndarray
    verse: torch.Tensor
    prose: torch.Tensor


@dataclass(frozen=True)
class Progress:
    """A run so far, each array (measurements, members): mean nats per token on verse and on prose at ``steps``."""

    steps: tuple[int, ...]
    verse: np.ndarray
    prose: np.ndarray
    updates: dict[str, Update]


def read_text(recipe: Recipe) -> Text:
    """Return the text of a run: the last 15 % of the verse are held out; windows to measure on lie evenly over it and over the prose."""
    return _read(recipe.context, recipe.windows)


@lru_cache(maxsize=4)
def _read(context: int, windows: int) -> Text:
    tokenizer = open_tokenizer("fable")
    verse, prose = (encode(tokenizer, (ASSETS / "data" / name).read_text()) for name in ("shakespeare.txt", "held-out-prose.txt"))
    cut = int(len(verse) * (1 - HELD_OUT))
    return Text(frozen(verse[:cut]), *(_windows(tokens, context, windows) for tokens in (verse[cut:], prose)))


def _windows(tokens: np.ndarray, context: int, windows: int) -> torch.Tensor:
    starts = np.linspace(0, len(tokens) - context, windows).astype(int)
    return torch.stack([_with_bos(tokens[s : s + context - 1]) for s in starts])


def _with_bos(tokens: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([[0], tokens]))


def batch_of(text: Text, recipe: Recipe, seed: int, step: int) -> torch.Tensor:
    """Return (rows, context): the windows that every rank of a seed sees at a step."""
    rng = np.random.default_rng((seed, step))
    starts = rng.integers(0, len(text.learnt) - recipe.context, recipe.rows)
    return torch.stack([_with_bos(text.learnt[s : s + recipe.context - 1]) for s in starts])


def fresh_updates(recipe: Recipe, members: Sequence[tuple[int, int]], model) -> dict[str, Update]:
    """Return untrained updates of the recipe's modules for members (rank, seed): all of full rank, or adapters padded to the highest.

    Padded rows of A and columns of B are zero and stay so: their gradients vanish.
    """
    ranks = [rank for rank, _ in members]
    found = {}
    for i, (name, layer) in enumerate(places_of(model, SETS[recipe.places]).items()):
        d_out, d_in = layer.weight.shape
        if FULL in ranks:
            found[name] = Dense(torch.zeros(len(members), d_out, d_in, device=model.device).requires_grad_())
            continue
        A, B = torch.zeros(len(members), max(ranks), d_in), torch.zeros(len(members), d_out, max(ranks))
        for m, (rank, seed) in enumerate(members):
            A[m, :rank] = draw_A("zero_b", rank, d_in, (seed, rank, i))
        scaling = torch.tensor([scaling_of(recipe.rule, recipe.alpha, rank) for rank in ranks])
        found[name] = LowRank(*(t.to(model.device).requires_grad_() for t in (A, B)), scaling.to(model.device))
    return found


def train(recipe: Recipe, members: Sequence[tuple[int, int]], on_step: OnStep = silent, on_measure=None) -> Progress:
    """Return members (rank, seed) trained together on the verse; rank 0 (for all or none) is full fine-tuning.

    ``on_measure(progress)`` hears of every measurement. Members do not influence each other: each has its own loss, and
    AdamW works element by element.
    """
    model, text = open_model("fable"), read_text(recipe)
    updates = fresh_updates(recipe, members, model)
    view, leaves = with_updates(model, updates), _leaves(updates)
    rate = recipe.full_rate if members[0][0] == FULL else recipe.rate
    optimizer = torch.optim.AdamW(leaves, lr=rate, weight_decay=0.0)
    steps, losses = [], []
    for step in range(recipe.steps + 1):
        if step % recipe.measure_every == 0 or step == recipe.steps:
            steps.append(step)
            losses.append([member_losses(view, ids, len(members), recipe).numpy() for ids in (text.verse, text.prose)])
            verse, prose = (np.stack([row[i] for row in losses]) for i in (0, 1))
            progress = Progress(tuple(steps), verse, prose, updates)
            if on_measure:
                on_measure(progress)
        on_step(step, recipe.steps, "Reading Shakespeare, step by step")
        if step < recipe.steps:
            _step(view, optimizer, rate * (1 - step / recipe.steps), text, recipe, members, step)
    return progress


def _leaves(updates: dict[str, Update]) -> list[torch.Tensor]:
    return [t for update in updates.values() for t in vars(update).values() if t.requires_grad]


def _step(view, optimizer, rate: float, text: Text, recipe: Recipe, members, step: int) -> None:
    ids = torch.cat([batch_of(text, recipe, seed, step) for _, seed in members]).to(view.device)
    for group in optimizer.param_groups:
        group["lr"] = rate
    with autocast(compute_device(), recipe.bfloat16):
        logits = view(input_ids=ids, use_cache=False).logits
    nats = cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    (nats * len(members)).backward()  # the sum of the members' means: each gets the gradient of its own
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def member_losses(view, windows: torch.Tensor, members: int, recipe: Recipe) -> torch.Tensor:
    """Return each member's mean nats per token over windows (n, context), (members,)."""
    found = []
    for part in windows.to(view.device).split(4):
        ids = part.repeat(members, 1)
        with autocast(compute_device(), recipe.bfloat16):
            logits = view(input_ids=ids, use_cache=False).logits[:, :-1].float()
        nats = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        found.append(nats.view(members, -1).double().cpu())
    return torch.cat(found, dim=1).mean(1)


@torch.no_grad()
def written(updates: dict[str, Update], members: int, prompt: str = PROMPT, count: int = 60, temperature: float = 0.7, seed: int = 0) -> list[str]:
    """Return what each member writes after the prompt, all with the same random numbers, so that they part where the update matters."""
    view, tokenizer, rng = with_updates(open_model("fable"), updates), open_tokenizer("fable"), np.random.default_rng(seed)
    given, cache, drawn = torch.tensor([tokenizer(prompt)["input_ids"]] * members, device=view.device), None, []
    for _ in range(count):
        out = view(input_ids=given, past_key_values=cache, use_cache=True)
        noise = torch.from_numpy(rng.gumbel(size=out.logits.shape[-1])).to(view.device)
        given, cache = (out.logits[:, -1].double() / temperature + noise).argmax(-1)[:, None], out.past_key_values
        drawn.append(given)
    return [tokenizer.decode(row.tolist()) for row in torch.cat(drawn, dim=1)]
