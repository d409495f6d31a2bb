"""Damaged or foreign checkpoints: one sentence each, naming what was found and what to do."""

import json
import re
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import InputError, ModelError
from engine.models.files import INDEX, SINGLE, open_tensors, parameter_count, weight_paths
from engine.models.weights import model_shape, read_embeddings, read_layers
from tests.engine.models.tiny import CASES, case

K_PROJ = "model.layers.1.self_attn.k_proj.weight"


@pytest.fixture
def folder(tmp_path, tiny_files):
    for name, content in tiny_files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def shards(tmp_path):
    case("llama grouped wide biased").build().save_pretrained(tmp_path, max_shard_size="12KB")
    return tmp_path


def refused(folder, said: str, kind=ModelError, layers=None) -> None:
    with pytest.raises(kind, match=said) as caught:
        list(read_layers(str(folder), layers))
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")


def change(folder, name: str, edit) -> None:
    """Write the checkpoint again with one tensor edited, or left out if the edit returns None."""
    tensors = load_file(folder / SINGLE)
    edited = edit(tensors.pop(name).clone())
    save_file(tensors if edited is None else {**tensors, name: edited}, folder / SINGLE, metadata={"format": "pt"})


def configure(folder, **settings) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


def test_an_intact_checkpoint_is_read(folder):
    assert len(list(read_layers(str(folder)))) == 2


def test_folder_without_config(folder):
    (folder / "config.json").unlink()
    refused(folder, "is a folder without config.json")


@pytest.mark.parametrize(
    ("text", "said"), [("{", "cannot be read"), ("[]", "holds no object"), ("\udcff", "cannot be read"), ("[" * 10**5, "cannot be read")]
)
def test_config_that_is_no_object(folder, text, said):
    (folder / "config.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    refused(folder, f"config.json of .* {said}")


def test_pickles_only(folder):
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    refused(folder, r"has only pickled weights \(pytorch_model.bin\), which can run code and are not opened")


def test_no_weights(folder):
    (folder / SINGLE).unlink()
    refused(folder, "has no model.safetensors")


@pytest.mark.parametrize("keep", [0, 4, 200, -1, -5000])
def test_truncated_file(folder, keep):
    content = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(content[:keep])
    refused(folder, "model.safetensors of .* is damaged or cut short .*: download it again")


def test_header_that_lies(folder):
    content = (folder / SINGLE).read_bytes()
    for header in (struct.pack("<Q", 2**63), struct.pack("<Q", 5)):
        (folder / SINGLE).write_bytes(header + content[8:])
        refused(folder, "is damaged or cut short")


def test_missing_shard(shards):
    lost = sorted(shards.glob("*.safetensors"))[1]
    lost.unlink()
    refused(shards, f"lacks 1 of its .* weight files, such as {re.escape(lost.name)}: download it again")


def test_missing_index(shards):
    (shards / INDEX).unlink()
    refused(shards, f"has weight files but no {re.escape(INDEX)}")


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": "../other.safetensors"}}, {"weight_map": {"a": 3}}])
def test_index_that_points_nowhere(shards, index):
    (shards / INDEX).write_text(json.dumps(index))
    refused(shards, "has no weight_map from tensor names to file names")


def test_missing_tensor(folder):
    change(folder, K_PROJ, lambda W: None)
    refused(folder, "no tensor layers.1.self_attn.k_proj.weight")


def test_wrong_shape(folder):
    change(folder, K_PROJ, lambda W: W[:-1].contiguous())
    refused(folder, r"layers.1.self_attn.k_proj.weight has shape \(19, 24\); config.json says \(20, 24\)")


def test_wrong_vocabulary(folder):
    configure(folder, vocab_size=41)
    with pytest.raises(ModelError, match=r"embed_tokens.weight has shape \(40, 24\); config.json says \(41, 24\)"):
        read_embeddings(str(folder))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_in_one_layer(folder, value):
    change(folder, K_PROJ, lambda W: W.index_put_((torch.tensor(3), torch.tensor(5)), torch.tensor(value)))
    refused(folder, "W_K of layer 1 holds NaN or infinite values")
    assert len(list(read_layers(str(folder), [0]))) == 1, "the other layer can be read"


def test_not_a_number_in_a_gain(folder):
    change(folder, "model.layers.0.input_layernorm.weight", lambda w: w * float("nan"))
    refused(folder, "gain of layer 0 holds NaN")


def test_whole_numbers_instead_of_weights(folder):
    change(folder, K_PROJ, lambda W: W.to(torch.int8))
    refused(folder, "k_proj.weight is stored as int8; weights of 16, 32 or 64 bits")


def test_family_and_heads_of_another_model(folder):
    configure(folder, model_type="falcon")
    refused(folder, "'falcon' is not understood")
    configure(folder, model_type="llama", num_key_value_heads=3)
    refused(folder, "4 query heads cannot be shared evenly by 3")
    configure(folder, num_key_value_heads=4)
    refused(folder, r"k_proj.weight has shape \(20, 24\); config.json says \(40, 24\)")


@pytest.mark.parametrize("layer", [-1, 2, 10**9])
def test_layer_that_is_not_there(folder, layer):
    refused(folder, f"Layer {layer}: this model has layers 0 to 1", InputError, [layer])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precisions_are_kept_as_stored(folder, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / SINGLE).items()}
    save_file(tensors, folder / SINGLE)
    assert {heads.W_Q.dtype for heads in read_layers(str(folder))} == {dtype}


def test_a_gain_of_one_plus_w_is_added_in_float32(tmp_path):
    model = case("gemma").build().to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    heads = next(read_layers(str(tmp_path)))
    stored = model.model.layers[0].input_layernorm.weight
    assert torch.equal(heads.gain, 1 + stored.float())
    assert not torch.equal(heads.gain, (1 + stored).float())


def test_only_the_tensors_asked_for_are_read(shards):
    """A damaged shard that holds nothing of a layer does not keep that layer from being read."""
    where = json.loads((shards / INDEX).read_text())["weight_map"]
    first = {file for name, file in where.items() if ".layers.0." in name and ("self_attn" in name or "input_layernorm" in name)}
    damaged = next(path for path in weight_paths(shards) if path.name not in first)
    damaged.write_bytes(b"")
    assert len(list(read_layers(str(shards), [0]))) == 1
    refused(shards, "is damaged or cut short")


def test_weights_are_counted_from_headers(folder, shards):
    model = case("llama grouped wide biased").build()
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert parameter_count(folder) == counted
    with open_tensors(folder, "model.") as get:
        assert get("norm.weight") is not None
        assert get("nothing") is None


@pytest.mark.parametrize("asked", CASES, ids=lambda c: c.name)
def test_the_command_line_reads_every_family(asked, tmp_path, capsys):
    from engine.cli import main

    asked.build().save_pretrained(tmp_path)
    shape = model_shape(str(tmp_path))
    assert main(["spectra", "--model", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert (result["family"], result["n_kv_heads"], result["d_head"]) == (shape.family, shape.n_kv_heads, shape.d_head)
    heads = next(read_layers(str(tmp_path)))
    expected = torch.linalg.svdvals(heads.W_O[3].double() @ heads.W_V[3 // shape.group_size].double())[0].item()
    assert result["ov_singular_values"][0][3][0] == pytest.approx(expected, rel=1e-6)


def test_the_command_line_says_one_sentence(folder, capsys):
    from engine.cli import main

    change(folder, K_PROJ, lambda W: W * float("nan"))
    assert main(["spectra", "--model", str(folder)]) == 2
    assert capsys.readouterr().err.strip() == "W_K of layer 1 holds NaN or infinite values; the checkpoint is damaged."
