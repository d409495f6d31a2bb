"""One head's compositions against those of all pairs, virtual heads against whole products, chance against whole rotations."""

import numpy as np
import plotly.graph_objects as go
import pytest

from engine.composition import composition
from engine.errors import InputError
from engine.figures import virtual as figures
from engine.linalg import energy_effective_rank
from engine.models.weights import read_layers
from engine.spectra_params import KINDS, SpectraParams
from engine.virtual import head_compositions, virtual_head


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("fold", [False, True])
def test_one_heads_compositions_are_those_of_all_pairs(small_model, layer, fold):
    params = SpectraParams(model=small_model, layer=layer, head=3, delta=4, fold=fold)
    result, pairs = head_compositions(params), composition(params)
    for kind in KINDS:
        found, whole = getattr(result, kind), getattr(pairs, kind)
        assert np.isnan(found[layer]).all()
        assert found[:layer] == pytest.approx(whole[:layer, :, layer, 3], abs=1e-6)
        assert found[layer + 1 :] == pytest.approx(whole[layer, 3, layer + 1 :], abs=1e-6)
    assert result.chance == pairs.chance


def ov(model: str, layer: int, head: int) -> np.ndarray:
    heads = list(read_layers(model))[layer]
    return heads.W_O[head].double().numpy() @ heads.W_V[head // 2].double().numpy()


@pytest.mark.parametrize(("layer", "partner"), [(2, "0.1"), (0, "1.3")])
def test_a_virtual_head_against_the_whole_product(small_model, layer, partner):
    result = virtual_head(SpectraParams(model=small_model, layer=layer, head=2, partner=partner))
    assert {result.earlier, result.later} == {(layer, 2), tuple(map(int, partner.split(".")))}
    assert result.earlier < result.later
    first, second = ov(small_model, *result.earlier), ov(small_model, *result.later)
    values = np.linalg.svd(second @ first, compute_uv=False)[:8]
    assert result.singular_values == pytest.approx(values, rel=1e-8)
    assert result.effective_rank == pytest.approx(energy_effective_rank(values))
    assert result.scores["v"] == pytest.approx(np.linalg.norm(values) / np.linalg.norm(first) / np.linalg.norm(second))


def test_chance_is_what_whole_random_rotations_give(small_model):
    result = virtual_head(SpectraParams(model=small_model, layer=2, head=2, partner="0.1"))
    first, second = ov(small_model, 0, 1), ov(small_model, 2, 2)
    Q, R = np.linalg.qr(np.random.default_rng(3).standard_normal((400, 24, 24)))
    Q *= np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]
    values = np.linalg.svd(second @ Q @ first, compute_uv=False)[:, :8]
    ranks = energy_effective_rank(values)
    assert result.chance_rank[1] == pytest.approx(ranks.mean(), abs=5 * ranks.std() / 8)
    spread = np.log(values[:, :4]).std(0)
    assert np.abs(np.log(result.median[:4]) - np.median(np.log(values[:, :4]), axis=0)).max() < 6 * spread.max() / 8


def test_without_a_partner_the_strongest_is_taken():
    params = SpectraParams(layer=2, head=6)
    result, scores = virtual_head(params), head_compositions(params).k
    assert result.earlier == np.unravel_index(scores[:2].argmax(), (2, 8))
    assert result.later == (2, 6)
    first_layer = virtual_head(SpectraParams(layer=0, head=1))
    assert first_layer.earlier == (0, 1)
    assert first_layer.later[0] > 0


@pytest.mark.parametrize("change", [{"partner": "9.0"}, {"partner": "0.9"}, {"partner": "1.1"}])
def test_a_partner_that_cannot_be_is_refused(small_model, change):
    with pytest.raises(InputError, match="The partner is layer"):
        virtual_head(SpectraParams(model=small_model, layer=1, **change))


@pytest.mark.parametrize("change", [{"partner": "1,4"}, {"partner": "x" * 500}, {"kind": "o"}])
def test_what_names_no_partner_is_refused(change):
    with pytest.raises(InputError, match=r"accepted (is|are)|is no head"):
        SpectraParams(**change)


def test_plotly_accepts_the_pictures(small_model):
    params = SpectraParams(model=small_model, layer=1, head=1)
    result, found = head_compositions(params), virtual_head(params)
    shown = figures.composition_map(result, "k", found.earlier)
    assert shown.data[0].customdata[2][3] == {"partner": "2.3"}
    assert shown.data[0].z[0] == pytest.approx(result.k[0] / result.chance, abs=1e-3)
    for fig in (shown, figures.virtual_spectrum(found)):
        go.Figure(fig.to_dict())  # raises for a property or value that plotly does not know
