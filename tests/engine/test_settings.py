"""The operator's settings: defaults here and hosted, and a sentence for what is not acceptable."""

import pytest

from engine.errors import InputError
from engine.settings import ALLOWED, HOSTED, NUMBERS, settings
from tests.conftest import ROOT


def test_defaults_here_and_hosted():
    here, hosted = settings({}), settings({HOSTED: "1"})
    assert not here.hosted
    assert hosted.hosted
    assert [getattr(here, name) for name in NUMBERS] == [one.local for one in NUMBERS.values()]
    assert [getattr(hosted, name) for name in NUMBERS] == [one.hosted for one in NUMBERS.values()]
    assert hosted.grace == 120


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_can_be_set_within_its_range_only(name):
    one = NUMBERS[name]
    for value in (one.low, one.high):
        assert getattr(settings({one.variable: f" {value} "}), name) == value
    for value in (one.low - 1, one.high + 1, "many", "1e3", "٣", "1.5", "9" * 50):
        with pytest.raises(InputError, match=f"{one.variable} is .* from {one.low} to {one.high}"):
            settings({one.variable: str(value)})


@pytest.mark.parametrize("raw", ["maybe", "2", "hosted"])
def test_the_switch_is_on_or_off(raw):
    with pytest.raises(InputError, match="accepted are 1"):
        settings({HOSTED: raw})


def test_models_are_a_list():
    assert settings({ALLOWED: " gpt2, owner/name ,,"}).models == ("gpt2", "owner/name")


def test_the_readme_explains_every_setting_with_its_defaults():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    for one in NUMBERS.values():
        row = next(row for row in rows if one.variable in row)
        assert one.variable == "BARE_WEIGHTS_THREADS" or [str(one.local), str(one.hosted)] == [cell.strip() for cell in row.split("|")[2:4]]
        assert one.meaning in row
