"""How the heads of a model came to be: every spectral number at every snapshot of its training, beside what was recorded then.

Computed now, from the snapshots' weights: spectra, copying scores of W_OV, composition. Recorded while the model was trained,
since snapshots hold no embeddings and no MLPs: what each head did on repeated random tokens, copying accuracy, loss.
"""

from dataclasses import dataclass

import numpy as np

from engine.circuits import CIRCUITS, Circuits, circuits
from engine.composition import composition_scores
from engine.device import compute_device, map_heads
from engine.gram import grouped_spectra
from engine.linalg import copying_score, product_eigenvalues
from engine.models.behaviour import uniform_scores
from engine.models.families import rotation_of
from engine.models.loading import require_causal
from engine.models.snapshots import read_snapshot, snapshot_records, training_day
from engine.models.weights import model_shape
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.scalars import Scalars, scalars_of
from engine.spectra import SpectraParams

RECORDED = ("prefix_matching", "previous_token")
RECORDED_LENGTH = 50  # tokens that came twice, after <s>, when the scores were recorded


@dataclass(frozen=True)
class TrajectoryResult:
    """Every head at every snapshot, each array (n_snapshots, n_layers, n_heads); ``steps`` (n_snapshots,).

    Computed: ``ov`` and ``qk``, every number of ``engine.scalars`` of W_OV and W_QK; ``copying_score`` of W_OV;
    ``k_composition``, the largest K-composition of a head with any head of an earlier layer (0 in the first layer), chance
    ``k_composition_chance``. Recorded on the day ``recorded``: ``prefix_matching`` and ``previous_token`` (definitions:
    ``engine.models.behaviour.head_scores``) with what even attention gives, and for the whole model ``copying_accuracy``
    (chance: 1 / vocab_size) and ``held_out_loss`` (nats per token, chance: log vocab_size), (n_snapshots,).
    """

    steps: np.ndarray
    recorded: str
    ov: Scalars
    qk: Scalars
    copying_score: np.ndarray
    k_composition: np.ndarray
    k_composition_chance: float
    prefix_matching: np.ndarray
    previous_token: np.ndarray
    prefix_matching_chance: float
    previous_token_chance: float
    copying_accuracy: np.ndarray
    copying_accuracy_chance: float
    held_out_loss: np.ndarray
    held_out_loss_chance: float

    def of(self, what: str) -> np.ndarray:
        """Return (n_snapshots, n_layers, n_heads) by name: a field, or ``ov.NAME`` and ``qk.NAME`` of ``engine.scalars``."""
        circuit, _, name = what.rpartition(".")
        return getattr(getattr(self, circuit) if circuit else self, name)


@uses("model", "delta", "fold")
def trajectory(params: SpectraParams, on_step: OnStep = silent) -> TrajectoryResult:
    """Return every head of every snapshot of the model's training; W_QK at the distance asked for.

    Raises ModelError for a model that comes without snapshots.
    """
    shape, records = model_shape(params.model), snapshot_records(params.model)
    require_causal(shape, "looking back on repeated tokens")
    found = []
    for done, record in enumerate(records):
        on_step(done, len(records), "Snapshots of the training, one by one")
        found.append(_snapshot(params, record["step"]))
    on_step(len(records), len(records), "Snapshots of the training, one by one")
    values = {name: np.stack([of_one[name] for of_one in found]) for name in found[0]}
    summed = {c: scalars_of(values[f"{c}_values"], values[f"{c}_scale"]) for c in CIRCUITS}
    computed = {name: frozen(values[name]) for name in ("copying_score", "k_composition")}
    column = lambda name: frozen(np.array([record[name] for record in records]))  # noqa: E731
    prefix, previous, _ = uniform_scores(RECORDED_LENGTH, with_bos=True)
    return TrajectoryResult(
        column("step"),
        training_day(params.model),
        **summed,
        **computed,
        k_composition_chance=shape.d_model**-0.5,
        **{name: column(name) for name in RECORDED},
        prefix_matching_chance=prefix,
        previous_token_chance=previous,
        copying_accuracy=column("copying"),
        copying_accuracy_chance=1 / shape.vocab_size,
        held_out_loss=column("held_out"),
        held_out_loss_chance=float(np.log(shape.vocab_size)),
    )


def _snapshot(params: SpectraParams, step: int) -> dict[str, np.ndarray]:
    """Return what is computed of one snapshot, each (n_layers, n_heads) or (n_layers, n_heads, d_head)."""
    shape, device = model_shape(params.model), compute_device().name
    heads = read_snapshot(params.model, step)
    layers = [circuits(h, rotation_of(shape, i), params.delta, params.fold, device) for i, h in enumerate(heads)]
    spectra = grouped_spectra([pair for c in layers for pair in (c.ov, c.qk)])
    both = {"ov": spectra[0::2], "qk": spectra[1::2]}
    values = {f"{c}_values": np.stack([s.singular_values.cpu().numpy() for s in both[c]]) for c in CIRCUITS}
    scales = {f"{c}_scale": np.stack([s.scale.cpu().numpy() for s in both[c]]) for c in CIRCUITS}
    read_from = composition_scores(layers)[1].amax(0).view(shape.n_layers, shape.n_heads).cpu().numpy()
    return {**values, **scales, "copying_score": np.stack([_copying(c) for c in layers]), "k_composition": read_from}


def _copying(c: Circuits) -> np.ndarray:
    """Return the copying score of every head of a layer, (n_heads,)."""
    eigenvalues = map_heads(lambda h: product_eigenvalues(*c.of("ov", h)).cpu().numpy(), range(len(c.W_O)), c.W_O)
    return copying_score(np.stack(eigenvalues))
