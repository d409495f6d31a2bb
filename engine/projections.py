"""Projections: what can a linear map see? The door to ``engine.subspaces``, and all its numbers at once.

Sources: seeds 000 and 001 (sections 01 to 06, widget A), seed 003 (sections 02 to 05).
"""

from dataclasses import dataclass

from engine.models.facts import ModelFacts, model_facts
from engine.progress import OnStep, silent
from engine.subspaces.angles import AnglesResult, angle_numbers, angles
from engine.subspaces.conditioning import AspectResult, TrainingResult, aspect_conditions, condition_numbers, training_conditions, training_sentence
from engine.subspaces.drag import DragResult, drag, drag_checks, drag_numbers, line_projector
from engine.subspaces.fitting import EmbeddingResult, FitResult, embedding_numbers, embeddings, fit, fit_numbers
from engine.subspaces.orthogonalise import STEP_COUNT, LossResult, StepsResult, loss_numbers, losses, steps, steps_sentence
from engine.subspaces.params import METHODS, WEIGHTS, ProjectionsParams, canonical
from engine.subspaces.projectors import ParallelResult, SubspaceResult, parallel_columns, parallel_numbers, projector_table, subspace
from engine.subspaces.reading import (
    RandomResult,
    ReadingResult,
    random_energy,
    random_number,
    reading,
    reading_numbers,
    twin_sentence,
)

SHOWN = (METHODS, STEP_COUNT, WEIGHTS, canonical, drag_checks, line_projector, projector_table, steps_sentence, training_sentence, twin_sentence)
"""What only the page needs."""


@dataclass(frozen=True)
class ProjectionsResult:
    """Every tab's numbers that need no browser."""

    model: ModelFacts
    drag: DragResult
    subspace: SubspaceResult
    parallel: ParallelResult
    random: RandomResult
    reading: ReadingResult
    angles: AnglesResult
    steps: StepsResult
    losses: LossResult
    aspects: AspectResult
    training: TrainingResult
    fit: FitResult
    embeddings: EmbeddingResult


PARTS = {
    "drag": drag,
    "subspace": subspace,
    "parallel": parallel_columns,
    "random": random_energy,
    "reading": reading,
    "angles": angles,
    "steps": steps,
    "losses": losses,
    "aspects": aspect_conditions,
    "training": training_conditions,
    "fit": fit,
    "embeddings": embeddings,
}


def report(params: ProjectionsParams, on_step: OnStep = silent) -> ProjectionsResult:
    """Return the numbers of all tabs (the command line's entry)."""
    return ProjectionsResult(model_facts(params, on_step), **{name: part(params, on_step) for name, part in PARTS.items()})


def table(result: ProjectionsResult) -> tuple[list[str], list[list]]:
    """Return header and rows for a terminal: each number that a tab reads off, with chance where there is such a thing."""
    shown = {
        "drag": tuple(drag_numbers(result.drag).values()),
        "subspace": tuple(parallel_numbers(result.parallel, 8).values()),
        "a real head": (random_number(result.random), *reading_numbers(result.reading).values(), *angle_numbers(result.angles)),
        "orthogonalise": (*loss_numbers(result.losses, 8), *condition_numbers(result.aspects)),
        "least squares": (*fit_numbers(result.fit), *embedding_numbers(result.embeddings)),
    }
    rows = [
        [tab, n.label, round(n.value, 4), "" if n.chance is None else round(n.chance, 4), n.unit.strip()] for tab, ns in shown.items() for n in ns
    ]
    return ["tab", "number", "value", "chance", "unit"], rows
