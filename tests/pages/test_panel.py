"""The link is the state: what controls accept, how a bad link is mended, and that nothing is lost on the way."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.shared.controls import Choice, Integer, Number, Numbers, Steps, Switch, Text
from pages.shared.layout import escaped
from pages.shared.panel import Panel


@dataclass(frozen=True)
class Params:
    """A parameter object with one field of every kind."""

    width: int = 64
    factor: float = 1.5
    epsilon: float = 1e-5
    kind: str = "a"
    on: bool = False
    words: str = "hello"
    arrow: tuple[float, ...] = (1.0, 2.5)


PANEL = Panel(
    Params,
    tabs=("One", "Two"),
    width=Integer("Width", 8, 256, 4),
    factor=Number("Factor", 1.0, 32.0, 0.1),
    epsilon=Steps("Epsilon", (0.0, 1e-12, 1e-5, 0.1, 1.0)),
    kind=Choice("Kind", {"a": "", "b": ""}),
    on=Switch("On"),
    words=Text("Words", 20),
    arrow=Numbers("Arrow", -10, 10, 4, fewest=2),
)
FIELDS = st.sampled_from([*PANEL.controls, "present", "other"])
VALID = st.builds(
    Params,
    width=st.integers(2, 64).map(lambda k: 4 * k),
    factor=st.integers(10, 320).map(lambda k: round(k / 10, 10)),
    epsilon=st.sampled_from([0.0, 1e-12, 1e-5, 0.1, 1.0]),
    kind=st.sampled_from("ab"),
    on=st.booleans(),
    words=st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20).map(lambda t: "".join(c if c.isprintable() else " " for c in t)),
    arrow=st.lists(st.integers(-10_000, 10_000).map(lambda k: k / 1000), min_size=2, max_size=4).map(tuple),
)


@given(VALID, st.sampled_from(["One", "Two"]))
def test_a_good_link_is_left_alone(params, tab):
    link = PANEL.write(params, tab=tab)
    assert set(link) == {*PANEL.defaults}
    assert PANEL.settle(link) == (link, [])
    assert Params(**{k: PANEL.controls[k].parse(v) for k, v in link.items() if k != "tab"}) == params


@given(st.dictionaries(FIELDS, st.text(max_size=60) | st.sampled_from(["nan", "inf", "-1", "1e999", "٣", "<script>", "9" * 5000, "", "None"])))
def test_any_link_settles_once_and_says_what_was_wrong(query):
    good, notes = PANEL.settle(query)
    assert PANEL.settle(good) == (good, [])
    same = lambda k: k in ("width", "factor") and k in good and query[k].isascii() and float(query[k]) == float(good[k])  # noqa: E731
    changed = [
        k for k in query if good.get(k) != query[k] and query[k].isprintable() and not notes and not same(k)
    ]  # control characters become spaces
    assert changed == []
    assert all(len(note) < 300 and note.endswith(".") for note in notes)
    Params(**{k: PANEL.controls[k].parse(v) for k, v in good.items() if k not in ("tab", "present")})


@pytest.mark.parametrize(
    ("query", "good", "said"),
    [
        ({"epsilon": "0.4"}, "0.1", "Epsilon: '0.4' is outside 0, 1e-12, 1e-05, 0.1, 1; using '0.1'."),
        ({"width": "257"}, "256", "Width: '257' is outside 8 to 256 in steps of 4; using '256'."),
        ({"width": "65"}, "64", "Width: '65' is outside 8 to 256 in steps of 4; using '64'."),
        ({"width": "wide"}, "64", "Width: 'wide' is not a whole number (accepted: 8 to 256 in steps of 4); using '64'."),
        ({"factor": "nan"}, "1.5", "Factor: 'nan' is not a number (accepted: 1 to 32 in steps of 0.1); using '1.5'."),
        ({"kind": "c"}, "a", "Kind: 'c' is not an option (accepted: a, b); using 'a'."),
        ({"on": "maybe"}, "false", "On: 'maybe' is neither true nor false (accepted: true, false); using 'false'."),
        ({"tab": "Three"}, "One", "Tab: 'Three' is not an option (accepted: One, Two); using 'One'."),
        ({"words": "x" * 30}, "x" * 20, f"Words: '{'x' * 30}' is outside the limit of 20 characters; using '{'x' * 20}'."),
    ],
)
def test_a_bad_value_is_named_with_what_is_accepted(query, good, said):
    (name,) = query
    assert PANEL.settle(query) == ({name: good}, [said])


def test_a_limit_of_the_chosen_model_settles_too():
    good, (note,) = PANEL.settle({"width": "200"}, width=100)
    assert (good, "8 to 100" in note) == ({"width": "100"}, True)


def test_an_unknown_setting_is_said_and_dropped():
    good, (note,) = PANEL.settle({"widht": "12", "present": "1"})
    assert good == {"present": "1"}
    assert "'widht'" in note


def test_a_panel_that_misses_a_field_is_refused():
    with pytest.raises(TypeError, match="are not the fields"):
        Panel(Params, width=Integer("Width", 8, 256))


@given(st.text(max_size=80))
def test_messages_hold_no_markup(text):
    shown = escaped(text)
    assert shown.replace("\\", "") == text.replace("\\", "")
    for mark in "<>[]()*_`$:#!&|~":
        assert shown.count(mark) == shown.count("\\" + mark)
