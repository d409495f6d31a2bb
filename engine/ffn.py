"""Feed-forward layers: a curve fitted by a small one, one token through a real one, its regions, its Jacobian, its cost.

Sources: seeds 000 and 001 (sections 05 to 10), 002 (layers, nonlinearity), 004 (key-value memory).
"""

from dataclasses import dataclass

import numpy as np

from engine.ffn_cost import CostResult, cost
from engine.ffn_fit import FitResult, SweepResult, fit
from engine.ffn_jacobian import JacobianResult, jacobian
from engine.ffn_ledger import LedgerResult, ledger
from engine.ffn_neuron import EditResult, NeuronResult, edit, neuron
from engine.ffn_params import ACTIVATIONS, SNAPSHOT_EVERY, FfnParams
from engine.ffn_regions import LinearResult, RegionsResult, linear, regions
from engine.params import Number
from engine.progress import OnStep, silent

__all__ = ["FfnParams"]


@dataclass(frozen=True)
class FfnReport:
    """What was asked and every result that answers it."""

    params: FfnParams
    fit: FitResult
    ledger: LedgerResult
    neuron: NeuronResult
    edit: EditResult
    regions: RegionsResult
    linear: LinearResult
    jacobian: JacobianResult
    cost: CostResult


def report(params: FfnParams, on_step: OnStep = silent) -> FfnReport:
    """Return everything that the page shows but the sweep and the measured machine; what can be refused is refused first."""
    costs, of_token = cost(params), ledger(params, on_step)
    of_neuron, edited = neuron(params, on_step), edit(params, on_step)
    rest = (regions(params), linear(params, on_step), jacobian(params, on_step))
    return FfnReport(params, fit(params, on_step), of_token, of_neuron, edited, *rest, costs)


def table(result: FfnReport) -> tuple[list[str], list[list]]:
    """Return header and rows for a terminal: what is read off, its value, and what chance would give."""
    parts = (result.ledger, result.edit, result.regions, result.linear, result.jacobian, result.cost)
    numbers = [*fit_numbers(result.params, result.fit).values(), *(n for part in parts for n in part.numbers().values())]
    value = lambda n, v: "" if v is None else f"{v:.{n.digits}f}{n.unit}"  # noqa: E731
    return ["", "value", "chance"], [[n.label, value(n, n.value), value(n, n.chance)] for n in numbers]


def fit_numbers(params: FfnParams, result: FitResult) -> dict[str, Number]:
    """Return what is read off the chosen activation at the chosen step: error beside the best constant's, parameters, pieces.

    Only ReLU makes straight pieces (chance: random weights of the same width); the others are smooth, and their switches are counted.
    """
    others = len(ACTIVATIONS) - 1
    chosen, snapshot = result.fits[params.activation], params.steps // SNAPSHOT_EVERY
    if params.activation == "relu":
        shape = Number(f"Straight pieces at step {params.steps}", chosen.pieces(snapshot), result.random_pieces, 0)
    else:
        shape = Number(
            f"Switches in view at step {params.steps} (smooth, no pieces)", chosen.in_view(snapshot), result.random_share * chosen.units, 0
        )
    return {
        "error": Number(f"Error at step {params.steps}, root mean square", float(chosen.errors[snapshot]), result.constant_error, 4),
        "parameters": Number("Parameters", chosen.parameters, None, 0, f", {chosen.units} units"),
        "pieces": shape,
        "place": Number("Activations with a smaller error", _better(result, chosen, snapshot), others / 2, 0, f" of {others}"),
    }


def sweep_numbers(result: SweepResult) -> dict[str, Number]:
    """Return, at 31 parameters, which activation has the least median error, counted from 1 in the order of ``ACTIVATIONS``."""
    at = int(np.flatnonzero(result.parameters == 31)[0])
    medians = [float(np.median(result.errors[name][at])) for name in ACTIVATIONS]
    best = int(np.argmin(medians))
    return {"best_at_31": Number(f"Least error: {list(ACTIVATIONS.values())[best].name}, {medians[best]:.4f}, number", best + 1, None, 0)}


def _better(result: FitResult, chosen, snapshot: int) -> int:
    return sum(float(other.errors[snapshot]) < float(chosen.errors[snapshot]) for other in result.fits.values())
