"""The head-spectrum lab against numpy on the model's own matrices, and against the model's own attention."""

import numpy as np
import pytest
import torch

from engine import head_map, spectra
from engine.errors import InputError, ModelError
from engine.figures import cause as causes
from engine.figures import spectra as figures
from engine.heads import parse_heads
from engine.linalg import energy_effective_rank
from engine.models.attention import head_attention
from engine.models.loading import open_model
from engine.params import restrict
from engine.spectra import SpectraParams
from engine.trajectory import trajectory

CASES = pytest.mark.parametrize("name", ["tiny", "fable"])


@pytest.fixture
def model(name, tiny_llama) -> str:
    return str(tiny_llama) if name == "tiny" else "fable"


def matrices(model: str, layer: int, head: int):
    """Return W_OV and W_QK of a head, cut by hand from the parameters of the loaded model."""
    whole = open_model(model)
    block, config = whole.model.layers[layer].self_attn, whole.config
    r, group = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    query, kv = slice(head * r, (head + 1) * r), slice(head // group * r, (head // group + 1) * r)
    W = {name: getattr(block, f"{name}_proj").weight.double().numpy() for name in "qkvo"}
    return W["o"][:, query] @ W["v"][kv], W["q"][query].T @ W["k"][kv]


@CASES
def test_every_head_against_the_whole_product(model):
    result = spectra.head_spectra(SpectraParams(model=model))
    for layer, head in np.ndindex(result.ov_effective_rank.shape):
        for circuit, whole in zip(spectra.CIRCUITS, matrices(model, layer, head), strict=True):
            expected = np.linalg.svd(whole, compute_uv=False)[: result.d_head]
            values = result.of(circuit, "singular_values")[layer, head]
            assert values == pytest.approx(expected, rel=1e-9)
            assert result.of(circuit, "effective_rank")[layer, head] == pytest.approx(energy_effective_rank(expected))


@CASES
def test_attention_is_the_models_own(model):
    whole = open_model(model)
    ids = np.random.default_rng(0).integers(0, whole.config.vocab_size, 40).tolist()
    from transformers import AutoModelForCausalLM

    eager = AutoModelForCausalLM.from_pretrained(whole.config._name_or_path, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        own = eager(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    for layer, head in np.ndindex(len(own), own[0].shape[1]):
        assert head_attention(whole, ids, layer, head).numpy() == pytest.approx(own[layer][0, head].numpy(), abs=2e-6)


def test_stopping_at_a_layer_leaves_other_passes_alone(tiny_llama):
    model, ids = open_model(str(tiny_llama)), torch.arange(10)[None]
    with torch.no_grad():
        before = model(input_ids=ids).logits
        head_attention(model, list(range(10)), 1, 0)
        assert torch.equal(model(input_ids=ids).logits, before)


def test_chance_is_near_what_random_heads_show(tiny_llama):
    params = SpectraParams(model=str(tiny_llama))
    result, chance = spectra.head_spectra(params), spectra.chance(params)
    low, high = chance.effective_rank_band
    inside = (result.ov_effective_rank >= low) & (result.ov_effective_rank <= high)
    assert low < chance.effective_rank < high
    assert inside.mean() > 0.6  # an untrained model: 90 % expected, 12 heads


def test_results_leave_the_engine_read_only(tiny_llama):
    result = spectra.head_spectra(SpectraParams(model=str(tiny_llama)))
    with pytest.raises(ValueError, match="read-only"):
        result.ov_singular_values[0, 0, 0] = 1.0


def test_a_head_is_read_off_with_chance_beside_it():
    params = SpectraParams(layer=1, head=2)
    numbers = spectra.head_numbers(params, spectra.head_spectra(params), spectra.chance(params))
    result = spectra.head_spectra(params)
    assert numbers["effective_rank"].value == pytest.approx(result.ov_effective_rank[1, 2])
    energies = result.ov_singular_values[1, 2] ** 2
    k = int(numbers["directions_90"].value)
    assert energies[:k].sum() >= 0.9 * energies.sum() > energies[: k - 1].sum()
    assert numbers["top_share"].value == pytest.approx(100 * energies[0] / energies.sum())
    assert all(n.chance for key, n in numbers.items() if key != "rank_place")


def test_only_what_is_used_can_influence_a_result():
    moved = SpectraParams(circuit="qk", layer=2, head=1, prompt="other")
    assert restrict(spectra.head_spectra, moved) == SpectraParams()
    assert restrict(spectra.prompt_attention, moved) == SpectraParams(layer=2, head=1, prompt="other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": " "}, "prompt is empty"),
        ({"prompt": "word " * 300}, r"has \d+ tokens; at most 256"),
        ({"layer": 99}, "layers 0 to 3"),
        ({"head": 99}, "heads 0 to 7"),
    ],
)
def test_what_cannot_be_shown_is_said(change, said):
    with pytest.raises(InputError, match=said):
        spectra.prompt_attention(SpectraParams(**change))


def test_a_model_without_tokenizer_says_so_and_has_spectra(tiny_llama):
    params = SpectraParams(model=str(tiny_llama))
    assert spectra.head_spectra(params).n_layers == 3
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        spectra.prompt_attention(params)


@pytest.mark.parametrize("prompt", ["🦊🦊 said the fox", "قال الثعلب", "a <b>bold</b> & wide &lt; claim", "\u202eright to left", "x" * 120])
def test_any_text_has_labels_and_rows_that_sum_to_one(prompt):
    result = spectra.prompt_attention(SpectraParams(prompt=prompt))
    assert result.attention.sum(-1) == pytest.approx(1.0)
    assert np.triu(result.attention, 1).max() == 0
    shown = figures.attention(result)
    assert not any(c in label for label in shown.layout.xaxis.ticktext for c in "<>\n\ufffd")


