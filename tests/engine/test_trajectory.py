"""Snapshots of Fable's training: the last against the model itself, one in the middle against numpy on whole products."""

import numpy as np
import plotly.graph_objects as go
import pytest
from safetensors.numpy import load_file

from engine.behaviour import behaviour_scores
from engine.composition import composition
from engine.errors import Abandoned, ModelError
from engine.figures.trajectory import progress_curves, trajectory_curves
from engine.linalg import energy_effective_rank
from engine.models.loading import open_model
from engine.scalars import FUNCTIONS
from engine.spectra import SpectraParams, copying_scores, head_spectra
from engine.trajectory import trajectory
from tests.conftest import FABLE


@pytest.fixture(scope="module")
def result():
    return trajectory(SpectraParams())


def test_the_last_snapshot_is_the_model(result):
    spectra = head_spectra(SpectraParams())
    for circuit in ("ov", "qk"):
        for name in FUNCTIONS:
            assert result.of(f"{circuit}.{name}")[-1] == pytest.approx(spectra.of(circuit, name), rel=1e-6), name
    assert result.copying_score[-1] == pytest.approx(copying_scores(SpectraParams()).copying_score, abs=1e-9)
    assert result.k_composition[-1] == pytest.approx(composition(SpectraParams()).k.max((0, 1)), abs=1e-6)


def test_what_was_recorded_is_what_the_model_still_does(result):
    now = behaviour_scores(SpectraParams())
    for name in ("prefix_matching", "previous_token"):
        assert result.of(name)[-1] == pytest.approx(getattr(now, name), abs=0.06)  # other random tokens, 16-bit weights
        assert getattr(result, f"{name}_chance") == pytest.approx(getattr(now, f"{name}_chance"))


def test_a_snapshot_in_the_middle_against_whole_products(result):
    i = int(np.flatnonzero(result.steps == 1050)[0])
    W = load_file(FABLE.parent / "fable-snapshots" / "step-001050.safetensors")
    at = lambda name: W[f"model.layers.2.self_attn.{name}_proj.weight"].astype(float)  # noqa: E731
    for h in (0, 6):
        query, group = slice(32 * h, 32 * h + 32), slice(32 * (h // 2), 32 * (h // 2) + 32)
        ov, qk = at("o")[:, query] @ at("v")[group], at("q")[query].T @ at("k")[group]
        for circuit, whole in (("ov", ov), ("qk", qk)):
            expected = energy_effective_rank(np.linalg.svd(whole, compute_uv=False)[:32])
            assert result.of(f"{circuit}.effective_rank")[i, 2, h] == pytest.approx(expected, rel=1e-9)
        eigenvalues = np.linalg.eigvals(ov)
        assert result.copying_score[i, 2, h] == pytest.approx(eigenvalues.sum().real / np.abs(eigenvalues).sum(), abs=1e-6)


def test_the_shared_model_stays_where_it_is(result):
    shared = open_model("fable")
    trajectory(SpectraParams(fold=True))
    assert open_model("fable") is shared


def test_a_visitor_who_leaves_stops_it():
    def leave(done, total, message):
        if done == 2:
            raise Abandoned

    with pytest.raises(Abandoned):
        trajectory(SpectraParams(), leave)


def test_a_model_without_snapshots_says_so(small_model):
    with pytest.raises(ModelError, match="without snapshots"):
        trajectory(SpectraParams(model=small_model))


@pytest.mark.parametrize("what", ["prefix_matching", "copying_score", "k_composition", "ov.effective_rank", "qk.condition_number"])
def test_plotly_accepts_the_curves(result, what):
    drawn = [trajectory_curves(result, what, layer, 6, at=4) for layer in (0, 2)]
    assert drawn[0].layout.yaxis.range == drawn[1].layout.yaxis.range
    for fig in (*drawn, progress_curves(result, 3)):
        go.Figure(fig.to_dict())  # raises for a property or value that plotly does not know
