"""Circuits at a distance, gains folded, scalars of every head, chance, copying and behaviour: each against something else."""

import json

import numpy as np
import pytest
import torch

from engine import spectra
from engine.behaviour import behaviour_scores
from engine.circuits import circuits, left_out, rotated
from engine.cli import main
from engine.directions import direction_tokens, token_rows
from engine.errors import InputError
from engine.figures import spectra as figures
from engine.gram import grouped_spectra
from engine.linalg import copying_score, gaussian_product_eigenvalues, product_eigenvalues
from engine.models.behaviour import head_scores, uniform_scores, with_attention_weights
from engine.models.families import Rotation, rotation_of
from engine.models.loading import open_model
from engine.models.weights import LayerHeads, model_shape, read_embeddings, read_layers
from engine.scalars import FUNCTIONS, bands_of, chance_spectra, scalars_of
from engine.spectra import SpectraParams
from tests.engine.conftest import llama


def gaussian(*shape, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rotation_matrix(rotation: Rotation, position: int, d_head: int) -> np.ndarray:
    """Return R_position entry by entry: each pair turned by its own angle, what is not rotated kept."""
    R = np.eye(d_head)
    half = rotation.n_rotary // 2
    for i, frequency in enumerate(rotation.inv_freq):
        x, y = (2 * i, 2 * i + 1) if rotation.interleaved else (i, i + half)
        c, s = np.cos(position * frequency), np.sin(position * frequency)
        R[x, x], R[x, y], R[y, x], R[y, y] = c, -s, s, c
    return R


ROTATIONS = [
    Rotation(8, np.array([1.0, 0.3, 0.1, 0.01])),
    Rotation(8, np.array([1.0, 0.3, 0.1, 0.01]), interleaved=True),
    Rotation(4, np.array([0.7, 0.05])),
    Rotation(4, np.array([0.7, 0.05]), interleaved=True),
]


def layer(seed: int = 0, n_heads: int = 6, n_kv_heads: int = 3, d_model: int = 20, d_head: int = 8, **extra) -> LayerHeads:
    d, r = d_model, d_head
    sizes = ((n_heads, r, d), (n_kv_heads, r, d), (n_kv_heads, r, d), (n_heads, d, r))
    return LayerHeads(*(gaussian(*size, seed=10 * seed + i) for i, size in enumerate(sizes)), **extra)


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("delta", [0, 1, 7, 4000])
def test_w_qk_at_a_distance_against_an_explicit_rotation_matrix(rotation, delta):
    heads = layer()
    (found,) = grouped_spectra([circuits(heads, rotation, delta).qk])
    for h in range(6):
        whole = heads.W_Q[h].numpy().T @ rotation_matrix(rotation, -delta, 8) @ heads.W_K[h // 2].numpy()
        A, B = circuits(heads, rotation, delta).of("qk", h)
        assert (A.double() @ B.double()).numpy() == pytest.approx(whole, abs=1e-11)
        assert found.singular_values[h].numpy() == pytest.approx(np.linalg.svd(whole, compute_uv=False)[:8], rel=1e-10)


def test_folded_gains_stand_where_the_model_applies_them():
    gain, q_gain, k_gain = (gaussian(n, seed=40 + n) for n in (20, 8, 9))
    heads = layer(gain=gain, q_gain=q_gain, k_gain=k_gain[:8])
    rotation = Rotation(4, np.array([0.7, 0.05]), attention_factor=1.3)
    found = circuits(heads, rotation, 5, fold=True)
    stretch = np.diag([1.69] * 4 + [1.0] * 4)
    for h in range(6):
        W_Q, W_K, W_V = (W.numpy() * gain.numpy() for W in (heads.W_Q[h], heads.W_K[h // 2], heads.W_V[h // 2]))
        W_Q, W_K = q_gain.numpy()[:, None] * W_Q, k_gain.numpy()[:8, None] * W_K
        for circuit, whole in (("qk", W_Q.T @ stretch @ rotation_matrix(rotation, -5, 8) @ W_K), ("ov", heads.W_O[h].numpy() @ W_V)):
            A, B = found.of(circuit, h)
            assert (A.double() @ B.double()).numpy() == pytest.approx(whole, abs=1e-11)


def test_w_qk_at_a_distance_gives_the_scores_of_the_model(small_model):
    """log A[i, j] - log A[i, 0] = u_i^T W_QK(i - j) u_j - u_i^T W_QK(i) u_0 over sqrt(d_head), u the normed stream without its gain."""
    shape = model_shape(small_model)
    model = with_attention_weights(open_model(small_model))
    ids = torch.randint(0, 60, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = model(input_ids=ids, output_attentions=True, output_hidden_states=True)
    for index, heads in enumerate(read_layers(small_model)):
        x = out.hidden_states[index][0].double()
        u = x / (x.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
        logs = out.attentions[index][0].double().log()
        for i, j in ((11, 4), (7, 6), (5, 5), (9, 2)):
            for h in range(shape.n_heads):
                scores = []
                for key in (j, 0):
                    A, B = circuits(heads, rotation_of(shape, index), i - key, fold=True).of("qk", h)
                    scores.append(u[i] @ A.double() @ B.double() @ u[key] / shape.d_head**0.5)
                assert float(logs[h, i, j] - logs[h, i, 0]) == pytest.approx(float(scores[0] - scores[1]), abs=2e-4)


def test_the_sign_of_the_distance_matters():
    W = gaussian(8, 5)
    back, ahead = (rotated(W, ROTATIONS[0], position) for position in (-3, 3))
    assert (back - ahead).abs().max() > 0.1
    assert torch.allclose(rotated(back, ROTATIONS[0], 3), W, atol=1e-12)


def test_what_the_matrices_do_not_show_is_said():
    bare, full = layer(), layer(gain=gaussian(20), q_gain=gaussian(8), b_Q=gaussian(48))
    assert left_out(bare, None, 0, False) == ()
    assert "changes nothing" in left_out(bare, None, 3, False)[0]
    said = " ".join(left_out(full, Rotation(8, np.ones(4), attention_factor=1.2), 3, False))
    for part in ("normalised per head", "at distance 3", "attention factor", "b_Q", "norm before attention"):
        assert part in said
    folded = " ".join(left_out(full, Rotation(8, np.ones(4), attention_factor=1.2), 3, True))
    assert "attention factor" not in folded
    assert "not folded" not in folded


@pytest.mark.parametrize("change", [{}, {"delta": 9}, {"fold": True}, {"delta": 2, "fold": True}])
def test_every_head_of_a_model_against_the_whole_product(small_model, change):
    params = SpectraParams(model=small_model, **change)
    result, shape = spectra.head_spectra(params), model_shape(small_model)
    for index, heads in enumerate(read_layers(small_model)):
        gain = heads.gain.double().numpy() if params.fold else 1.0
        R = rotation_matrix(rotation_of(shape, index), -params.delta, shape.d_head)
        for h in range(shape.n_heads):
            Q, K, V = (W.double().numpy() * gain for W in (heads.W_Q[h], heads.W_K[h // 2], heads.W_V[h // 2]))
            for circuit, whole in (("ov", heads.W_O[h].double().numpy() @ V), ("qk", Q.T @ R @ K)):
                expected = np.linalg.svd(whole, compute_uv=False)[:8]
                assert result.of(circuit, "singular_values")[index, h] == pytest.approx(expected, rel=1e-9)
                energy = expected**2 / (expected**2).sum()
                assert result.of(circuit, "effective_rank")[index, h] == pytest.approx(np.exp(-(energy * np.log(energy)).sum()))
                assert result.of(circuit, "stable_rank")[index, h] == pytest.approx(1 / energy[0])
                assert result.of(circuit, "condition_number")[index, h] == pytest.approx(expected[0] / expected[-1], rel=1e-8)
                assert result.of(circuit, "directions_90")[index, h] == 1 + int((np.cumsum(energy) < 0.9).sum())
    assert not result.ov_exact.any()
    assert (result.delta, result.fold) == (params.delta, params.fold)


def test_chance_bands_are_those_of_whole_gaussian_factors():
    d, r, draws = 20, 5, 3000
    rng = np.random.default_rng(5)
    G, H = rng.standard_normal((draws, d, r)), rng.standard_normal((draws, r, d))
    size = np.linalg.norm(G, axis=(1, 2)) * np.linalg.norm(H, axis=(1, 2))
    whole = np.linalg.svd(G @ H, compute_uv=False)[:, :r]
    expected, found = (scalars_of(v, s) for v, s in ((whole, size), (chance_spectra(d, r, draws), np.ones(draws))))
    for name in FUNCTIONS:
        a, b = getattr(expected, name).astype(float), getattr(found, name).astype(float)
        assert a.mean() == pytest.approx(b.mean(), abs=5 * (a.std() + b.std()) / draws**0.5 + 1e-12), name
        for q in (5, 50, 95):
            assert np.percentile(a, q) == pytest.approx(np.percentile(b, q), rel=0.06), name
    bands = bands_of(found)
    assert bands.low.effective_rank < bands.mean.effective_rank < bands.high.effective_rank


def test_copying_chance_is_that_of_whole_gaussian_factors():
    d, r, draws = 14, 4, 2000
    rng = np.random.default_rng(6)
    whole = np.linalg.eigvals(rng.standard_normal((draws, d, r)) @ rng.standard_normal((draws, r, d)))
    expected, found = np.sort(copying_score(whole)), np.sort(copying_score(gaussian_product_eigenvalues(d, r, draws)))
    grid = np.linspace(-1, 1, 101)
    distance = np.abs(np.searchsorted(expected, grid) - np.searchsorted(found, grid)).max() / draws
    assert distance < 1.95 * (2 / draws) ** 0.5  # Kolmogorov and Smirnov at 0.1 %
    assert found.std() > 0.2


def test_copying_scores_against_the_whole_product(small_model):
    for fold in (False, True):
        result = spectra.copying_scores(SpectraParams(model=small_model, fold=fold))
        for index, heads in enumerate(read_layers(small_model)):
            for h in range(4):
                V = heads.W_V[h // 2].double().numpy() * (heads.gain.double().numpy() if fold else 1.0)
                eigenvalues = np.linalg.eigvals(heads.W_O[h].double().numpy() @ V)
                expected = eigenvalues.sum().real / np.abs(eigenvalues).sum()
                assert result.copying_score[index, h] == pytest.approx(expected, abs=1e-10)
    low, high = result.chance_band
    assert low < result.chance < high
    assert abs(result.chance) < 0.1


def test_copying_scores_of_pure_copiers():
    Q = torch.linalg.qr(gaussian(30, 6)).Q
    assert copying_score(product_eigenvalues(Q, Q.T).numpy()) == pytest.approx(1)
    assert copying_score(product_eigenvalues(Q * 1e-170, -Q.T * 1e-100).numpy()) == pytest.approx(-1)
    assert copying_score(product_eigenvalues(Q * 0, Q.T).numpy()) == 0


def test_rescaling_and_rotating_inside_a_head_changes_no_number():
    heads, c = layer(), 37.5
    turn = torch.linalg.qr(gaussian(8, 8, seed=9)).Q
    moved = LayerHeads(turn @ heads.W_Q * c, turn @ heads.W_K / c, turn @ heads.W_V / c, heads.W_O @ turn.T * c)
    for circuit in ("ov", "qk"):
        before, after = (grouped_spectra([getattr(circuits(h, None), circuit)])[0] for h in (heads, moved))
        numbers = [scalars_of(found.singular_values.numpy(), found.scale.numpy()) for found in (before, after)]
        for name in FUNCTIONS:
            assert getattr(numbers[0], name) == pytest.approx(getattr(numbers[1], name), rel=1e-10), name
    scores = [copying_score(product_eigenvalues(*circuits(h, None).of("ov", 3)).numpy()) for h in (heads, moved)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-11)


def test_behaviour_is_the_mean_over_seeds_of_the_models_own_attention(small_model):
    from transformers import AutoModelForCausalLM

    result = behaviour_scores(SpectraParams(model=small_model))
    eager = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32, attn_implementation="eager")
    length = (64 - 1) // 2
    runs = [head_scores(eager, length, seed=seed) for seed in range(result.n_seeds)]
    for name in ("prefix_matching", "previous_token", "duplicate_token"):
        values = np.stack([getattr(run, name) for run in runs])
        assert getattr(result, name) == pytest.approx(values.mean(0), abs=1e-6)
        assert getattr(result, f"{name}_spread") == pytest.approx(values.std(0, ddof=1), abs=1e-6)
    assert (result.repeat_length, result.prefix_matching.shape) == (length, (3, 4))


@pytest.mark.parametrize("bos", [0, None])
def test_a_model_that_looks_evenly_scores_what_chance_says(bos):
    model = llama()
    for block in model.model.layers:
        block.self_attn.q_proj.weight.data.zero_()
    scores = head_scores(with_attention_weights(model.eval()), 10, seed=1, bos=bos)
    evenly = uniform_scores(10, bos is not None)
    for name, expected in zip(("prefix_matching", "previous_token", "duplicate_token"), evenly, strict=True):
        assert getattr(scores, name) == pytest.approx(np.full((3, 4), expected), rel=1e-5)
    first = 1 if bos is None else 2
    n = 20 + (bos is not None)
    assert evenly[1] == pytest.approx(np.mean([1 / (i + 1) for i in range(first, n)]))
    assert evenly[0] == pytest.approx(np.mean([1 / (i + 1) for i in range(n - 10, n)]))


def test_the_shared_model_is_left_as_it_was(small_model):
    shared = open_model(small_model)
    before = shared.config._attn_implementation
    twin = with_attention_weights(shared)
    assert (shared.config._attn_implementation, twin.config._attn_implementation) == (before, "eager")
    assert before != "eager"
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(shared.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("circuit", ["ov", "qk"])
def test_directions_are_told_by_the_tokens_that_lie_most_along_them(small_model, circuit):
    params = SpectraParams(model=small_model, circuit=circuit, layer=1, head=3, delta=2)
    result, heads = direction_tokens(params), list(read_layers(small_model))[1]
    R = rotation_matrix(rotation_of(model_shape(small_model), 1), -2, 8)
    O, V, Q, K = (W.double().numpy() for W in (heads.W_O[3], heads.W_V[1], heads.W_Q[3], heads.W_K[1]))
    U, sigma, Vh = np.linalg.svd(O @ V if circuit == "ov" else Q.T @ R @ K)
    W_E, W_U = (W.double().numpy() for W in read_embeddings(small_model))
    assert result.singular_values == pytest.approx(sigma[:8], rel=1e-9)
    for i in range(8):
        coming, going = W_E @ Vh[i], (W_U if circuit == "ov" else W_E) @ U[:, i]
        sign = 1 if coming.max() > -coming.min() else -1
        ends = [(coming, result.tokens_in, result.tokens_in_opposite), (going, result.tokens_out, result.tokens_out_opposite)]
        for products, along, opposite in ends:
            order = np.argsort(-sign * products)
            assert along[i] == tuple(word(t) for t in order[:8])
            assert opposite[i] == tuple(word(t) for t in order[::-1][:8])
        assert result.in_products[i] == pytest.approx(np.sort(sign * coming)[::-1][:8], abs=1e-5)


def test_directions_as_rows_of_a_table(small_model):
    result = direction_tokens(SpectraParams(model=small_model, layer=1, head=3))
    header, rows = token_rows(result)
    assert header == ["direction", "singular value", "reads +", "writes +", "reads -", "writes -"]
    assert token_rows(result, "qk")[0][2:4] == ["key +", "query +"]
    assert [len(row) for row in rows] == [6] * 8
    assert all(f"“{token}”" in rows[4][5] for token in result.tokens_out_opposite[4])
    assert float(rows[2][1]) == pytest.approx(result.singular_values[2], rel=5e-3)


def word(token: int) -> str:
    return ("<s>", "<unk>")[token] if token < 2 else f"w{token - 2}"


def test_the_command_line_takes_distance_and_folding(small_model, capsys):
    assert main(["spectra", "--model", small_model, "--json", "-", "--delta", "3", "--fold"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = spectra.head_spectra(SpectraParams(model=small_model, delta=3, fold=True))
    assert (found["delta"], found["fold"]) == (3, True)
    assert np.array(found["qk_singular_values"]) == pytest.approx(expected.qk_singular_values)
    assert np.array(found["ov"]["roy_vetterli_rank"]) == pytest.approx(expected.ov.roy_vetterli_rank)
    assert main(["spectra", "--model", small_model, "--json", "-", "--no-fold"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["delta"], plain["fold"]) == (0, False)
    assert plain["qk_singular_values"] != found["qk_singular_values"]


@pytest.mark.parametrize("delta", [-1, 10**7])
def test_a_distance_that_means_nothing_is_refused(delta):
    with pytest.raises(InputError, match="0 to 1000000 tokens back"):
        SpectraParams(delta=delta)


def test_pictures_take_any_result(small_model):
    params = SpectraParams(model=small_model, delta=4, fold=True)
    result, chance = spectra.head_spectra(params), spectra.chance(params)
    assert len(figures.spectrum(result, chance, "qk", 2, 1).data) == 3
