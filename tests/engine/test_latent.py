"""Keys in a smaller cache: both errors against truncations carried out, and the script that draws them."""

import json
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from engine.cli import main
from engine.errors import InputError
from engine.figures.latent import latent_curves
from engine.latent import latent_cache, latent_errors, shared_latent
from engine.models.loading import open_model
from engine.spectra import SpectraParams, prompt_attention
from tests.engine.test_head_spectra import gaussian

PROMPT = "w1 w5 w9 w1 w7 w20 w33 w2 w40 w41"


def truncated(M: np.ndarray, r: int) -> np.ndarray:
    U, s, Vh = np.linalg.svd(M, full_matrices=False)
    return U[:, :r] * s[:r] @ Vh[:r]


@pytest.mark.parametrize(("tokens", "n"), [(30, 8), (5, 8), (8, 20), (40, 20)])
def test_errors_against_truncations_carried_out(tokens, n):
    X, W_K = gaussian(tokens, 12), gaussian(n, 12, seed=1) * torch.logspace(0, -3, 12, dtype=torch.float64)
    best, from_weights = (e.numpy() for e in latent_errors(X, W_K))
    K, W = (X @ W_K.T).numpy(), W_K.numpy()
    for r in range(1, n + 1):
        assert best[r - 1] == pytest.approx(np.linalg.norm(K - truncated(K, r)) / np.linalg.norm(K), abs=1e-12)
        assert from_weights[r - 1] == pytest.approx(np.linalg.norm(K - X.numpy() @ truncated(W, r).T) / np.linalg.norm(K), abs=1e-12)
    assert (best <= from_weights + 1e-12).all()
    assert best[min(tokens, n) - 1] == pytest.approx(0, abs=1e-12)


def test_keys_that_vanish_lose_nothing():
    best, from_weights = latent_errors(gaussian(4, 6), torch.zeros(3, 6, dtype=torch.float64))
    assert best.tolist() == from_weights.tolist() == [0, 0, 0]


def test_the_keys_are_the_models_own(small_model):
    """The errors of the keys that the model's own key matrix gives on the prompt, taken by a hook."""
    model, seen = open_model(small_model), []
    result = latent_cache(SpectraParams(model=small_model, layer=1, latent=6, prompt=PROMPT))
    projection = model.model.layers[1].self_attn.k_proj
    hook = projection.register_forward_hook(lambda module, args, output: seen.append(output[0]))
    with torch.no_grad():
        model(input_ids=torch.tensor([[int(w[1:]) + 2 for w in PROMPT.split()]]))
    hook.remove()
    K = seen[0].double().numpy()
    assert (result.n, result.n_tokens, K.shape) == (16, 10, (10, 16))
    for r in (1, 6, 9):
        assert result.best[r - 1] == pytest.approx(np.linalg.norm(K - truncated(K, r)) / np.linalg.norm(K), abs=1e-5)
    assert (result.best[:9] > 0.001).all()
    assert result.best[9] == pytest.approx(0, abs=1e-12)
    assert result.from_weights[-1] == pytest.approx(0, abs=1e-12)
    kept, best, cut = (n.value for n in result.numbers())
    assert (kept, best, cut) == pytest.approx((37.5, 100 * result.best[5], 100 * result.from_weights[5]))


def test_a_latent_size_that_cannot_be_is_refused(small_model):
    with pytest.raises(InputError, match="at least 1"):
        SpectraParams(latent=0)
    with pytest.raises(InputError, match="1 to 16 are accepted"):
        latent_cache(SpectraParams(model=small_model, latent=17, prompt=PROMPT))


def test_keys_and_values_together_are_the_models_own(small_model):
    """Against truncations carried out on what the model's own key and value matrices give on the prompt, taken by hooks."""
    model, seen = open_model(small_model), []
    result = shared_latent(SpectraParams(model=small_model, layer=1, latent=20, prompt=PROMPT))
    block = model.model.layers[1].self_attn
    hooks = [p.register_forward_hook(lambda module, args, output: seen.append((args[0][0], output[0]))) for p in (block.k_proj, block.v_proj)]
    with torch.no_grad():
        model(input_ids=torch.tensor([[int(w[1:]) + 2 for w in PROMPT.split()]]))
    for hook in hooks:
        hook.remove()
    X = seen[0][0].double().numpy()
    KV = np.concatenate([output.double().numpy() for _, output in seen], axis=1)
    W = np.concatenate([p.weight.double().numpy() for p in (block.k_proj, block.v_proj)])
    size, of_weight = np.linalg.norm(KV), np.linalg.norm(W)
    assert (result.n, len(result.best), KV.shape) == (16, 32, (10, 32))
    for r in (1, 6, 9, 20):
        assert result.best[r - 1] == pytest.approx(np.linalg.norm(KV - truncated(KV, r)) / size, abs=1e-5)
        assert result.from_weights[r - 1] == pytest.approx(np.linalg.norm(KV - X @ truncated(W, r).T) / size, abs=1e-5)
        assert result.weights[r - 1] == pytest.approx(np.linalg.norm(W - truncated(W, r)) / of_weight, abs=1e-9)
    alone = latent_cache(SpectraParams(model=small_model, layer=1, prompt=PROMPT))
    assert np.array_equal(result.keys_best, alone.best)
    cut, best, weights, saved = result.numbers()
    assert (cut.value, cut.chance) == (pytest.approx(100 * result.from_weights[19]), pytest.approx(100 * result.chance[19]))
    assert (best.value, weights.value) == (pytest.approx(100 * result.best[19]), pytest.approx(100 * result.weights[19]))
    assert (saved.value, "2 x (32 - 20)" in saved.label) == (24, True)
    go.Figure(latent_curves(result).to_dict())  # raises for a property or value that plotly does not know
    with pytest.raises(InputError, match="1 to 32 are accepted"):
        shared_latent(SpectraParams(model=small_model, latent=33, prompt=PROMPT))


