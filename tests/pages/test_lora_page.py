"""The LoRA page: guesses are answered by numbers just computed, who stops keeps what there is, bad settings are mended."""

import threading

import pytest
from streamlit.testing.v1 import AppTest

from engine.lora import LoraParams
from pages.parts.lora import number_of, taken, with_usable_adapter
from pages.shared import data
from tests.pages.test_pages import numbers_of, open_page


@pytest.mark.parametrize("guess", data.lab("lora").guesses, ids=lambda guess: guess.id)
def test_guesses_are_answered_by_a_number_just_computed(guess):
    params = LoraParams(**{k: int(v) if v.isdecimal() else v for k, v in guess.setting.items()})
    number = number_of(params, guess.decides)
    app = open_page("lora", tab="Guess")
    next(b for b in app.button_group if b.key == f"guess_{guess.id}").select(guess.answer(number.value)).run()
    assert not app.exception
    assert any(f"{number.value:.{number.digits}f}" in s.value and guess.answer(number.value) in s.value for s in app.success)


@pytest.mark.parametrize("tab", ["Sweep", "Is it low-rank?", "Shakespeare", "Variants", "Merge and save"])
def test_every_tab_opens(tab):
    app = open_page("lora", tab=tab)
    assert not app.exception
    assert not app.error


def test_what_only_the_engine_can_judge_is_mended():
    for query in ({"start": "orthogonal", "rank": "1"}, {"rank": "3"}, {"fable_ranks": "3"}):
        app = open_page("lora", **query)
        assert not app.exception
        assert len(app.warning) == 1


def test_a_folder_that_holds_no_adapter_is_one_sentence_and_its_name_stays():
    app = open_page("lora", tab="Merge and save", adapter="/nowhere")
    assert not app.exception
    (said,) = [e.value.replace("\\", "") for e in app.error]
    assert said == "'nowhere' is no folder with an adapter_config.json; accepted is a folder that peft wrote."
    assert next(t for t in app.text_input if t.key == "adapter").value == "/nowhere"
    assert any(label.startswith("Rank of the merged") for label, _ in numbers_of(app))


def test_what_is_taken_away_is_what_is_shown_instead():
    shown, said = with_usable_adapter(LoraParams(adapter="/nowhere"))
    assert "'nowhere'" in said
    assert taken(shown, "Merge and save") == taken(LoraParams(), "Merge and save")


GATE = threading.Event()


def slow(params, on_step):
    """Offer one part, then wait until the test opens the gate."""
    on_step.keep("a part")
    GATE.wait(30)
    return "all"


slow.uses = ()


def page():
    import streamlit as st

    from engine.lora import LoraParams
    from pages.shared.compute import follow
    from tests.pages.test_lora_page import slow

    st.text(str(follow(slow, LoraParams())))


def test_who_stops_keeps_what_there_is_and_may_go_on():
    from tests.pages.test_lora_page import GATE as gate  # pytest has this module under another name, with a gate of its own

    gate.clear()
    app = AppTest.from_function(page, default_timeout=30).run()
    assert app.text[0].value == "('a part', False)"
    next(b for b in app.button if b.label == "Stop").click().run()
    assert app.text[0].value == "('a part', True)"
    gate.set()
    next(b for b in app.button if b.label == "Go on").click().run()
    for _ in range(20):
        if app.text[0].value == "('a part', False)":  # the worker has not noticed yet
            app.run()
    assert app.text[0].value == "('all', True)"
