"""The norms page: every tab opens at every kind of input, what is undefined is one sentence, guesses are computed."""

import pytest

from engine.depth import depth_study
from engine.norms import NormsParams, block, block_numbers
from pages.parts.norms import TABS
from pages.shared import data
from tests.pages.test_pages import numbers_of, open_page

INPUTS = [
    {},
    {"norm": "batch", "values": "real"},
    {"norm": "rms", "features": "1"},
    {"values": "constant"},
    {"features": "2", "eps": "0"},
    {"norm": "batch", "eps": "0"},
]


@pytest.mark.parametrize("tab", [name for name in TABS if name != "A real stream"])
@pytest.mark.parametrize("link", INPUTS, ids=range(len(INPUTS)))
def test_every_tab_opens(tab, link):
    app = open_page("norms", tab=tab, **link)
    assert not app.exception
    assert not app.warning
    if link.get("features") != "1":
        assert not app.error


def test_the_stream_of_a_real_model_opens():
    app = open_page("norms", tab="A real stream")
    assert not app.exception
    assert not app.error
    assert "More with LayerNorm, same gain" in dict(numbers_of(app))


def test_an_empty_prompt_leaves_the_losses():
    app = open_page("norms", tab="A real stream", prompt="   ")
    assert not app.exception
    assert "empty" in app.error[0].value
    assert "More without the gains" in dict(numbers_of(app))


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"norm": "batch", "batch": "1", "tokens": "1"}, "torch refuses"),
        ({"values": "constant", "eps": "0"}, "0 / 0"),
        ({"features": "1", "eps": "0"}, "0 / 0"),
    ],
)
def test_what_is_undefined_is_one_sentence_and_a_working_page(link, said):
    app = open_page("norms", **link)
    assert not app.exception
    assert all(said in e.value.replace("\\", "") for e in app.error)
    assert app.error
    assert "Batch size" in [s.label for s in app.slider]


@pytest.mark.parametrize(
    "link",
    [
        {"norm": "batch", "batch": "1", "tokens": "1"},
        {"values": "constant", "eps": "0"},
        {"tab": "A real stream", "prompt": " "},
    ],
    ids=range(3),
)
def test_a_refusal_is_said_once_and_leaves_no_heading_alone(link):
    app = open_page("norms", **link)
    assert len(app.error) == 1
    headings = [m.value for m in app.markdown if m.value.startswith("####")]
    assert "#### The gain folded into the next weights" not in headings


def test_the_chosen_norm_is_shown_where_the_other_is_undefined():
    app = open_page("norms", norm="rms", values="constant", eps="0", tab="Jacobian")
    assert not app.error
    assert "LayerNorm has no Jacobian" in app.info[0].value
    assert any(label.startswith("RMSNorm: directions lost") for label, _ in numbers_of(app))


def test_evaluation_can_be_switched_on_where_training_is_refused():
    link = {"norm": "batch", "batch": "1", "tokens": "1"}
    assert open_page("norms", **link).error
    app = open_page("norms", **link, running="true")
    assert not app.error
    assert next(t for t in app.toggle if t.key == "running").value


def test_the_average_tab_follows_the_values():
    shown = [numbers_of(open_page("norms", values=values)) for values in ("gaussian", "heavy")]
    seen = [next(value for label, value in one if "batch of 256" in label) for one in shown]
    assert seen[0] != seen[1]


def test_guesses_are_answered_by_a_number_just_computed():
    kinds = {"features": int, "batch": int, "tokens": int, "depth": int, "outlier": float, "residual": lambda v: v == "true"}
    for guess in data.lab("norms").guesses:
        params = NormsParams(**{k: kinds.get(k, str)(v) for k, v in guess.setting.items()})
        number = (depth_study(params).numbers() if guess.decides == "difference" else block_numbers(params, block(params)))[guess.decides]
        app = open_page("norms", tab="Guess")
        next(b for b in app.button_group if b.key == f"guess_{guess.id}").select(guess.answer(number.value)).run()
        assert not app.exception
        assert any(f"{number.value:.{number.digits}f}" in s.value for s in app.success)
