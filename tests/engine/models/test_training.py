"""How Fable is made: seeded batches, a run that can be broken off, snapshots where copying appears."""

import json

import numpy as np
import pytest
import torch

from engine.errors import InputError
from engine.models.training import loop
from engine.models.training.batches import IGNORED, batch
from engine.models.training.export import choose, write_model
from engine.models.training.loop import Recipe
from engine.models.training.text import encode, fit_tokenizer, read_books

SMALL = {"vocab_size": 300, "d_model": 16, "d_ff": 24, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "context": 32, "rows": 4}
SMALL |= {"warmup": 5, "decay": 10, "bfloat16": False}


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    """A folder of two short books, one of them held out."""
    folder = tmp_path_factory.mktemp("books")
    story = "The fox looked up at the grapes and said that they were sour. " * 40
    (folder / "fox.txt").write_text("Title: The Fox\r\n\r\n-------\r\n" + story.replace(". ", ".\r\n"))
    (folder / "heidi.txt").write_text(story)
    (folder / "shakespeare.txt").write_text("Never read in training. " * 50)
    return folder


@pytest.fixture(scope="module")
def tokens(books):
    """The training book as tokens."""
    texts = read_books(books, held_out=False)
    return encode(fit_tokenizer(texts.values(), SMALL["vocab_size"]), texts["fox"])


def test_books_are_split_and_cleaned(books):
    training, held_out = read_books(books, held_out=False), read_books(books, held_out=True)
    assert (list(training), list(held_out)) == (["fox"], ["heidi"])
    assert training["fox"].startswith("The fox")
    assert "\r" not in training["fox"]


def test_an_empty_folder_is_said(tmp_path):
    with pytest.raises(InputError, match="No training text"):
        read_books(tmp_path, held_out=False)


def test_the_tokenizer_gives_back_any_text(books):
    tokenizer = fit_tokenizer(read_books(books, held_out=False).values(), 300)
    for text in ("The fox, again.", "  two  spaces\n\nand lines", "🦊 قال الثعلب"):
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id == 0
        assert tokenizer.decode(ids[1:]) == text


@pytest.mark.parametrize(("repeats", "noisy"), [(4, 4), (8, 2)])
def test_a_batch_holds_what_it_says(repeats, noisy):
    tokens = np.arange(1, 5000)
    ids, labels = batch(tokens, step=3, seed=0, rows=16, context=64, vocab_size=5000, repeats=repeats)
    again, _ = batch(tokens, step=3, seed=0, rows=16, context=64, vocab_size=5000, repeats=repeats)
    other, _ = batch(tokens, step=4, seed=0, rows=16, context=64, vocab_size=5000, repeats=repeats)
    assert np.array_equal(ids, again)
    assert not np.array_equal(ids, other)
    assert (ids[:, 0] == 0).all()
    counted = labels != IGNORED
    assert np.array_equal(ids[counted], labels[counted])
    prose = (np.diff(ids[:, 1:], axis=1) == 1).all(1)
    assert prose.sum() >= 16 - 2 * noisy
    assert (labels[:, 1] == IGNORED).sum() == noisy
    for row in np.flatnonzero(labels[:, 1] == IGNORED):
        n = int((labels[row, 1:] == IGNORED).sum())
        assert n == 63 or np.array_equal(ids[row, 1 + n :], ids[row, 1 : 64 - n])


def test_a_broken_off_run_ends_where_an_unbroken_one_does(tokens, tmp_path, monkeypatch):
    recipe, one_step = Recipe(steps=30, **SMALL), loop.one_step
    whole = loop.train(recipe, tokens, tokens, tmp_path / "whole")

    def break_off(model, optimizer, recipe, tokens, step, device):
        if step == 27:
            raise KeyboardInterrupt
        return one_step(model, optimizer, recipe, tokens, step, device)

    monkeypatch.setattr(loop, "one_step", break_off)
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, tokens, tokens, tmp_path / "broken")
    monkeypatch.undo()
    resumed = loop.train(recipe, tokens, tokens, tmp_path / "broken")
    log = [json.loads(line) for line in (tmp_path / "broken" / "log.jsonl").read_text().splitlines()]
    assert [r["step"] for r in log] == [0, 25, 30]
    assert log[-1]["held_out"] < log[0]["held_out"] - 1
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_the_learning_rate_warms_up_and_falls_to_zero():
    recipe = Recipe()
    rates = [recipe.rate(step) for step in range(recipe.steps + 1)]
    assert rates[0] == pytest.approx(recipe.learning_rate / recipe.warmup)
    assert max(rates) == recipe.learning_rate
    assert rates[-1] == 0
    assert rates == sorted(rates[:1000]) + sorted(rates[1000:], reverse=True)


def test_snapshots_are_dense_where_copying_appears():
    steps = np.arange(0, 2000, 25)
    copying = 1 / (1 + np.exp(-(steps - 700) / 20))
    chosen = steps[choose(steps, copying, 10)]
    assert chosen[0] == 0
    assert chosen[-1] == steps[-1]
    assert 8 <= len(chosen) <= 10
    assert ((chosen > 600) & (chosen < 800)).sum() >= 4


def test_what_is_shipped_loads_as_it_was(tokens, tmp_path):
    from transformers import AutoModelForCausalLM

    recipe = Recipe(steps=5, **SMALL)
    model = loop.train(recipe, tokens, tokens, tmp_path)
    (tmp_path / "tokenizer").mkdir()
    write_model(tmp_path, recipe, tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    for a, b in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(a.half().float(), b)
