"""The table of families, proven by identities on tiny random models, read through the files that they were saved to.

First half: the model's own attention weights from W_Q, W_K, biases, norms and rotation. Second half: its attention output
from those weights and sum_h A_h x (W_O^h W_V^h)^T. Either half alone lets some mistakes pass; the last tests show which.
"""

import gc
import json
import mmap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.models.attention import (
    attention_weights,
    cos_sin,
    down_input,
    down_weight,
    head_attention,
    head_queries_and_keys,
    make_stoppable,
    rotate_halves,
    tensors_of,
)
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES, rotation_of
from engine.models.files import read_json
from engine.models.weights import layer_heads, model_shape, read_embeddings, read_layers
from tests.engine.models.tiny import CASES, IDS, case

TOLERANCE = 3e-5


@pytest.fixture(scope="module", params=CASES, ids=lambda c: c.name)
def observed(request, tmp_path_factory):
    return observe(request.param, tmp_path_factory.mktemp("model"))


def observe(asked, folder, head: bool = True) -> dict:
    """Save a tiny model, and record what each attention layer receives, attends to and returns on a prompt."""
    model = asked.build(head)
    model.save_pretrained(folder)
    shape = shape_of(model.config.to_dict())
    family, seen = FAMILIES[shape.family], {"blocks": [], "inputs": [], "outputs": []}
    hooks = []
    for layer in range(shape.n_layers):
        block = model.base_model.get_submodule(family.block.format(layer=layer).rstrip("."))
        hooks.append(block.register_forward_pre_hook(lambda m, a, k: seen["blocks"].append((a or (k["hidden_states"],))[0][0]), with_kwargs=True))
        for name, place in ((family.qkv[0], "inputs"), (family.output, "outputs")):
            keep = seen[place]
            pick = (lambda a, o: a[0]) if place == "inputs" else (lambda a, o: o)
            hook = lambda m, a, o, keep=keep, pick=pick: keep.append(pick(a, o))  # noqa: E731
            hooks.append(block.get_submodule(name).register_forward_hook(hook))
    attentions = model(torch.tensor([IDS]), output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    recorded = {name: [tensor.view(len(IDS), -1) for tensor in tensors] for name, tensors in seen.items()}
    return {"model": model, "folder": str(folder), "attentions": [a[0] for a in attentions], **recorded}


def weights_of(shape, heads, layer: int, x) -> torch.Tensor:
    """Return A (n_heads, tokens, tokens) from the table alone: nothing of the live model is used."""
    rotation, A = rotation_of(shape, layer), []
    for head in range(shape.n_heads):
        q, k = (v.double() for v in head_queries_and_keys(shape, heads, head, x))
        if rotation is not None:
            q, k = (rotate_halves(v, *cos_sin(rotation, torch.arange(len(x)))) for v in (q, k))
        A.append(attention_weights(shape, layer, q, k))
    return torch.stack(A)


def output_of(shape, heads, A, x) -> torch.Tensor:
    """Return sum_h A_h x (W_O^h W_V^h)^T and the biases: W_O^h b_V^h, as rows of A sum to 1, and b_O."""
    total = torch.zeros(len(x), shape.d_model, dtype=torch.float64)
    for head in range(shape.n_heads):
        group = head // shape.group_size
        W_O, W_V = heads.W_O[head].double(), heads.W_V[group].double()
        total += A[head].double() @ x.double() @ (W_O @ W_V).T
        total += 0 if heads.b_V is None else W_O @ heads.b_V[group].double()
    return total if heads.b_O is None else total + heads.b_O


def error(mine, theirs) -> float:
    return ((mine - theirs).abs().max() / theirs.abs().max()).item()


def test_attention_weights_from_the_table(observed):
    shape = model_shape(observed["folder"])
    for layer, heads in enumerate(read_layers(observed["folder"])):
        assert error(weights_of(shape, heads, layer, observed["inputs"][layer]), observed["attentions"][layer]) < TOLERANCE


def test_attention_output_from_the_table(observed):
    shape = model_shape(observed["folder"])
    for layer, heads in enumerate(read_layers(observed["folder"])):
        x = observed["inputs"][layer]
        assert error(output_of(shape, heads, weights_of(shape, heads, layer, x), x), observed["outputs"][layer]) < TOLERANCE


def test_gain_and_shift_make_the_attention_input(observed):
    shape = model_shape(observed["folder"])
    for layer, heads in enumerate(read_layers(observed["folder"])):
        residual = observed["blocks"][layer].double()
        if heads.gain is None:
            assert shape.family == "bert"
            expected = residual
        else:
            centred = residual if heads.shift is None else residual - residual.mean(-1, keepdim=True)
            expected = heads.gain * centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + shape.norm_eps)
            expected = expected if heads.shift is None else expected + heads.shift
        assert error(expected, observed["inputs"][layer]) < TOLERANCE


