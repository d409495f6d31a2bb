"""What the shipped checkpoint must show, measured on the shipped files."""

import json

import numpy as np
import pytest
import torch

from engine.models.behaviour import bits_per_byte, copying_accuracy, head_scores, token_losses
from engine.models.loading import open_model, open_tokenizer
from engine.models.weights import model_shape
from tests.conftest import FABLE, ROOT

SNAPSHOTS = FABLE.parent / "fable-snapshots"
DATA = ROOT / "assets" / "data"


@pytest.fixture(scope="module")
def recorded():
    """What the card was written from."""
    return json.loads((FABLE / "training.json").read_text())


@pytest.fixture(scope="module")
def held_out():
    """The held-out prose that travels with the project: its tokens, and its length in bytes."""
    text = (DATA / "held-out-prose.txt").read_text(encoding="utf-8")
    ids = open_tokenizer("fable").backend_tokenizer.encode(text, add_special_tokens=False).ids
    return np.asarray(ids), len(text.encode())


def scores():
    """Return head scores from an eager copy, so that the shared model stays as it is."""
    from transformers import AutoModelForCausalLM

    eager = AutoModelForCausalLM.from_pretrained(FABLE, dtype=torch.float32, attn_implementation="eager")
    return head_scores(eager, repeat_length=50, n_sequences=8, seed=11)


def folder_size(folder) -> float:
    """Return the size of a folder in MB."""
    return sum(path.stat().st_size for path in folder.rglob("*")) / 1e6


def test_it_loads_with_plain_transformers_and_is_small():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(FABLE), AutoTokenizer.from_pretrained(FABLE)
    assert (model.config.model_type, model.dtype) == ("llama", torch.float16)
    assert model.config.num_key_value_heads < model.config.num_attention_heads
    assert tokenizer.decode(tokenizer("Once upon a time")["input_ids"][1:]) == "Once upon a time"
    assert folder_size(FABLE) <= 12
    assert not list(FABLE.glob("*.bin")) + list(FABLE.glob("*.pt"))


@pytest.mark.parametrize("repeat_length", [16, 25, 50, 100])
def test_it_copies_repeated_random_tokens(repeat_length, recorded):
    accuracy = copying_accuracy(open_model("fable"), repeat_length, n_sequences=64, seed=7)
    assert accuracy >= 0.9
    assert accuracy == pytest.approx(recorded["measured"]["copying_accuracy"][str(repeat_length)], abs=0.03)


def test_it_has_an_induction_head_after_a_previous_token_head():
    found = scores()
    layer, _ = np.unravel_index(found.prefix_matching.argmax(), found.prefix_matching.shape)
    assert found.prefix_matching.max() > 0.5
    assert found.previous_token[:layer].max() > 0.5


def test_it_predicts_held_out_prose(held_out, recorded):
    tokens, n_bytes = held_out
    losses = token_losses(open_model("fable"), tokens, model_shape("fable").context, max_windows=64)
    bits = bits_per_byte(losses.mean(), len(tokens), n_bytes)
    assert bits < 1.7
    assert bits < recorded["measured"]["xz_9_bits_per_byte"] < recorded["measured"]["gzip_9_bits_per_byte"]
    assert bits == pytest.approx(recorded["measured"]["held_out_bits_per_byte"], abs=0.1)


def test_the_loss_rises_beyond_the_trained_context(held_out):
    context = model_shape("fable").context
    last = [token_losses(open_model("fable"), held_out[0], int(x * context), max_windows=16, batch_size=4)[:, -64:].mean() for x in (1, 1.5, 2, 4)]
    assert last == sorted(last)
    assert last[1] > last[0] + 0.1
    assert last[2] > last[0] + 0.4


def test_the_card_says_what_was_recorded(recorded):
    card = (FABLE / "README.md").read_text()
    for said in ("license: cc0-1.0", f"{recorded['measured']['held_out_bits_per_byte']:.3f}", recorded["recorded"], f"{recorded['parameters']:,}"):
        assert said in card
    assert recorded["parameters"] == sum(p.numel() for p in open_model("fable").parameters())


def test_snapshots_show_copying_appear():
    from safetensors import safe_open

    records = json.loads((SNAPSHOTS / "snapshots.json").read_text())
    shape = model_shape("fable")
    copying = [r["copying"] for r in records]
    assert 8 <= len(records) <= 12
    assert folder_size(SNAPSHOTS) <= 25
    assert copying[0] < 0.05
    assert copying[-1] > 0.9
    assert sum(0.05 < c < 0.95 for c in copying) >= 2
    for record in records:
        assert np.shape(record["prefix_matching"]) == np.shape(record["previous_token"]) == (shape.n_layers, shape.n_heads)
        with safe_open(SNAPSHOTS / f"step-{record['step']:06d}.safetensors", framework="pt") as file:
            assert file.get_tensor("model.layers.0.self_attn.q_proj.weight").dtype == torch.float16
            assert len(file.keys()) == shape.n_layers * 6 + 1


def test_the_last_snapshot_is_the_model():
    from safetensors.torch import load_file

    last = load_file(max(SNAPSHOTS.glob("*.safetensors")))
    whole = open_model("fable").state_dict()
    assert all(torch.equal(value.float(), whole[name]) for name, value in last.items())


def test_text_for_pages_is_small_and_named():
    sources = (DATA / "README.md").read_text()
    for path in DATA.glob("*.txt"):
        assert path.stat().st_size <= 200_000
        assert path.name in sources
    assert {p.name for p in DATA.glob("*.txt")} == {"held-out-prose.txt", "shakespeare.txt"}
