"""Every law in one batch against transformers' own forward one law at a time, and the shared model left as it was."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.errors import Abandoned, InputError, LabError
from engine.models.loading import open_model
from engine.models.rope_config import export
from engine.models.turning import losses, own_rotation
from engine.models.weights import model_shape
from engine.rope import RopeParams
from engine.rope_laws import LAWS
from engine.rope_measure import POINTS, WINDOWS, _rotations, induction, loss_numbers, loss_rows, losses_by_position, window_ids, window_losses
from tests.conftest import FABLE

LISTS = {"short_factor": ",".join(["1"] * 16), "long_factor": ",".join(f"{1 + i / 5}" for i in range(16))}
TOLERANCE = 2e-4
"""Nats: transformers forms its angles in float32, this lab in float64; at position 511 they differ by up to 3e-5 radians."""


@pytest.fixture(scope="module")
def measured():
    """Fable up to 2x, under every law, LongRoPE with lists included."""
    return window_losses(RopeParams(reach=2, **LISTS), 0)


@pytest.mark.parametrize("scheme", LAWS)
def test_one_batch_agrees_with_transformers_one_at_a_time(scheme, measured, tmp_path):
    """The same windows through a model that transformers builds from the exported ``rope_parameters``."""
    from transformers import AutoModelForCausalLM

    (tmp_path / "model.safetensors").symlink_to(FABLE / "model.safetensors")
    said = export(RopeParams(scheme=scheme, **LISTS))
    (tmp_path / "config.json").write_text(json.dumps(json.loads((FABLE / "config.json").read_text()) | said))
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = window_ids("fable", open_model("fable"), 0, 512)[None]
    for where, length in (("at_1x", 256), ("longer", 512)):
        with torch.no_grad():
            logits = model(input_ids=ids[:, :length]).logits.float()
        theirs = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1 : length + 1], reduction="none")
        theirs = theirs.view(1, -1, 256 // POINTS).mean(-1).numpy()
        ours = getattr(measured, where)[measured.schemes.index(scheme)]
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def test_the_laws_differ(measured):
    assert measured.schemes == tuple(LAWS)
    assert len({round(measured.mean(s)[0], 6) for s in LAWS}) == len(LAWS)
    np.testing.assert_allclose(measured.at_1x[measured.schemes.index("dynamic")], measured.at_1x[0], atol=1e-6)  # plain within the trained length


def test_what_is_offered_grows_window_by_window_to_the_whole():
    """Whoever looks while it runs sees the windows read so far, each of another text."""
    params, seen = RopeParams(reach=1), []

    def look(*step):
        pass

    look.keep = seen.append
    whole = losses_by_position(params, look)
    assert [s.longer.shape for s in seen] == [(7, n + 1, POINTS) for n in range(WINDOWS)]
    np.testing.assert_array_equal(whole.longer, seen[-1].longer)
    np.testing.assert_array_equal(whole.longer[:, :2], seen[1].longer)
    assert len({whole.longer[:, n].tobytes() for n in range(WINDOWS)}) == WINDOWS
    assert dict(whole.refused)["longrope"].startswith("LongRoPE has 0 numbers")
    mean, error = whole.mean("none")
    assert mean == pytest.approx(whole.longer[0].mean())
    assert error == pytest.approx(whole.longer[0].mean(-1).std(ddof=1) / np.sqrt(WINDOWS))
    assert whole.curve("none")[0] == pytest.approx(whole.longer[0].mean(0))


def test_what_a_page_reads_off(measured):
    found = loss_numbers(RopeParams(scheme="pi"), measured)
    assert found["price"].value == pytest.approx(measured.at_1x[1].mean() - measured.at_1x[0].mean())
    assert found["loss"].value == pytest.approx(measured.longer[1][:, POINTS:].mean())
    assert loss_numbers(RopeParams(scheme="none"), measured)["rescued"].value == 0


def test_rows_hold_every_curve_and_the_price(measured):
    rows = loss_rows(measured)
    of_pi = [row for row in rows if row[1] == "pi"]
    np.testing.assert_allclose([row[3] for row in of_pi if row[0] == "loss"], measured.curve("pi")[0])
    assert next(row[3] for row in of_pi if row[0] == "price at 1x") == pytest.approx(measured.at_1x[1].mean() - measured.at_1x[0].mean())
    assert len(rows) == len(LAWS) * (2 * POINTS + 3)


def test_an_abandoned_window_stops_between_batches():
    told = []

    def leave(*step):
        told.append(step)
        if len(told) > 1:
            raise Abandoned(step[2])

    with pytest.raises(Abandoned, match="Held-out text under 7 laws, windows of 2,048 tokens"):
        window_losses(RopeParams(reach=8), 1, leave)
    assert told[-1][:2] == (1, WINDOWS)


def test_induction_by_distance():
    result = induction(RopeParams(reach=2))
    assert result.distances == (16, 32, 64, 128, 256)
    plain = result.accuracy[result.schemes.index("none")]
    assert plain[0] > 0.9
    assert plain[-1] < plain[0] - 0.3  # 256 back was never trained
    assert ((result.accuracy >= 0) & (result.accuracy <= 1)).all()
    assert result.tokens == tuple(4 * (n - 1) for n in result.distances)


def test_the_shared_model_is_left_alone():
    """A forward of another thread, while one runs under a law, and one afterwards, give what they gave before."""
    model = open_model("fable")
    ids = torch.arange(1, 400)[None]
    plain = lambda: model(input_ids=ids, use_cache=False).logits  # noqa: E731
    with torch.no_grad():
        before, seen, stop = plain(), [], threading.Event()

        def other():
            with torch.no_grad():
                while not stop.is_set() or not seen:
                    seen.append(torch.equal(plain(), before))

        thread = threading.Thread(target=other)
        thread.start()
        own = own_rotation(model_shape("fable"))
        made, _ = _rotations(RopeParams(scheme="pi"), 256, 512)
        turned = losses(model, ids.expand(2, -1), [own, made["pi"]])
        stop.set()
        thread.join()
        assert all(seen)
        assert torch.equal(plain(), before)
    assert np.abs(turned[0] - turned[1]).max() > 0.1


def test_its_own_rotation_is_the_models_own_forward():
    model, ids = open_model("fable"), torch.arange(1, 200)[None]
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    theirs = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none").numpy()
    np.testing.assert_allclose(losses(model, ids, [own_rotation(model_shape("fable"))])[0], theirs, atol=TOLERANCE)


def test_what_cannot_be_measured_is_refused(broken):
    with pytest.raises(LabError, match="does not rotate"):
        own_rotation(replace(model_shape("fable"), rotations=(None,) * 4))
    with pytest.raises(LabError, match="no tokenizer"):
        window_losses(RopeParams(model=str(broken()), reach=1), 0)
    with pytest.raises(LabError, match="stretched by a law of its own"):
        own_rotation(model_shape(str(broken(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}))))
    with pytest.raises(InputError, match="at most 8192"):
        window_losses(RopeParams(model=str(broken(max_position_embeddings=4096)), reach=4), 0)
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    with pytest.raises(LabError, match="stretched by a law of its own"):
        window_losses(RopeParams(model=str(broken(rope_parameters=yarn)), reach=1), 0)


def test_transformers_keeps_the_base_of_the_longest_prompt():
    """As the note says: dynamic NTK there has a state; only a prompt shorter than the trained length resets it."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(hidden_size=32, num_attention_heads=1, head_dim=32, **export(RopeParams(scheme="dynamic")))

    def after(*lengths):
        rotary = LlamaRotaryEmbedding(config)
        for length in lengths:
            rotary(torch.zeros(1, 1), torch.arange(length)[None])
        return rotary.inv_freq

    assert torch.equal(after(1024, 300), after(1024))
    assert not torch.equal(after(1024, 300), after(300))
    assert torch.equal(after(1024, 100), after(100))