def test_one_head_on_a_stopped_forward_pass(observed):
    model, shape = make_stoppable(observed["model"]), model_shape(observed["folder"])
    for layer in range(shape.n_layers):
        for head in range(shape.n_heads):
            A = head_attention(model, IDS, layer, head)
            assert error(A, observed["attentions"][layer][head]) < TOLERANCE
            assert (A.sum(-1) - 1).abs().max() < 1e-12


def test_w_down_and_what_it_reads_on_a_stopped_forward_pass(observed):
    model, shape = make_stoppable(observed["model"]), model_shape(observed["folder"])
    for layer in range(shape.n_layers):
        family, seen = FAMILIES[shape.family], []
        module = model.base_model.get_submodule(family.block.format(layer=layer) + family.down)
        hook = module.register_forward_hook(lambda m, args, output, seen=seen: seen.append(output[0]))
        model(torch.tensor([IDS]))
        hook.remove()
        mine = down_input(model, IDS, layer) @ down_weight(model, layer).T
        mine = mine if module.bias is None else mine + module.bias
        assert mine.shape == (len(IDS), shape.d_model)
        assert error(mine, seen[0].view(mine.shape)) < TOLERANCE


def test_live_model_and_file_read_the_same(observed):
    shape = model_shape(observed["folder"])
    named = read_json(Path(observed["folder"]) / "config.json")["architectures"]
    assert shape == shape_of(observed["model"].config.to_dict() | {"architectures": named})
    for layer, stored in enumerate(read_layers(observed["folder"])):
        live = layer_heads(shape, tensors_of(observed["model"]), layer)
        for name, tensor in vars(stored).items():
            assert (tensor is None) == (getattr(live, name) is None), name
            assert tensor is None or torch.equal(tensor, getattr(live, name)), name


def test_embeddings(observed):
    W_E, W_U = read_embeddings(observed["folder"])
    model, shape = observed["model"], model_shape(observed["folder"])
    assert torch.equal(W_E, model.get_input_embeddings().weight)
    if shape.family == "bert":
        assert W_U is None
    else:
        assert torch.equal(W_U, model.get_output_embeddings().weight)
        assert shape.tied == torch.equal(W_E, W_U)
    ids = torch.tensor([IDS])
    stream = model.base_model(ids, output_hidden_states=True).hidden_states[0][0]
    if not shape.learned_positions:
        assert error(W_E[IDS] * shape.embedding_scale, stream) < TOLERANCE


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "llama", "gemma3_text", "bert"])
def test_a_checkpoint_without_the_token_output_reads_the_same(name, tmp_path):
    """Base models are saved without the prefix ``model.`` and the like."""
    model = case(name).build(head=False)
    model.save_pretrained(tmp_path)
    shape = model_shape(str(tmp_path))
    assert not shape.has_unembedding
    assert read_embeddings(str(tmp_path))[1] is None
    for layer, heads in enumerate(read_layers(str(tmp_path))):
        assert torch.equal(heads.W_Q, layer_heads(shape, tensors_of(model), layer).W_Q)