def test_axes_stay_while_the_head_changes():
    params = SpectraParams()
    result, chance = spectra.head_spectra(params), spectra.chance(params)
    first, second = (figures.spectrum(result, chance, "ov", *where) for where in ((0, 0), (3, 7)))
    assert first.layout.yaxis.range == second.layout.yaxis.range
    assert first.layout.xaxis.range == second.layout.xaxis.range
    low, high = first.layout.yaxis.range
    assert 10**low < result.ov_singular_values.min()
    assert 10**high > result.ov_singular_values.max()


def test_the_map_shows_every_head_where_it_is():
    params = SpectraParams(circuit="qk")
    result = spectra.head_spectra(params)
    score = head_map.head_score("effective_rank", params)
    cells = figures.head_map(score, "qk", result.n_kv_heads, 1, 2, [(2, 5)]).data[0]
    assert np.array_equal(cells.z, result.qk_effective_rank)
    assert cells.customdata[3][5] == {"layer": 3, "head": 5}
    assert (cells.zmin, cells.zmax) == (0, result.d_head)


def test_the_strip_orders_all_heads_and_names_each():
    score = head_map.head_score("previous_token", SpectraParams())
    strip = figures.head_strip(score, "ov", 1, 2)
    points = strip.data[0]
    assert list(points.y) == sorted(score.values.ravel(), reverse=True)
    assert all(score.values[p["layer"], p["head"]] == y for p, y in zip(points.customdata, points.y, strict=True))
    assert points.customdata[strip.layout.meta["cursor"][1]] == {"layer": 1, "head": 2}


@pytest.mark.parametrize("name", head_map.SCORES)
def test_every_score_lies_within_its_scale_and_has_a_chance(name):
    score = head_map.head_score(name, SpectraParams())
    assert score.values.shape == (4, 8)
    assert score.low <= score.values.min() <= score.values.max() <= score.high * (1 + 1e-12)
    assert score.chance is None or score.low <= score.chance <= score.high
    assert score.chance is not None or name == "size"
    assert not score.values.flags.writeable


def test_scores_are_the_engines_own_numbers():
    params = SpectraParams(circuit="qk", delta=3)
    result = spectra.head_spectra(params)
    assert np.array_equal(head_map.head_score("stable_rank", params).values, result.qk.stable_rank)
    assert np.allclose(10 ** head_map.head_score("condition_number", params).values, result.qk.condition_number)
    header, rows = head_map.columns(params, result, head_map.head_score("prefix_matching", params))
    assert rows[2 * 8 + 6][header.index("qk top_share")] == result.qk.top_share[2, 6]
    assert len(rows) == 32
    assert {len(row) for row in rows} == {len(header)}


def test_presets_name_the_heads_that_they_say():
    """What the words of ``assets/labs/spectra.json`` claim of Fable's heads."""
    from transformers import AutoModelForCausalLM

    from engine.models.behaviour import head_scores
    from pages.shared import data
    from tests.conftest import FABLE

    lab, result = data.lab("spectra"), spectra.head_spectra(SpectraParams())
    place = {p.label: (int(p.link["layer"]), int(p.link["head"])) for p in lab.presets}
    scores = head_scores(AutoModelForCausalLM.from_pretrained(FABLE, dtype=torch.float32, attn_implementation="eager"))
    copier, partner = place["An induction head"], place["Its partner, one token back"]
    assert scores.prefix_matching[copier] > 0.5
    assert (result.ov_effective_rank < result.ov_effective_rank[copier]).mean() > 0.5
    assert scores.previous_token[partner] > 0.9
    assert result.ov_effective_rank[place["The sharpest head"]] == result.ov_effective_rank.min()
    assert scores.prefix_matching[place["The sharpest head"]] < 0.1
    cut = lab.preset("Copying, cut to eight directions").link
    assert parse_heads(cut["off"]) == tuple(sorted(map(tuple, np.argwhere(scores.prefix_matching > 0.4).tolist())))
    assert np.median(result.ov_effective_rank[tuple(zip(*parse_heads(cut["off"]), strict=True))]) > np.median(result.ov_effective_rank)
    steps = trajectory(SpectraParams()).prefix_matching
    assert (steps[5, 2] > 0.3).sum() >= 3 > (steps[2, 2] > 0.3).sum()


def test_plotly_accepts_every_figure():
    import plotly.graph_objects as go

    from engine.ablation import keep_curve

    params = SpectraParams()
    result, chance = spectra.head_spectra(params), spectra.chance(params)
    first, second = (head_map.head_score(name, params) for name in ("effective_rank", "copying_score"))
    drawn = [
        figures.head_map(second, "ov", 4, 1, 2, [(0, 0)]),
        figures.head_strip(first, "ov", 1, 2),
        figures.spectrum(result, chance, "qk", 1, 2, 4),
    ]
    drawn += [draw([result, result], chance, "ov", [(0, 1), (2, 3)]) for draw in (figures.overlaid, figures.energies)]
    drawn += [causes.scatter(first, second, 1, 2), causes.keep_curve(keep_curve(params)), figures.attention(spectra.prompt_attention(params))]
    for fig in drawn:
        checked = go.Figure(fig.to_dict())  # raises for a property or value that plotly does not know
        assert [trace.type for trace in checked.data] == [trace.type for trace in fig.data]
