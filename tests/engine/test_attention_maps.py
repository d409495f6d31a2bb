"""Attention of a whole layer against the model's own, its two numbers a row against their definitions, and its pictures."""

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from engine.attention_maps import entropy_share, layer_attention
from engine.figures import heads as figures
from engine.figures.packing import packed, plain, unpacked
from engine.figures.theme import as_json
from engine.models.attention import heads_attention, make_stoppable
from engine.spectra import SpectraParams, prompt_attention
from tests.engine.models.tiny import CASES, IDS

PROMPT = "w1 w5 w9 w1 w7 w20 w33 w2 w40 w41 w1 w5"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_head_of_every_family_is_the_models_own(case):
    model = make_stoppable(case.build())
    with torch.no_grad():
        own = model(input_ids=torch.tensor([IDS]), output_attentions=True).attentions
    for layer, expected in enumerate(own):
        assert heads_attention(model, IDS, layer).numpy() == pytest.approx(expected[0].numpy(), abs=2e-6)


def test_entropy_and_sink_of_every_row(small_model):
    result = layer_attention(SpectraParams(model=small_model, layer=1, prompt=PROMPT))
    one = prompt_attention(SpectraParams(model=small_model, layer=1, head=3, prompt=PROMPT))
    assert (result.labels, result.attention.dtype, result.attention.flags.writeable) == (one.labels, np.float32, False)
    assert result.attention[3] == pytest.approx(one.attention, abs=1e-7)
    assert np.isnan(result.entropy[:, 0]).all()
    for h, i in np.ndindex(4, 12):
        row = torch.tensor(result.attention[h, i, : i + 1], dtype=torch.float64)
        if i:
            assert result.entropy[h, i] == pytest.approx(torch.distributions.Categorical(row).entropy().item() / np.log(i + 1), abs=1e-6)
        assert (result.sink[h, i], result.sink_uniform[i]) == (pytest.approx(row[0].item()), pytest.approx(1 / (i + 1)))


def test_even_attention_has_entropy_1_and_a_single_weight_0():
    even = np.tri(5) / np.arange(1, 6)[:, None]
    shares = entropy_share(np.stack([even, np.eye(5)]), np.arange(1, 6))
    assert shares[0, 1:] == pytest.approx(1)
    assert shares[1, 1:] == pytest.approx(0)


def test_numbers_stand_beside_even_attention(small_model):
    result = layer_attention(SpectraParams(model=small_model, layer=2, prompt=PROMPT))
    entropy, first, before = result.numbers(1)
    A = result.attention[1]
    assert (entropy.value, entropy.chance) == (pytest.approx(100 * result.entropy[1, 1:].mean()), 100)
    assert (first.value, first.chance) == (pytest.approx(100 * A[1:, 0].mean()), pytest.approx(100 * np.mean([1 / n for n in range(2, 13)])))
    assert before.value == pytest.approx(100 * np.mean([A[i, i - 1] for i in range(2, 12)]))
    assert before.chance == pytest.approx(100 * np.mean([1 / n for n in range(3, 13)]))
    assert layer_attention(SpectraParams(model=small_model, prompt="w1")).numbers(0) == ()


@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (3, 40)])
def test_what_is_packed_comes_back(shape):
    values = np.random.default_rng(0).random(shape)
    assert unpacked(packed(values, causal=False)) == pytest.approx(values, abs=1 / 510)
    back = unpacked(packed(values, causal=True))
    assert np.isnan(back[np.triu_indices(*shape[:1], 1, shape[1])]).all()
    below = np.tril_indices(*shape[:1], 0, shape[1])
    assert back[below] == pytest.approx(values[below], abs=1 / 510)


def test_thumbnails_hold_the_largest_weight_of_each_block(small_model):
    A = np.random.default_rng(1).random((100, 100))
    edges = [i * 100 // 64 for i in range(64)] + [100]
    small = figures.block_maxima(A, 64)
    for i, j in ((0, 0), (10, 63), (63, 5), (33, 34)):
        assert small[i, j] == A[edges[i] : edges[i + 1], edges[j] : edges[j + 1]].max()
    assert np.array_equal(figures.block_maxima(A, 100), A)


def test_pictures_name_heads_and_tokens_and_plotly_accepts_them(small_model):
    result = layer_attention(SpectraParams(model=small_model, layer=1, prompt=PROMPT))
    small, large = figures.thumbnails(result, 2), figures.attention(result, 2)
    assert [[cell["head"] for cell in row] for row in small.data[-1].customdata] == [[0, 1, 2, 3]]
    assert unpacked(large.to_dict()["data"][0]["packed"])[5, :6] == pytest.approx(result.attention[2, 5, :6], abs=1 / 510)
    assert list(large.data[0].x)[:2] == ["0 w1", "1 w5"]
    for fig in (small, large):
        checked = go.Figure(plain(fig).to_dict())  # raises for a property or value that plotly does not know
        assert [trace.type for trace in checked.data] == [trace.type for trace in fig.data]
        assert "packed" in as_json(fig)["traces"]


def test_axes_stay_while_the_head_changes(small_model):
    result = layer_attention(SpectraParams(model=small_model, layer=1, prompt=PROMPT))
    for draw in (figures.thumbnails, figures.attention):
        first, second = (draw(result, head).to_dict()["layout"] for head in (0, 3))
        assert all(first[axis] == second[axis] for axis in first if "axis" in axis)
