"""Projections: what can a linear map see? The door to ``engine.subspaces``, and all its numbers at once.

Sources: seeds 000 and 001 (sections 01 to 06, widget A), seed 003 (sections 02 to 05).
"""

from dataclasses import dataclass

from engine.params import Number
from engine.progress import OnStep, silent
from engine.subspaces.angles import AnglesResult, angle_numbers, angles
from engine.subspaces.conditioning import AspectResult, TrainingResult, aspect_conditions, condition_numbers, training_conditions
from engine.subspaces.drag import DragResult, drag, drag_numbers
from engine.subspaces.fitting import EmbeddingResult, FitResult, embedding_numbers, embeddings, fit, fit_numbers
from engine.subspaces.orthogonalise import LossResult, StepsResult, loss_numbers, losses, steps
from engine.subspaces.params import ProjectionsParams
from engine.subspaces.projectors import ParallelResult, SubspaceResult, parallel_columns, parallel_numbers, subspace
from engine.subspaces.reading import ModelFacts, ReadingResult, model_facts, random_kept, reading, reading_numbers


@dataclass(frozen=True)
class ProjectionsResult:
    """Every tab's numbers that need no browser."""

    model: ModelFacts
    drag: DragResult
    subspace: SubspaceResult
    parallel: ParallelResult
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
        "a real head": (*reading_numbers(result.reading).values(), *angle_numbers(result.angles)),
        "orthogonalise": (*loss_numbers(result.losses, 8), *condition_numbers(result.aspects)),
        "least squares": (*fit_numbers(result.fit), *embedding_numbers(result.embeddings)),
    }
    rows = [
        [tab, n.label, round(n.value, 4), "" if n.chance is None else round(n.chance, 4), n.unit.strip()] for tab, ns in shown.items() for n in ns
    ]
    return ["tab", "number", "value", "chance", "unit"], rows


def guess_numbers(params: ProjectionsParams, drawn: DragResult, sweep: ParallelResult, read: ReadingResult) -> dict[str, Number]:
    """Return the numbers that a guess may be about."""
    return {
        **drag_numbers(drawn),
        **parallel_numbers(sweep, params.kappa),
        **reading_numbers(read),
        "random": random_kept(),
    }
