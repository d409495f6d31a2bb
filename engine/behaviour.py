"""What every head of a model does on repeated random tokens: looks one token back, at its own kind, or past it (induction)."""

from dataclasses import dataclass

import numpy as np

from engine.models.behaviour import HeadScores, head_scores, uniform_scores, with_attention_weights
from engine.models.loading import open_model, require_causal
from engine.models.weights import model_shape
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams

SEEDS = (0, 1, 2, 3, 4)
REPEAT_LENGTH = 50
SCORES = ("prefix_matching", "previous_token", "duplicate_token")


@dataclass(frozen=True)
class BehaviourResult:
    """Scores of every head, each (n_layers, n_heads), a share of attention in [0, 1]: mean over seeds, and ``*_spread``.

    The spread is the standard deviation over seeds (n - 1). ``*_chance``: a head that looks evenly at all it can see.
    ``repeat_length`` tokens, drawn evenly from the vocabulary, come twice; 4 sequences for each of ``n_seeds`` seeds.
    """

    repeat_length: int
    n_seeds: int
    prefix_matching: np.ndarray
    previous_token: np.ndarray
    duplicate_token: np.ndarray
    prefix_matching_spread: np.ndarray
    previous_token_spread: np.ndarray
    duplicate_token_spread: np.ndarray
    prefix_matching_chance: float
    previous_token_chance: float
    duplicate_token_chance: float


@uses("model")
def behaviour_scores(params: SpectraParams, on_step: OnStep = silent) -> BehaviourResult:
    """Return previous-token, duplicate-token and prefix-matching scores (Olsson et al. 2022) of every head over five seeds.

    Definitions: ``engine.models.behaviour.head_scores``. Raises ModelError for an encoder, whose attention is not causal.
    """
    shape = model_shape(params.model)
    require_causal(shape, "looking back on repeated tokens")
    model = with_attention_weights(open_model(params.model, on_step))
    bos = model.config.bos_token_id
    length = min(REPEAT_LENGTH, (shape.context - (bos is not None)) // 2)
    runs = []
    for done, seed in enumerate(SEEDS):
        on_step(done, len(SEEDS), "Repeated random tokens, seed by seed")
        runs.append(head_scores(model, length, seed=seed, bos=bos, first=1 if bos == 0 else 0))
    return _summary(runs, length, uniform_scores(length, bos is not None))


def _summary(runs: list[HeadScores], length: int, evenly: tuple[float, float, float]) -> BehaviourResult:
    """Return mean, spread and chance of each score over the seeds."""
    scores = {name: np.stack([getattr(run, name) for run in runs]) for name in SCORES}
    means = {name: frozen(values.mean(0)) for name, values in scores.items()}
    spreads = {f"{name}_spread": frozen(values.std(0, ddof=1)) for name, values in scores.items()}
    return BehaviourResult(length, len(runs), **means, **spreads, **{f"{name}_chance": value for name, value in zip(SCORES, evenly, strict=True)})