SCRIPT = ["spectra", "--layer", "2", "--head", "3", "--prompt", PROMPT]


def test_the_script_of_the_source_lives_on(small_model, tmp_path, capsys):
    target = tmp_path / "out.html"
    assert main([*SCRIPT, "--model", small_model, "--latent", "6", "--figure", str(target)]) == 0
    printed, text = capsys.readouterr().out, target.read_text(encoding="utf-8")
    result = latent_cache(SpectraParams(model=small_model, layer=2, latent=6, prompt=PROMPT))
    for number in result.numbers():
        assert f"{number.value:.1f} %" in printed
        assert f"{number.value:.1f} %" in text
    assert "Effective rank" in printed
    assert text.count("Plotly.newPlot(") >= 4
    assert "layer 2, head 3" in text
    assert not any(f'src="{scheme}' in text for scheme in ("http", "//"))


def test_the_prompt_stays_text_in_the_page(small_model, tmp_path):
    target = tmp_path / "out.html"
    assert main([*SCRIPT[:-1], "w1 <b>w2</b> w3", "--model", small_model, "--figure", str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    assert "<b>w2</b>" not in text
    assert "&lt;b&gt;w2" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--latent", "17"], "1 to 16 are accepted"),
        (["--latent", "0"], "at least 1"),
        (["--latent", "x"], "--latent"),
        (["--layer", "9"], "layers 0 to 2"),
        (["--prompt", " "], "prompt is empty"),
        (["--figure", "/no/such/folder/out.html"], "No such file"),
    ],
)
def test_what_is_refused_is_one_sentence(small_model, tmp_path, capsys, change, said):
    target = tmp_path / "out.html"
    assert main([*SCRIPT, "--model", small_model, "--figure", str(target), *change]) == 2
    out, err = capsys.readouterr()
    assert (out, target.exists()) == ("", False)
    assert said in err.splitlines()[-1]


def test_figure_and_json_go_together(small_model, tmp_path, capsys):
    target = tmp_path / "out.html"
    assert main([*SCRIPT, "--model", small_model, "--figure", str(target), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert "Error, weight truncated" in err
    assert target.stat().st_size > 10**6


@pytest.mark.parametrize("asked", [["--prompt", PROMPT], ["--latent", "6"]])
def test_prompt_and_latent_count_without_a_figure(small_model, capsys, asked):
    command = ["spectra", "--model", small_model, "--layer", "2", "--head", "3", *asked]
    params = SpectraParams(model=small_model, layer=2, head=3)
    params = replace(params, prompt=PROMPT) if "--prompt" in asked else replace(params, latent=6)
    latent, attention = latent_cache(params), prompt_attention(params)
    assert main(command) == 0
    printed = capsys.readouterr().out
    for number in (*latent.numbers(), *attention.numbers()):
        assert f"{number.value:.{number.digits}f}{number.unit}" in printed
    assert main([*command, "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["latent"]["latent"] == params.latent
    assert result["latent"]["from_weights"] == pytest.approx(latent.from_weights)
    assert np.array(result["attention"]["attention"]) == pytest.approx(attention.attention)
    assert len(result["ov_singular_values"]) == 3


@pytest.mark.parametrize("option", ["--figure", "--json"])
@pytest.mark.parametrize("target", ["/no/such/folder/out.html", "."])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_computed(small_model, monkeypatch, capsys, option, target):
    computed = []
    monkeypatch.setattr("engine.head_report.head_report", lambda *_: computed.append(1))
    monkeypatch.setattr("engine.spectra.report", lambda *_: computed.append(1))
    assert main([*SCRIPT, "--model", small_model, option, target]) == 2
    out, err = capsys.readouterr()
    assert (out, computed) == ("", [])
    assert option in err
    assert len(err.splitlines()) == 1
