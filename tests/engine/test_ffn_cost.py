"""Costs against the models that transformers builds on the meta device, and torch's own count of operations."""

import numpy as np
import pytest
import torch

from engine.errors import InputError
from engine.ffn_cost import ARCHITECTURES, CONTEXTS, PARTS, Architecture, architecture, cost
from engine.ffn_params import SHAPES, FfnParams
from engine.ffn_roofline import PUBLISHED, machine


def configuration(name: str):
    """Return transformers' configuration; what departs from a class's defaults is the release's config.json."""
    import transformers as t

    return {
        "gpt2": lambda: t.GPT2Config(),
        "llama-2-7b": lambda: t.LlamaConfig(),
        "llama-3-8b": lambda: t.LlamaConfig(intermediate_size=14336, num_key_value_heads=8, vocab_size=128256),
        "mistral-7b": lambda: t.MistralConfig(),
        "qwen3-8b": lambda: t.Qwen3Config(intermediate_size=12288, num_hidden_layers=36, num_key_value_heads=8, vocab_size=151936),
        "gemma-7b": lambda: t.GemmaConfig(),
        "mixtral-8x7b": lambda: t.MixtralConfig(),
        "deepseek-v3": lambda: t.DeepseekV3Config(),
    }[name]()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_those_of_the_model_on_the_meta_device(name):
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration(name))
    ours = ARCHITECTURES[name]
    assert ours.parameters() == sum(p.numel() for p in model.parameters())
    counts = {
        part: sum(p.numel() for key, p in model.named_parameters() if part in key) for part in (".mlp.", "embed_tokens", "lm_head", "wte", "wpe")
    }
    assert ours.feed_forward() == counts.pop(".mlp.")
    assert ours.embeddings() == sum(counts.values())


@pytest.mark.parametrize("kind", ["LlamaConfig", "GPT2Config"])
def test_operations_are_those_that_torch_counts(kind):
    import transformers as t
    from torch.utils.flop_counter import FlopCounterMode

    n, d, layers, heads, d_ff, vocabulary = 24, 32, 2, 4, 80, 50
    if kind == "LlamaConfig":
        config = t.LlamaConfig(
            vocab_size=vocabulary, hidden_size=d, intermediate_size=d_ff, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=2
        )
        ours = Architecture("tiny", d, layers, heads, 2, 8, d_ff, vocabulary)
    else:
        config = t.GPT2Config(vocab_size=vocabulary, n_embd=d, n_inner=d_ff, n_layer=layers, n_head=heads)
        ours = Architecture("tiny", d, layers, heads, heads, 8, d_ff, vocabulary, gated=False, tied=True)
    model = t.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.arange(n)[None], use_cache=False)
    found = ours.flops(n)
    scores = found["attention, scores"] * n * 2 * n / (n + 1)  # torch multiplies all pairs, also those that the mask hides
    counted = n * (found["feed-forward"] + found["attention, projections"] + found["unembedding"]) + scores
    assert counted == pytest.approx(counter.get_total_flops(), rel=1e-12)


def test_attention_grows_with_the_sequence_and_a_window_stops_it():
    llama, mistral = (cost(FfnParams(shape=name)) for name in ("llama-3-8b", "mistral-7b"))
    scores = "attention, scores"
    assert np.diff(llama.flops[scores]).min() > 0
    assert llama.flops[scores][-1] / llama.flops[scores][-2] == pytest.approx(2, rel=1e-3)
    assert mistral.flops[scores][-1] < 4096 * llama.flops[scores][-1] / CONTEXTS[-1] * 2.1
    assert mistral.flops[scores][0] == llama.flops[scores][0]
    assert len({len(llama.flops[part]) for part in PARTS}) == 1


def test_a_window_is_a_mean_over_positions():
    seen = [min(position, 10) for position in range(1, 65)]
    windowed = Architecture("w", 8, 1, 1, 1, 8, 8, 8, window=10).flops(64)["attention, scores"]
    assert windowed == pytest.approx(2 * 16 * np.mean(seen))


def test_four_and_eight_thirds_cost_the_same_and_where_models_lie():
    plain = architecture(FfnParams(shape="own", d_model=3072, ratio=4.0, gated=False))
    gated = architecture(FfnParams(shape="own", d_model=3072, ratio=8 / 3, gated=True))
    assert plain.expert() == gated.expert() == 8 * 3072**2
    found = cost(FfnParams())
    ratios = dict(zip(found.names, found.ratios, strict=True))
    assert ratios["Llama-2-7B"] == 11008 / 4096 == 2.6875
    assert ratios["Mistral-7B"] == ratios["Llama-3-8B"] == 3.5
    assert set(SHAPES) - {"own"} == set(ARCHITECTURES)


def test_one_token_passes_few_experts():
    mixtral, deepseek = (cost(FfnParams(shape=name)) for name in ("mixtral-8x7b", "deepseek-v3"))
    assert mixtral.active / 1e9 == pytest.approx(12.9, abs=0.05)  # as its report says, arXiv 2401.04088
    assert deepseek.active / 1e9 == pytest.approx(37, abs=1)  # as its report says, arXiv 2412.19437
    with pytest.raises(InputError, match="2 experts per token of 1"):
        cost(FfnParams(shape="own", top_k=2))


def test_intensity_against_a_simulated_router():
    expert = Architecture("e", 64, 1, 1, 1, 64, 128, 10, experts=16, top_k=2)
    batch, generator = 12, np.random.default_rng(0)
    touched = np.mean([len({e for _ in range(batch) for e in generator.choice(16, 2, replace=False)}) for _ in range(4000)])
    moved = touched * expert.expert() + batch * 2 * 3 * (64 + 128)
    assert expert.intensity(np.array([batch]))[0] == pytest.approx(2 * batch * 2 * expert.expert() / (2 * moved), rel=0.01)
    dense = ARCHITECTURES["llama-2-7b"].intensity(np.array([1, 4096]))
    assert dense[0] == pytest.approx(1, rel=0.01)  # one token: two operations for every weight of two bytes
    assert dense[1] > 700


def test_this_machine_is_measured():
    found = machine(FfnParams())
    assert found.peak > 1e9
    assert found.bandwidth > 1e8
    assert 0 < found.reached.min() <= found.reached.max() <= found.peak
    assert (np.diff(found.intensity) > 0).all()
    assert (found.reached <= np.minimum(found.peak, found.intensity * found.bandwidth) * (1 + 1e-9)).all()  # no point above the roof
    assert all(peak / bandwidth > 100 for peak, bandwidth in PUBLISHED.values())  # operations per byte at the ridge
