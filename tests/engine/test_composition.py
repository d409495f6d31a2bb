"""Composition of all pairs of heads against whole d x d products, and its chance value against Gaussian draws."""

import numpy as np
import pytest
import torch

from engine import composition as module
from engine.circuits import Circuits
from engine.composition import composition, composition_scores, strongest
from engine.models.families import rotation_of
from engine.models.weights import model_shape, read_layers
from engine.spectra import SpectraParams
from tests.engine.test_head_spectra import gaussian, rotation_matrix


def layers(n_layers: int, n_heads: int, n_kv_heads: int, d: int, r: int, dtype=torch.float64) -> list[Circuits]:
    sizes = ((n_heads, d, r), (n_kv_heads, r, d), (n_heads, r, d), (n_kv_heads, r, d))
    return [Circuits(*(gaussian(*size, seed=10 * i + j).to(dtype) for j, size in enumerate(sizes))) for i in range(n_layers)]


def naive(W_OV1, M) -> float:
    size = np.linalg.norm(M) * np.linalg.norm(W_OV1)
    return np.linalg.norm(M @ W_OV1) / size if size else 0.0


def naive_scores(circuits: list[Circuits]) -> np.ndarray:
    """Return (3, N, N) from the d x d matrices of every head, pair by pair."""
    products = [[(a.double() @ b.double()).numpy() for a, b in (c.of("ov", h), c.of("qk", h))] for c in circuits for h in range(len(c.W_O))]
    n_heads = len(circuits[0].W_O)
    scores = np.zeros((3, len(products), len(products)))
    for i, (W_OV1, _) in enumerate(products):
        for j, (W_OV2, W_QK2) in enumerate(products):
            if i // n_heads < j // n_heads:
                scores[:, i, j] = [naive(W_OV1, M) for M in (W_QK2.T, W_QK2, W_OV2)]
    return scores


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_all_pairs_against_whole_products(heads, dtype):
    circuits = layers(3, *heads, 20, 5, dtype)
    expected = naive_scores(circuits)
    assert composition_scores(circuits, dtype=torch.float64).numpy() == pytest.approx(expected, abs=1e-12)
    assert composition_scores(circuits).numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("block_bytes", [1, 8 * 20 * 12 * 3, 8 * 20 * 12 * 7])
def test_however_the_rows_are_cut(monkeypatch, block_bytes):
    circuits = layers(3, 4, 2, 20, 5)
    whole = composition_scores(circuits, dtype=torch.float64)
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    assert len(module._edges(20, 12, 8)) > 3
    assert torch.allclose(composition_scores(circuits, dtype=torch.float64), whole, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_whatever_the_scale_of_the_weights(size):
    circuits = layers(2, 2, 1, 10, 3)
    scaled = [Circuits(*((W * size).float() for W in vars(c).values())) for c in circuits]
    assert composition_scores(scaled).numpy() == pytest.approx(composition_scores(circuits).numpy(), abs=2e-6)


def test_a_chain_that_fits_scores_high_and_one_that_does_not_scores_0():
    """Head 0 writes along one direction; of the later heads, one reads exactly that and one reads what is orthogonal to it."""
    d = 12
    e = torch.eye(d, dtype=torch.float64)
    first = Circuits(*(torch.stack([X, X]) for X in (e[:, :1], e[1:2], e[:1], e[:1])))
    reads = lambda i: torch.stack([e[i : i + 1], e[5:6]])  # noqa: E731
    second = Circuits(torch.stack([e[:, 2:3]] * 2), reads(0), reads(0), reads(0))
    q, k, v = composition_scores([first, second], dtype=torch.float64).numpy()[:, 0, 2:]
    for scores in (q, k, v):
        assert scores == pytest.approx([1, 0], abs=1e-7)


def test_heads_that_vanish_score_0():
    circuits = layers(2, 2, 2, 10, 3)
    circuits[0].W_O[1] = 0
    scores = composition_scores(circuits)
    assert torch.isfinite(scores).all()
    assert (scores[:, 1] == 0).all()
    assert (scores[:, 0, 2:] > 0).all()


def test_chance_is_the_root_mean_square_of_gaussian_heads():
    scores = composition_scores(layers(2, 40, 40, 60, 6)).numpy()[:, :40, 40:]
    assert np.sqrt((scores**2).mean((1, 2))) * 60**0.5 == pytest.approx(np.ones(3), abs=0.02)


def test_chance_holds_for_any_spectra_once_one_head_is_rotated_at_random():
    d, draws = 10, 4000
    X, Y = (gaussian(d, d, seed=i).numpy() * np.logspace(0, -3, d) for i in (1, 2))
    Q, R = np.linalg.qr(np.random.default_rng(0).standard_normal((draws, d, d)))
    Q *= np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]
    squares = np.square(np.linalg.norm(X @ Q @ Y, axis=(1, 2)) / np.linalg.norm(X) / np.linalg.norm(Y))
    assert squares.mean() == pytest.approx(1 / d, abs=5 * squares.std() / draws**0.5)


@pytest.mark.parametrize(("delta", "fold"), [(0, False), (6, False), (1, True)])
def test_a_models_composition_at_a_distance_and_folded(small_model, delta, fold):
    result = composition(SpectraParams(model=small_model, delta=delta, fold=fold))
    shape, products = model_shape(small_model), {}
    for index, heads in enumerate(read_layers(small_model)):
        gain = heads.gain.double().numpy() if fold else 1.0
        R = rotation_matrix(rotation_of(shape, index), -delta, shape.d_head)
        for h in range(4):
            O, V, Q, K = (W.double().numpy() for W in (heads.W_O[h], heads.W_V[h // 2], heads.W_Q[h], heads.W_K[h // 2]))
            products[index, h] = O @ (V * gain), (Q * gain).T @ R @ (K * gain)
    for (l1, h1), (W_OV1, _) in products.items():
        for (l2, h2), (W_OV2, W_QK2) in products.items():
            for kind, M in zip("qkv", (W_QK2.T, W_QK2, W_OV2), strict=True):
                expected = naive(W_OV1, M) if l1 < l2 else 0.0
                assert getattr(result, kind)[l1, h1, l2, h2] == pytest.approx(expected, abs=1e-6)
    assert result.chance == pytest.approx(24**-0.5)
    with pytest.raises(ValueError, match="read-only"):
        result.q[0, 0, 1, 0] = 0


def test_the_strongest_pairs_come_first(small_model):
    result = composition(SpectraParams(model=small_model))
    found = list(strongest(result, "k", 5))
    assert [s for *_, s in found] == sorted(result.k.ravel())[::-1][:5]
    assert all(result.k[tuple(where)] == score for *where, score in found)