def test_shards_read_as_one_file(tmp_path):
    model = case("llama grouped wide biased").build()
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="12KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    for one, many in zip(read_layers(str(tmp_path / "one")), read_layers(str(tmp_path / "many")), strict=True):
        assert all(a is None or torch.equal(a, getattr(many, name)) for name, a in vars(one).items())


def test_only_the_layers_asked_for(tmp_path):
    case("qwen3").build().save_pretrained(tmp_path)
    both = list(read_layers(str(tmp_path)))
    (last,) = read_layers(str(tmp_path), [1])
    assert torch.equal(last.W_K, both[1].W_K)
    assert not torch.equal(last.W_K, both[0].W_K)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident memory as Linux reports it")
def test_memory_is_that_of_one_layer(tmp_path):
    d_model, n_layers = 512, 8
    sizes = {"hidden_size": d_model, "num_attention_heads": 8, "num_hidden_layers": n_layers, "vocab_size": 8, "max_position_embeddings": 8}
    tensors = {}
    for layer in range(n_layers):
        tensors[f"layers.{layer}.input_layernorm.weight"] = torch.ones(d_model)
        tensors |= {f"layers.{layer}.self_attn.{name}_proj.weight": torch.ones(d_model, d_model) for name in "qkvo"}
    save_file(tensors, tmp_path / "model.safetensors")
    del tensors
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE  # noqa: E731
    next(read_layers(str(tmp_path)))  # what is allocated once is no layer's
    gc.collect()
    before, peak = resident(), 0
    for _ in read_layers(str(tmp_path)):
        peak = max(peak, resident() - before)
    one = 4 * 4 * d_model**2
    assert peak < 3 * one, f"{peak / one:.1f} layers of {n_layers}"


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    found = observe(case("llama grouped wide biased"), tmp_path_factory.mktemp("grouped"))
    return found, model_shape(found["folder"]), list(read_layers(found["folder"]))


def both_errors(grouped, heads, A=None) -> tuple[float, float]:
    observed, shape, _ = grouped
    x, mine = observed["inputs"][0], weights_of(shape, heads, 0, observed["inputs"][0])
    output = output_of(shape, heads, mine if A is None else A, x)
    return error(mine, observed["attentions"][0]), error(output, observed["outputs"][0])


def test_the_identities_catch_swapped_queries_and_keys(grouped):
    """The output alone would not: with the model's own weights it holds whatever W_Q and W_K are."""
    observed, shape, layers = grouped
    heads = layers[0]
    swapped = replace(heads, W_Q=heads.W_K.repeat_interleave(shape.group_size, 0), W_K=heads.W_Q[:: shape.group_size])
    first, second = both_errors(grouped, swapped)
    assert first > 1e-2
    assert second > 1e-2
    assert both_errors(grouped, swapped, A=observed["attentions"][0])[1] < TOLERANCE


def test_the_identities_catch_a_wrong_key_value_group(grouped):
    """A wrong group of keys shows in the weights; of values, in the output alone."""
    heads = grouped[2][0]
    assert max(both_errors(grouped, heads)) < TOLERANCE
    assert both_errors(grouped, replace(heads, W_K=heads.W_K.flip(0)))[0] > 1e-2
    first, second = both_errors(grouped, replace(heads, W_V=heads.W_V.flip(0)))
    assert first < TOLERANCE
    assert second > 1e-2


@pytest.mark.parametrize("what", ["b_Q", "b_K", "q_gain", "k_gain"])
def test_the_identities_catch_what_is_left_out(what, tmp_path):
    found = observe(case("qwen3"), tmp_path)
    shape, heads = model_shape(found["folder"]), next(read_layers(found["folder"]))
    without = replace(heads, **{what: torch.ones_like(getattr(heads, what)) if "gain" in what else None})
    assert error(weights_of(shape, without, 0, found["inputs"][0]), found["attentions"][0]) > 1e-2
