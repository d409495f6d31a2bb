"""Every page, run without a browser: no traceback whatever the link holds, and one sentence for what was wrong."""

import re
from functools import cache
from html import unescape
from itertools import cycle

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import data
from pages.shared.controls import Text
from pages.shared.navigation import LABS
from pages.shared.panel import Panel
from tests.conftest import ROOT

NONSENSE = ["nonsense", "x" * 10_000, "<img src=x onerror=alert(1)>", "nan", "-1", "1e999", "🦊", "../../etc/passwd", "\u202e", ""]


def open_page(slug: str, **query: str) -> AppTest:
    """Run a page inside the frame."""
    app = AppTest.from_file(str(ROOT / "streamlit_app.py"), default_timeout=120)
    app.query_params.update(query)
    if slug != "home":
        app.switch_page(f"pages/{slug}.py")
    return app.run()


def numbers_of(app: AppTest) -> list[tuple[str, str]]:
    """Return the numbers that a page shows: label and value in words."""
    pair = re.compile(r'"label">(.*?)</dt><dd class="value">(.*?)</dd>')
    return [(unescape(label), unescape(value)) for element in app.get("html") for label, value in pair.findall(element.proto.body)]


@pytest.mark.parametrize("slug", ["home", *LABS])
def test_a_page_opens(slug):
    app = open_page(slug)
    assert not app.exception
    assert not app.warning


@cache
def panel_of(lab: str) -> Panel:
    """Return the panel of a page: what its link may hold."""
    found, agree = [], Panel.agree
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Panel, "agree", lambda self: found.append(self) or agree(self))
        open_page(lab)
    return found[-1]


def assert_alive(app: AppTest, what: str) -> None:
    """Assert that a page says at most one thing about its link, and shows no traceback and no visitor's markup."""
    assert not app.exception, what
    assert len(app.warning) <= 1, what
    assert not any(re.search(r"(?<!\\)<img", m.value) for m in app.markdown), what  # a model may repeat it, but never as markup


@pytest.mark.parametrize("lab", LABS)
def test_every_parameter_replaced_by_nonsense(lab):
    free = {name for name, control in panel_of(lab).controls.items() if isinstance(control, Text)}
    for name, value in zip(panel_of(lab).controls, cycle(NONSENSE)):
        app = open_page(lab, **{name: value})
        assert_alive(app, name)
        assert app.warning or value == "" or name in free, name


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("value", NONSENSE, ids=range(len(NONSENSE)))
def test_all_parameters_nonsense_at_once(lab, value):
    assert_alive(open_page(lab, **dict.fromkeys(panel_of(lab).controls, value)), lab)


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("value", NONSENSE, ids=range(len(NONSENSE)))
def test_links_of_nonsense_settle_once(lab, value):
    panel = panel_of(lab)
    for name in panel.controls:
        good, notes = panel.settle({name: value})
        assert panel.settle(good) == (good, [])
        assert all(len(note) < 400 for note in notes)
        panel.params(good)


@pytest.mark.parametrize("lab", [lab for lab in LABS if lab != "lora"])
def test_a_model_that_cannot_be_had_is_one_sentence_and_the_page_goes_on_with_fable(lab):
    app = open_page(lab, model="no-such-model")
    assert not app.exception
    (said,) = [warning.value.replace("\\", "") for warning in app.warning]
    assert "no-such-model" in said
    assert said.endswith("Using 'fable'.")


@pytest.mark.parametrize("lab", LABS)
def test_every_tab_opens_and_every_button_of_it_works(lab):
    known = set()
    for tab in [t.label for t in open_page(lab).tabs]:
        app = open_page(lab, tab=tab)
        assert not app.exception, tab
        assert not app.error, tab
        for label in {b.label for b in app.button if not (b.key or "").startswith("preset")} - known:
            known.add(label)
            pressed = open_page(lab, tab=tab)
            next(b for b in pressed.button if b.label == label).click().run()
            assert not pressed.exception, (tab, label)


@pytest.mark.parametrize("lab", LABS)
def test_presets_and_guesses_are_acceptable_links(lab):
    for preset in data.lab(lab).presets:
        app = open_page(lab, **preset.link)
        assert not app.exception
        elsewhere = preset.link.get("model", "fable") != "fable"  # without the hub: one sentence, and Fable
        assert bool(app.warning) == elsewhere, preset.label
    for guess in data.lab(lab).guesses:
        app = open_page(lab, **guess.setting)
        assert not app.exception
        assert not app.warning, guess.id


@pytest.mark.parametrize("lab", LABS)
def test_the_projector_view_has_no_prose(lab):
    plain, projected = open_page(lab), open_page(lab, present="1")
    assert not projected.exception
    note = data.text(f"notes/{lab}.md")
    assert any(m.value.strip() == note.strip() for m in plain.markdown)
    assert not any(m.value.strip() == note.strip() for m in projected.markdown)


def test_a_head_that_the_model_lacks():
    app = open_page("spectra", layer="4", head="31")
    assert "Layer: '4' is outside 0 to 3" in app.warning[0].value.replace("\\", "")
    assert "Head: '31' is outside 0 to 7" in app.warning[0].value.replace("\\", "")
    assert [s.value for s in app.slider][:2] == [3, 7]


@pytest.mark.parametrize("prompt", ["", "   ", "word " * 80, "🦊" * 399, "قال الثعلب", "<b>bold</b>", "x" * 10_000])
def test_any_prompt_leaves_a_working_page(prompt):
    app = open_page("spectra", tab="Attention", prompt=prompt)
    assert not app.exception
    assert [s.label for s in app.slider][:2] == ["Layer", "Head"]
    said = [e.value for e in app.error]
    assert len(said) <= 1
    if prompt in ("   ", "🦊" * 399):
        assert "prompt" in said[0]


def test_guesses_are_answered_by_a_number_just_computed():
    from engine.ablation import keep_curve, lesions
    from engine.spectra import SpectraParams, chance, head_numbers, head_spectra

    for guess in data.lab("spectra").guesses:
        setting = {k: int(v) if v.isdecimal() else v for k, v in guess.setting.items() if k != "tab"}
        params = SpectraParams(**setting)
        known = head_numbers(params, head_spectra(params), chance(params)) | lesions(params).numbers() | {"keep_90": keep_curve(params).numbers()[0]}
        number = known[guess.decides]
        app = open_page("spectra", tab="Guess")
        pills = next(b for b in app.button_group if b.key == f"guess_{guess.id}")
        pills.select(guess.answer(number.value)).run()
        assert not app.exception
        assert any(f"{number.value:.{number.digits}f}" in s.value and guess.answer(number.value) in s.value for s in app.success)


def test_a_control_that_is_drawn_holds_its_own_value_though_a_link_says_it_twice():
    app = open_page("spectra")
    layer = next(one for one in app.slider if one.label == "Layer")
    layer.set_value(1).run()
    app.query_params["layer"] = ["2", "3"]
    app.run()
    assert not app.exception
    assert next(one for one in app.slider if one.label == "Layer").value == 1
