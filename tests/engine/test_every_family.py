"""The lab's numbers on every family of the table, and a sentence for what a family does not have."""

import numpy as np
import pytest
import torch

from engine.behaviour import behaviour_scores
from engine.circuits import circuits
from engine.directions import direction_tokens
from engine.errors import ModelError
from engine.models.attention import cos_sin, head_queries_and_keys, rotate_halves
from engine.models.families import rotation_of
from engine.models.weights import model_shape, read_layers
from engine.spectra import SpectraParams, head_spectra
from tests.engine.models.tiny import CASES, case


@pytest.fixture(scope="module", params=[c.name for c in CASES])
def saved(request, tmp_path_factory):
    """The folder of one tiny model."""
    folder = tmp_path_factory.mktemp("family")
    case(request.param).build().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("delta", [0, 3])
def test_spectra_are_those_of_the_whole_products(saved, delta):
    result = head_spectra(SpectraParams(model=str(saved), delta=delta))
    shape = model_shape(str(saved))
    for layer, heads in enumerate(read_layers(str(saved))):
        of_layer = circuits(heads, rotation_of(shape, layer), delta)
        for head in range(shape.n_heads):
            for circuit in ("ov", "qk"):
                A, B = (factor.double().numpy() for factor in of_layer.of(circuit, head))
                expected = np.linalg.svd(A @ B, compute_uv=False)[: shape.d_head]
                assert result.of(circuit, "singular_values")[layer, head] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("delta", [0, 1, 4])
def test_w_qk_at_a_distance_gives_the_scores_at_that_distance(saved, delta):
    """x_i^T W_QK(delta) x_j is q_i . k_j of the model's own rotated q and k for i - j = delta, biases and norms left out."""
    shape, (heads,) = model_shape(str(saved)), read_layers(str(saved), [1])
    plain = type(heads)(heads.W_Q.double(), heads.W_K.double(), heads.W_V.double(), heads.W_O.double())
    rotation, x = rotation_of(shape, 1), torch.randn(7, shape.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for head in range(shape.n_heads):
        q, k = head_queries_and_keys(shape, plain, head, x)
        if rotation is not None:
            turn = cos_sin(rotation, torch.arange(7))
            q, k = (rotate_halves(v, *turn) / rotation.attention_factor for v in (q, k))
            if rotation.n_rotary < shape.d_head and rotation.attention_factor != 1:
                pytest.skip("the factor scales only the rotated part")
        A, B = circuits(plain, rotation, delta).of("qk", head)
        for i in range(delta, 7):
            assert (x[i] @ A @ B @ x[i - delta]).item() == pytest.approx((q[i] @ k[i - delta]).item(), rel=1e-6, abs=1e-6)


def test_an_encoder_has_spectra_but_no_causal_scores_and_no_tokens(tmp_path):
    case("bert").build().save_pretrained(tmp_path)
    params = SpectraParams(model=str(tmp_path))
    assert head_spectra(params).n_layers == 2
    with pytest.raises(ModelError, match="is an encoder"):
        behaviour_scores(params)
    with pytest.raises(ModelError, match="has no unembedding"):
        direction_tokens(params)
