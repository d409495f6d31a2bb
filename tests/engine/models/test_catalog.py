"""What may be asked for, where, and what tells one checkpoint from another."""

import os

import pytest

from engine.errors import ModelError
from engine.models import catalog
from engine.models.catalog import CATALOG, checkpoint_folder, find, identity, offered, sha256
from engine.models.families import FAMILIES
from engine.settings import ALLOWED, HOSTED
from tests.engine.models.stub_hub import Repository, commit


@pytest.fixture
def folder(tmp_path, tiny_files):
    for name, content in tiny_files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def hosted(monkeypatch):
    monkeypatch.setenv(HOSTED, "1")
    monkeypatch.delenv(ALLOWED, raising=False)
    return monkeypatch


def test_entries_say_what_is_known_of_them():
    assert next(iter(CATALOG)) == "fable"
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert entry.family in FAMILIES
        assert entry.licence
        assert (entry.hub_id is None) != (entry.folder is None)
        assert entry.verified == (entry.hub_id is None), "the hub could not be reached when these were written"
        assert ("unverified" in entry.label) == (not entry.verified)
        assert ("gated" in entry.label) == entry.gated
    assert {name for name, entry in CATALOG.items() if entry.gated} == {"llama-3.2-1b", "gemma-3-270m"}


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("gtp2", "gpt2"),
        ("fabel", "fable"),
        ("Qwen3-0.6B", "qwen3-0.6b"),
        ("pythia70m", "pythia-70m"),
        ("smolm2-135m", "smollm2-135m"),
        ("GPT2", "gpt2"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one(asked, near):
    with pytest.raises(ModelError, match=rf"No model '{asked}': .* did you mean {near}\?"):
        find(asked)


@pytest.mark.parametrize("asked", ["", "xyzzy", "a\0b", "x" * 2000, "x" * 500, "~nobody-here", " ", "/nowhere/at/all", "../..//x", 7, "a/b\n"])
def test_what_is_no_model_is_refused_in_one_sentence(asked):
    with pytest.raises(ModelError, match=r"No model .*known names are fable, gpt2") as refused:
        find(asked)
    assert len(str(refused.value)) < 400


def test_names_ids_and_folders_are_found(folder):
    assert find("gpt2") == CATALOG["gpt2"].hub_id
    assert find("eleutherai/PYTHIA-70m") == "EleutherAI/pythia-70m"
    assert find("someone/something@v1") == "someone/something@v1"
    assert find(str(folder)) == folder
    assert checkpoint_folder(str(folder)) == folder


def test_a_bundled_model_that_is_not_there(tmp_path, monkeypatch):
    entry = catalog.CatalogEntry("gone", "Gone", "MIT", "llama", 1, folder=tmp_path / "gone")
    monkeypatch.setitem(CATALOG, "gone", entry)
    with pytest.raises(ModelError, match=r"The files of 'gone' are not here .* restore"):
        find("gone")


def test_a_hosted_page_offers_fable_only_unless_told_otherwise(hosted, folder):
    assert list(offered()) == ["fable"]
    for asked in ("gpt2", "openai-community/gpt2", "someone/else", str(folder), ".", "/", "~", "fable/../..", "FABLE"):
        with pytest.raises(ModelError, match=r"This page does not offer the model .*; it offers fable\."):
            find(asked)


def test_a_hosted_page_offers_what_the_operator_lists(hosted, folder):
    hosted.setenv(ALLOWED, f" gpt2, EleutherAI/pythia-70m ,someone/else@v1,, {folder}")
    assert list(offered()) == ["fable", "gpt2", "pythia-70m"]
    assert find("gpt2") == find("openai-community/gpt2") == CATALOG["gpt2"].hub_id
    assert find("pythia-70m") == "EleutherAI/pythia-70m"
    assert find("someone/else@v1") == "someone/else@v1"
    for asked in ("someone/else", "someone/else@v2", "qwen3-0.6b", str(folder)):
        with pytest.raises(ModelError, match="does not offer"):
            find(asked)


def test_identity_changes_with_the_files(folder):
    before = identity(str(folder))
    assert before == identity(str(folder))
    weights = folder / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    touched = identity(str(folder))
    weights.write_bytes(weights.read_bytes() + b" ")
    assert len({before, touched, identity(str(folder))}) == 3


def test_identity_of_a_hub_model_is_id_and_commit(hub, tiny_files):
    hub.repositories["openai-community/gpt2"] = Repository(tiny_files)
    assert identity("gpt2") == ("openai-community/gpt2", commit("openai-community/gpt2"))


def test_sha256_follows_the_weights(folder, tiny_files):
    import hashlib

    assert sha256(str(folder)) == hashlib.sha256(tiny_files["model.safetensors"]).hexdigest()
    content = tiny_files["model.safetensors"]
    (folder / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert sha256(str(folder)) != hashlib.sha256(content).hexdigest()
