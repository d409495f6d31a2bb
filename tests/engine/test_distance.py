"""W_QK over distance against whole products with an explicit rotation matrix."""

import math

import numpy as np
import plotly.graph_objects as go
import pytest

from engine.distance import distance_spectra, log_spaced, part_masks
from engine.errors import ModelError
from engine.figures.distance import distance_curves
from engine.linalg import energy_effective_rank
from engine.models.families import Rotation, rotation_of
from engine.models.weights import model_shape, read_layers
from engine.spectra import SpectraParams
from tests.engine.models.tiny import CASES
from tests.engine.test_head_spectra import rotation_matrix


@pytest.mark.parametrize("fold", [False, True])
def test_every_distance_and_part_against_whole_products(small_model, fold):
    result = distance_spectra(SpectraParams(model=small_model, layer=1, head=3, fold=fold))
    rotation, heads = rotation_of(model_shape(small_model), 1), list(read_layers(small_model))[1]
    gain = heads.gain.double().numpy() if fold else 1.0
    Q, K = heads.W_Q[3].double().numpy() * gain, heads.W_K[1].double().numpy() * gain
    slow = np.array([2 * math.pi / f > 64 for f in rotation.inv_freq] * 2)
    assert result.dims.tolist() == [8, slow.sum(), 8 - slow.sum()]
    assert 0 < slow.sum() < 8
    for i, kept in enumerate((np.ones(8), slow, ~slow)):
        for j, delta in enumerate(result.deltas):
            values = np.linalg.svd(Q.T @ np.diag(kept.astype(float)) @ rotation_matrix(rotation, -int(delta), 8) @ K, compute_uv=False)
            assert result.sigma_1[i, j] == pytest.approx(values[0], rel=1e-9)
            assert result.frobenius[i, j] == pytest.approx(np.linalg.norm(values), rel=1e-9)
            assert result.effective_rank[i, j] == pytest.approx(energy_effective_rank(values), rel=1e-9)


def test_chance_is_what_gaussian_factors_give_at_any_distance(small_model):
    result = distance_spectra(SpectraParams(model=small_model))
    rng, heads = np.random.default_rng(5), next(read_layers(small_model))
    sizes = [np.linalg.norm(W.double().numpy()) for W in (heads.W_Q[0], heads.W_K[0])]
    rotation, found = rotation_of(model_shape(small_model), 0), []
    for delta in range(300):
        Q, K = (size * G / np.linalg.norm(G) for size, G in zip(sizes, rng.standard_normal((2, 8, 24)), strict=True))
        found.append(np.linalg.svd(Q.T @ rotation_matrix(rotation, -delta, 8) @ K, compute_uv=False))
    assert result.sigma_1_chance[0, 1] == pytest.approx(np.max(found, axis=1).mean(), rel=0.03)
    assert result.effective_rank_chance[0, 1] == pytest.approx(energy_effective_rank(np.array(found)).mean(), rel=0.03)


def test_distances_run_from_0_to_the_context():
    assert log_spaced(1).tolist() == [0, 1]
    steps = log_spaced(131071)
    assert (steps[0], steps[-1], len(steps)) == (0, 131071, 24)


def test_what_does_not_rotate_is_slow():
    masks = part_masks(Rotation(4, (1.0, 0.001), interleaved=True), 6, 100)
    assert masks[1].tolist() == [False, False, True, True, True, True]
    assert (masks[1] ^ masks[2]).all()


def test_a_model_that_does_not_rotate_is_refused(tmp_path):
    next(case for case in CASES if case.name == "gpt2").build().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="does not rotate"):
        distance_spectra(SpectraParams(model=str(tmp_path)))


@pytest.mark.parametrize("what", ["effective_rank", "sigma_1", "frobenius"])
def test_plotly_accepts_the_curves(small_model, what):
    fig = distance_curves(distance_spectra(SpectraParams(model=small_model)), what)
    assert len(go.Figure(fig.to_dict()).data) == 5
