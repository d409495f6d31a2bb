"""What a real head reads, against numpy's SVD and pseudo-inverse on the model's own weights and activations."""

import numpy as np
import pytest
import torch

from engine.errors import InputError
from engine.models.loading import open_model, tokenize
from engine.models.weights import read_layers
from engine.subspaces.angles import angle_numbers, angles, distance_from_projection, principal_angles
from engine.subspaces.params import WEIGHTS, ProjectionsParams
from engine.subspaces.reading import head_weight, orthonormal, random_energy, random_number, reading, reading_numbers

PROMPT = ProjectionsParams().prompt


def subspace_angles(A, B) -> np.ndarray:
    """Return principal angles of the column spaces from the eigenvalues of a product of numpy's pseudo-inverse projectors."""
    eigenvalues = np.linalg.eigvals(A @ np.linalg.pinv(A) @ B @ np.linalg.pinv(B)).real
    count = min(A.shape[1], B.shape[1])
    return np.sort(np.arccos(np.sqrt(np.clip(np.sort(eigenvalues)[::-1][:count], 0, 1))))


def recorded(layer: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return weight and input of a module of Fable on the prompt, by a hook on a copy of the model."""
    import copy

    model = copy.deepcopy(open_model("fable"))
    seen = {}
    module = model.get_submodule(f"model.layers.{layer}.{name}")
    module.register_forward_pre_hook(lambda m, args: seen.update(x=args[0][0]))
    with torch.no_grad():
        model(input_ids=torch.tensor([tokenize("fable", PROMPT, 128)[0]]))
    return module.weight.double().numpy(), seen["x"].double().numpy()


@pytest.mark.parametrize(("weight", "rows"), [("Q", slice(192, 224)), ("K", slice(96, 128)), ("V", slice(96, 128))])
def test_energy_read_is_that_of_the_pseudo_inverse(weight, rows):
    W, X = recorded(2, f"self_attn.{weight.lower()}_proj")
    W = W[rows]
    inside = X @ (np.linalg.pinv(W) @ W)
    expected = (inside**2).sum(1) / (X**2).sum(1)
    result = reading(ProjectionsParams(weight=weight, layer=2, head=6))
    assert result.by_token == pytest.approx(expected, rel=1e-4)
    assert result.shares[6] == pytest.approx(expected.mean(), rel=1e-4)
    assert (result.rank, result.nullity, result.chance) == (32, 224, 0.125)


def test_w_down_reads_a_part_of_the_hidden_activations():
    W, X = recorded(1, "mlp.down_proj")
    inside = X @ (np.linalg.pinv(W) @ W)
    result = reading(ProjectionsParams(weight="down", layer=1))
    assert result.by_token == pytest.approx((inside**2).sum(1) / (X**2).sum(1), rel=1e-4)
    assert result.chance == pytest.approx(256 / 704)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_twins_look_different_and_are_the_same_to_the_weight(weight):
    result = reading(ProjectionsParams(weight=weight))
    if weight == "O":  # a head's W_O has more rows than columns: nothing it receives is lost
        assert (result.twin, result.nullity) == (None, 0)
        return
    assert result.twin.difference_in > 0.5
    assert result.twin.difference_out < 1e-13
    assert np.linalg.norm(result.twin.x - result.twin.twin) == pytest.approx(result.twin.difference_in * np.linalg.norm(result.twin.x))


def test_a_random_weight_keeps_what_chance_says():
    result = reading(ProjectionsParams(weight="random"))
    assert result.shares.mean() == pytest.approx(result.chance, abs=0.01)
    kept = random_number(random_energy(ProjectionsParams()))
    assert kept.value == pytest.approx(kept.chance, abs=0.1)
    assert kept.chance == pytest.approx(100 * 64 / 768)


def test_real_residuals_are_read_above_chance_by_every_query():
    result = reading(ProjectionsParams(weight="Q"))
    assert (result.shares > 1.5 * result.chance).all()
    assert reading_numbers(result)["read"].value > 150 * result.chance


@pytest.mark.parametrize("prompt", ["a", "The"])
def test_a_prompt_of_one_word_has_a_twin_too(prompt):
    assert reading(ProjectionsParams(prompt=prompt)).twin.difference_out < 1e-13


@pytest.mark.parametrize(("change", "said"), [({"prompt": " "}, "empty"), ({"layer": 9}, "layers 0 to 3"), ({"head": 8}, "heads 0 to 7")])
def test_what_cannot_be_shown_is_said(change, said):
    with pytest.raises(InputError, match=said):
        reading(ProjectionsParams(**change))


def test_principal_angles_are_those_of_the_product_of_projectors():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((30, 4)), rng.standard_normal((30, 6))
    mine = principal_angles(orthonormal(torch.from_numpy(A)), orthonormal(torch.from_numpy(B)))
    assert mine == pytest.approx(np.degrees(subspace_angles(A, B)), abs=1e-5)


def test_angles_of_a_head_and_wov_is_no_projection():
    layer, head = 2, 6
    result = angles(ProjectionsParams(layer=layer, head=head))
    block = open_model("fable").model.layers[layer].self_attn
    W = {name: getattr(block, f"{name}_proj").weight.double().numpy() for name in "qkvo"}
    written = W["o"][:, 192:224]
    for i, read in enumerate((W["q"][192:224], W["k"][96:128], W["v"][96:128])):
        assert result.angles[i] == pytest.approx(np.degrees(subspace_angles(read.T, written)), abs=1e-4)
    assert result.overlap[layer, head] == pytest.approx((np.cos(np.radians(result.angles[2])) ** 2).mean())
    whole = written @ W["v"][96:128]
    assert result.not_projection[layer, head] == pytest.approx(np.linalg.norm(whole @ whole - whole) / np.linalg.norm(whole))
    squared = whole @ whole
    best = np.linalg.lstsq(squared.reshape(-1, 1), whole.ravel(), rcond=None)[0][0]
    assert result.at_best_scale[layer, head] == pytest.approx(np.linalg.norm(best * squared - whole) / np.linalg.norm(whole))
    assert result.at_best_scale.min() > 0.5


def test_a_projection_is_found_to_be_one_at_any_scale():
    Q = torch.linalg.qr(torch.randn(12, 4, dtype=torch.float64))[0]
    assert distance_from_projection(Q, Q.T) == pytest.approx((0, 0), abs=1e-7)
    assert distance_from_projection(Q, 3 * Q.T) == pytest.approx((2, 0), abs=1e-7)
    assert distance_from_projection(Q, 0 * Q.T) == (1.0, 1.0)


def test_chance_of_overlap_is_d_head_over_d_model(tiny_llama):
    result = angles(ProjectionsParams(model=str(tiny_llama), layer=0, head=0))
    assert result.chance_overlap == pytest.approx(8 / 24)
    assert result.overlap.mean() == pytest.approx(8 / 24, abs=0.08)
    assert result.at_best_scale.mean() == pytest.approx(result.chance_at_best_scale, abs=0.1)
    assert all(np.isfinite(n.value) for n in angle_numbers(result))


def test_the_chance_of_not_being_a_projection_is_that_of_gaussian_factors_of_the_same_size():
    params = ProjectionsParams()
    result = angles(params)
    drawn = np.random.default_rng(1).standard_normal((2, 20, 256, 32))
    products = [A @ B.T for A, B in zip(*drawn, strict=True)]
    heads = list(read_layers(params.model))[params.layer]
    size = np.linalg.norm((head_weight(heads, "O", params.head) @ head_weight(heads, "V", params.head)).numpy())
    products = [W * size / np.linalg.norm(W) for W in products]
    expected = np.mean([np.linalg.norm(W @ W - W) / size for W in products])
    assert result.chance_not_projection == pytest.approx(expected, rel=0.02)
