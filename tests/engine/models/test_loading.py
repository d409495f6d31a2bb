"""Whole models: checked against free memory before they are built, built once, and refused where a page cannot use them."""

import threading

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import device
from engine.errors import InputError, ModelError
from engine.models import loading
from engine.models.attention import head_attention
from engine.models.catalog import CATALOG
from engine.models.configuration import shape_of
from engine.models.loading import check_memory, open_model, open_tokenizer, require_causal, require_unembedding
from engine.models.weights import model_shape
from tests.engine.models.tiny import CASES, IDS, case


@pytest.fixture(autouse=True)
def fresh():
    yield
    loading._build.cache_clear()


def saved(name: str, folder, head: bool = True) -> str:
    case(name).build(head).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("asked", CASES, ids=lambda c: c.name)
def test_every_family_opens_and_attends(asked, tmp_path):
    reference = asked.build()
    reference.save_pretrained(tmp_path)
    model = open_model(str(tmp_path))
    theirs = reference(torch.tensor([IDS]), output_attentions=True).attentions
    A = head_attention(model, IDS, 1, 3)
    torch.testing.assert_close(A.float().cpu(), theirs[1][0, 3], rtol=1e-4, atol=1e-5)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training


def test_base_models_open_without_inventing_an_output(tmp_path):
    model = open_model(saved("qwen3", tmp_path, head=False))
    assert model.get_output_embeddings() is None


def test_one_model_for_all_who_ask(tmp_path):
    path, found = saved("llama", tmp_path), []
    threads = [threading.Thread(target=lambda: found.append(open_model(path))) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len({id(model) for model in found}) == 1
    assert len(found) == 4


def test_threads_stop_at_their_own_layer(tmp_path):
    model, answers = open_model(saved("llama", tmp_path)), {}

    def ask(layer, head):
        answers[layer, head] = head_attention(model, IDS, layer, head)

    alone = {(layer, head): head_attention(model, IDS, layer, head) for layer in range(2) for head in range(4)}
    threads = [threading.Thread(target=ask, args=where) for where in alone]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(torch.equal(answers[where], A) for where, A in alone.items())


def test_memory_is_checked_before_anything_is_built(tmp_path, monkeypatch):
    path = saved("llama", tmp_path)
    monkeypatch.setattr(loading, "free_memory", lambda of: 10_000)
    monkeypatch.setattr(loading, "_from_files", lambda *arguments: pytest.fail("the model was built"))
    with pytest.raises(ModelError, match=r"needs about 0\.0 MB of memory, 0\.0 MB is free; smaller: none"):
        open_model(path)


def test_what_does_not_fit_names_what_does(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "checkpoint_folder", lambda model: tmp_path)
    monkeypatch.setattr(loading, "parameter_count", lambda folder: 600_000_000)
    with pytest.raises(ModelError, match=r"qwen needs about 2\.4 GB of memory, 1\.1 GB is free; smaller: gemma-3-270m, pythia-160m, smollm2-135m\."):
        check_memory("qwen", {"memory": 1_100_000_000})
    with pytest.raises(ModelError, match=r"of GPU memory, 20\.0 MB is free; smaller: fable\."):
        check_memory("qwen", {"memory": None, "GPU memory": 20_000_000})
    check_memory("qwen", {"memory": 2_400_000_000, "GPU memory": None})
    assert CATALOG["gemma-3-270m"].parameters * loading.BYTES < 1_100_000_000 < CATALOG["qwen2.5-0.5b"].parameters * loading.BYTES


def test_free_memory_is_what_the_system_and_the_control_group_leave(tmp_path, monkeypatch):
    for name, text in {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 5\ninactive_file 50\n"}.items():
        (tmp_path / name).write_text(text)
    assert device._left_in_group(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert device._left_in_group(tmp_path) is None
    cpu = device.Device("cpu", "")
    monkeypatch.setattr(device, "_available", lambda: 500)
    monkeypatch.setattr(device, "_left_in_group", lambda: 350)
    assert device.free_memory(cpu) == 350
    monkeypatch.setattr(device, "_left_in_group", lambda: None)
    assert device.free_memory(cpu) == 500
    monkeypatch.setattr(device, "_available", lambda: None)
    assert device.free_memory(cpu) is None


@pytest.mark.parametrize("lost", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"])
def test_weights_are_never_invented(lost, tmp_path):
    path = saved("llama", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[lost]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"lacks 1 of its weights, such as {lost}"):
        open_model(path)


def test_a_matrix_of_another_size_is_one_sentence(tmp_path):
    path = saved("llama", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 24)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="cannot be built by transformers") as refused:
        open_model(path)
    assert "\n" not in str(refused.value)


def test_an_encoder_has_no_causal_scores_and_no_tokens(tmp_path):
    shape = model_shape(saved("bert", tmp_path))
    with pytest.raises(
        ModelError, match="bert is an encoder, in which every token sees all others: the copying score needs a model that reads left to right"
    ):
        require_causal(shape, "the copying score")
    with pytest.raises(ModelError, match=r"This bert checkpoint has no unembedding, .*: the list of top tokens needs one"):
        require_unembedding(shape, "the list of top tokens")
    decoder = shape_of(case("llama").build().config.to_dict())
    require_causal(decoder, "anything")
    require_unembedding(decoder, "anything")


def test_no_such_head(tmp_path):
    model = open_model(saved("llama", tmp_path))
    for layer, head in ((2, 0), (0, 4), (-1, 0), (0, -1)):
        with pytest.raises(InputError, match=f"Layer {layer}, head {head}: this model has layers 0 to 1 and heads 0 to 3"):
            head_attention(model, IDS, layer, head)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_prompt_longer_than_the_learned_positions(name, tmp_path):
    model = open_model(saved(name, tmp_path))
    assert head_attention(model, [3] * 32, 1, 0).shape == (32, 32)
    for ids in ([], [3] * 33):
        with pytest.raises(InputError, match=f"The prompt has {len(ids)} tokens; this model takes 1 to 32"):
            head_attention(model, ids, 1, 0)


def test_a_tokenizer_that_is_missing_or_damaged(tmp_path):
    path = saved("llama", tmp_path)
    with pytest.raises(ModelError, match=r"has no tokenizer.json, so a prompt cannot be read"):
        open_tokenizer(path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"The tokenizer of .* cannot be read"):
        open_tokenizer(path)
