"""The rotor in Chromium: its mathematics against numpy and torch, its hand against the page, and its pace."""

import os
from dataclasses import replace
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch

from engine.rope import RopeParams, rotor_numbers
from engine.rope import frequencies as engine_frequencies
from engine.rope import rotor as engine_rotor
from engine.rope_scores import score_by_distance
from tests.browser.conftest import serve
from tests.conftest import ROOT

SOURCE = (ROOT / "assets/components/rotor.js").read_text()
CALL = """async ([source, name, parameters]) => {
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    return (await import(url))[name](...parameters);
}"""


@pytest.fixture(scope="module")
def address():
    """The address of the page with the rotor alone."""
    before, os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", ""), str(ROOT)
    with serve("tests/browser/rotor_page.py") as (where, _):
        os.environ["PYTHONPATH"] = before
        yield where


@pytest.fixture
def rotor(visitor, address):
    """Return a function that opens the rotor under a link."""
    return lambda link="", **options: visitor(address, **options).open("/?" + link, see=".rotor .curve.sum")


@pytest.fixture
def maths(chromium):
    """Return a function that calls an exported function of the component, with no page around it."""
    page = chromium.new_page()
    yield lambda name, *parameters: page.evaluate(CALL, [SOURCE, name, list(parameters)])
    page.close()


def frequencies(d, base):
    """Return base^(-2i/d), (d/2,)."""
    return base ** (-2 * np.arange(d // 2) / d)


def rotation(theta, m):
    """Return R_m, (d, d): a block-diagonal matrix of plane rotations."""
    blocks = [torch.tensor([[np.cos(m * t), -np.sin(m * t)], [np.sin(m * t), np.cos(m * t)]], dtype=torch.float64) for t in theta]
    return torch.block_diag(*blocks).numpy()


def told(v):
    """Return how often the script has run, and what it was told."""
    v.settle()
    runs, names = v.page.get_by_text("runs ").inner_text().removeprefix("runs ").split("; told ")
    return int(runs), names


def link(v):
    """Return the parameters in the address bar."""
    return {name: values[0] for name, values in parse_qs(v.query().lstrip("?")).items()}


def point(v, name, pair=0):
    """Return where a point of a pair is drawn, in units of its circle."""
    return v.page.evaluate(
        """([name, i]) => { const pair = document.querySelectorAll(".rotor .pair")[i];
                            const rim = pair.querySelector(".rim"), at = pair.querySelector(name);
                            const [x, y, r] = ["cx", "cy", "r"].map((key) => Number(rim.getAttribute(key)));
                            return [(at.getAttribute("cx") - x) / r, (y - at.getAttribute("cy")) / r]; }""",
        [name, pair],
    )


def centre(v, label):
    """Return the middle of a handle on the screen."""
    box = v.page.get_by_role("slider", name=label, exact=True).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def title(v):
    """Return the line above the score's picture."""
    return v.page.locator(".rotor .title").text_content().replace("−", "-")


@pytest.mark.parametrize(("d", "base"), [(4, 10.0), (8, 10000.0), (16, 500000.0)])
def test_turning_and_score_agree_with_matrices_and_complex_numbers(maths, d, base):
    rng = np.random.default_rng(d)
    q, k, theta = rng.normal(size=d), rng.normal(size=d), frequencies(d, base)
    np.testing.assert_allclose(maths("inverseFrequencies", d, base), theta, rtol=1e-14)
    for m in (0, 1, 7, 255, 4096):
        turned = maths("rotate", q.tolist(), theta.tolist(), m)
        np.testing.assert_allclose(turned, rotation(theta, m) @ q, atol=1e-9)
        by_complex = torch.view_as_complex(torch.tensor(q).reshape(-1, 2)) * torch.polar(torch.ones(d // 2).double(), torch.tensor(m * theta))
        np.testing.assert_allclose(turned, torch.view_as_real(by_complex).flatten(), atol=1e-9)
        np.testing.assert_allclose(maths("score", q.tolist(), k.tolist(), theta.tolist(), m), q @ rotation(theta, -m) @ k, atol=1e-9)
        assert maths("hopError", q.tolist(), theta.tolist(), m, 33) < 1e-9


def test_the_terms_are_cosines_of_the_right_height(maths):
    rng = np.random.default_rng(1)
    q, k, theta = rng.normal(size=8), rng.normal(size=8), frequencies(8, 100.0)
    for i, wave in enumerate(maths("waves", q.tolist(), k.tolist(), theta.tolist())):
        zq, zk = complex(*q[2 * i : 2 * i + 2]), complex(*k[2 * i : 2 * i + 2])
        for m in (0, 3, 50):
            expected = abs(zq) * abs(zk) * np.cos(np.angle(zk) - np.angle(zq) - m * theta[i])
            assert maths("height", wave, m) == pytest.approx(expected, abs=1e-9)


def test_distances_hold_every_whole_one_or_stay_few(maths):
    for farthest in (8, 512, 2048):
        assert {*range(farthest + 1)} <= {round(m, 9) for m in maths("distances", farthest)}
    assert len(maths("distances", 100_000)) <= 2050
    assert maths("seeded", 8, 1) == maths("seeded", 8, 1) != maths("seeded", 8, 2)


def test_what_is_drawn_is_what_was_computed(rotor):
    v = rotor("position=40&law=2")
    theta = frequencies(8, 10000.0)
    for pair in range(4):
        for name, angle in ((".query", 40 * theta[pair] / 2), (".plain", 40 * theta[pair]), (".key", 0)):
            np.testing.assert_allclose(point(v, name, pair), [np.cos(angle), np.sin(angle)], atol=1e-9)
    assert f"{np.cos(40 * theta / 2).sum():+.2f}" in title(v)
    assert v.page.locator(".rotor .unfinished.pair").count() == sum(2 * np.pi / theta > 256)


@pytest.mark.parametrize("scheme", ["yarn", "none", "pi"])
def test_the_score_is_the_engines_attention_factor_included(rotor, scheme):
    params = RopeParams(d_head=8, scheme=scheme, factor=8.0, position=40)
    turning = engine_rotor(params)
    v = rotor(f"position=40&attention={turning.attention_factor}&frequencies={','.join(map(repr, turning.scaled_inv_freq.tolist()))}")
    expected = rotor_numbers(params, turning, engine_frequencies(params))["score"].value
    assert f"{expected:+.2f}," in title(v)
    assert (turning.attention_factor > 1) == (scheme == "yarn") == ("attention" in title(v))
    far = score_by_distance(replace(params, reach=2))
    assert np.interp(40, far.delta, far.scaled) == pytest.approx(expected)


@pytest.mark.parametrize(("width", "height", "d", "diameter"), [(1280, 720, 8, 70), (1280, 720, 16, 55), (390, 844, 8, 80), (390, 844, 16, 75)])
def test_circles_are_large_enough_and_nothing_is_clipped(rotor, width, height, d, diameter):
    v = rotor(f"d={d}", viewport={"width": width, "height": height})
    for size in ("16px", "20px"):  # the projector's view has larger letters
        v.page.evaluate("size => { document.documentElement.style.fontSize = size; }", size)
        v.page.wait_for_timeout(400)
        found = v.page.evaluate("""() => { const box = document.querySelector(".rotor .circles").getBoundingClientRect();
            const inside = [...document.querySelectorAll(".rotor .pair :is(.rim, text)")].every((node) => {
                const at = node.getBoundingClientRect(); return at.top >= box.top - 1 && at.bottom <= box.bottom + 1; });
            const rims = [...document.querySelectorAll(".rotor .circles .rim")];
            return [inside, Math.min(...rims.map((node) => node.getBoundingClientRect().width))]; }""")
        assert found[0]
        assert found[1] >= diameter


def test_a_dragged_point_follows_the_hand_and_is_told_on_release_only(rotor):
    v = rotor("position=5")
    runs, _ = told(v)
    before = point(v, ".query", 1)
    x, y = centre(v, "Query, pair 2")
    v.page.mouse.move(x, y)
    v.page.mouse.down()
    v.page.mouse.move(x - 30, y + 10, steps=8)
    v.page.wait_for_timeout(400)
    hand = point(v, ".query", 1)
    assert hand[0] < before[0] - 0.2
    assert told(v)[0] == runs
    v.page.mouse.up()
    assert told(v) == (runs + 1, "[['k', 'kind', 'q']]")
    held = link(v)
    assert held["kind"] == "dragged"
    theta = frequencies(8, 10000.0)
    turned = rotation(theta, 5) @ np.array([float(word) for word in held["q"].split(",")])
    np.testing.assert_allclose(turned[2:4], hand, atol=2e-3)
    np.testing.assert_allclose(point(v, ".query", 1), hand, atol=2e-3)


def test_position_by_keys_by_slider_and_typed(rotor):
    v = rotor("position=40")
    runs, _ = told(v)
    slider = v.page.get_by_role("slider", name="Position", exact=True)
    slider.focus()
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowRight", "ArrowLeft"):
        v.page.keyboard.press(key)
    assert told(v)[0] == runs + 1
    assert link(v)["position"] == "51"
    assert slider.get_attribute("aria-valuetext") == "position 51"
    box = slider.bounding_box()
    v.page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=10)
    assert told(v)[0] == runs + 1
    v.page.mouse.up()
    assert told(v)[0] == runs + 2
    assert abs(int(link(v)["position"]) - 256) < 4
    v.page.get_by_label("Position, typed").fill("7")
    v.page.keyboard.press("Enter")
    assert told(v)[0] == runs + 3
    assert link(v)["position"] == "7"
    v.page.get_by_label("Position, typed").fill("99999")
    v.page.keyboard.press("Enter")
    told(v)
    assert link(v)["position"] == "512"


def test_a_hand_that_takes_hold_again_at_once_is_not_told_on_halfway(rotor):
    v = rotor("position=40")
    runs, _ = told(v)
    slider = v.page.get_by_role("slider", name="Position", exact=True)
    box = slider.bounding_box()
    slider.focus()
    v.page.keyboard.press("ArrowRight")
    v.page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + 200, box["y"] + box["height"] / 2, steps=5)
    v.page.wait_for_timeout(600)
    assert told(v)[0] == runs
    v.page.mouse.up()
    assert told(v)[0] == runs + 1
    assert link(v)["position"].isdigit()


def test_another_base_turns_at_once_and_the_law_comes_back_with_the_page(rotor):
    v = rotor("position=40&law=2")
    v.page.get_by_label("Base, typed").fill("100")
    v.page.keyboard.press("Enter")
    v.page.wait_for_timeout(80)
    np.testing.assert_allclose(point(v, ".query", 1), [np.cos(40 * 100**-0.25), np.sin(40 * 100**-0.25)], atol=1e-9)
    told(v)
    assert link(v)["base"] == "100"
    np.testing.assert_allclose(point(v, ".query", 1), [np.cos(20 * 100**-0.25), np.sin(20 * 100**-0.25)], atol=1e-9)


def test_kinds_and_two_hops(rotor):
    v = rotor("position=40")
    v.page.get_by_label("random").check()
    assert told(v)[1] == "[['k', 'kind', 'q']]"
    held = {name: np.array([float(word) for word in link(v)[name].split(",")]) for name in "qk"}
    assert f"{held['q'] @ rotation(frequencies(8, 10000.0), -40) @ held['k']:+.2f}" in title(v)
    v.page.get_by_label("q = k").check()
    told(v)
    assert link(v)["q"] == link(v)["k"]
    first = v.page.get_by_role("slider", name="First hop")
    first.focus()
    v.page.keyboard.press("Shift+ArrowRight")
    v.settle()
    z = held["q"][:2] @ rotation([1.0], 10).T
    np.testing.assert_allclose(np.array(point(v, ".ghost")) / np.hypot(*point(v, ".ghost")), z / np.hypot(*z), atol=1e-9)
    assert "a = 10, b = 30" in v.page.locator(".rotor .hops").inner_text()


def test_playing_is_smooth_still_and_silent_until_it_pauses(rotor):
    v = rotor("position=0")
    runs, _ = told(v)
    boxes = """() => [".rows", ".legend", ".circles", ".turn", ".hops", ".score"].map((name) =>
               JSON.stringify(document.querySelector(`.rotor ${name}`).getBoundingClientRect()))"""
    before = v.page.evaluate(boxes)
    v.page.get_by_role("button", name="Play").click()
    frames = lambda: int(v.page.locator(".rotor").get_attribute("data-frames"))  # noqa: E731
    paces = []
    for _ in range(3):
        start = frames()
        v.page.wait_for_timeout(1000)
        paces.append(frames() - start)
    assert max(paces) > 30, paces
    assert v.page.evaluate(boxes) == before
    assert told(v)[0] == runs
    v.page.get_by_role("button", name="Pause").click()
    assert told(v) == (runs + 1, "[['position']]")
    assert int(link(v)["position"]) > 10


def test_less_motion_means_whole_positions_and_no_trail(rotor):
    v = rotor("position=0", reduced_motion="reduce")
    v.page.get_by_role("button", name="Play").click()
    seen = set()
    for _ in range(20):
        v.page.wait_for_timeout(100)
        seen.add(v.page.get_by_label("Position, typed").input_value())
        assert v.page.evaluate("[...document.querySelectorAll('.rotor .trail')].every((node) => !node.getAttribute('d'))")
    assert 3 <= len(seen) <= 6
    assert all(value.isdigit() for value in seen)


def test_touch_turns_a_point_and_targets_are_large_enough_on_a_phone(rotor):
    v = rotor("d=16&position=5", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    runs, _ = told(v)
    x, y = centre(v, "Key, pair 3")
    touch = v.context.new_cdp_session(v.page)
    for kind, dx in (("touchStart", 0), ("touchMove", -10), ("touchMove", -25)):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x + dx, "y": y}]})
    v.page.wait_for_timeout(400)
    assert point(v, ".key", 2)[0] < 0.6
    assert told(v)[0] == runs
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert told(v) == (runs + 1, "[['k', 'kind', 'q']]")
    sizes = v.page.evaluate("""[...document.querySelectorAll(".rotor :is(button, .rows > input, .kinds label, .handle)")].map((node) => {
        const box = node.getBoundingClientRect(); return Math.min(box.width, box.height); })""")
    assert min(sizes) >= 31.9
    assert v.page.evaluate("document.documentElement.scrollWidth") <= 390
    texts = "[...document.querySelectorAll('.rotor :is(text, p, span, label)')].map((node) => parseFloat(getComputedStyle(node).fontSize))"
    assert min(v.page.evaluate(texts)) >= 12


def test_a_handle_keeps_the_focus_while_keys_turn_it_and_the_page_answers(rotor):
    v = rotor("position=0")
    handle = v.page.get_by_role("slider", name="Key, pair 1", exact=True)
    handle.focus()
    assert handle.get_attribute("aria-valuetext") == "0 degrees, length 1.00"
    for _ in range(2):
        v.page.keyboard.press("Shift+ArrowLeft")
        told(v)
    assert handle.get_attribute("aria-valuetext") == "30 degrees, length 1.00"
    np.testing.assert_allclose(point(v, ".key"), [np.cos(np.pi / 6), 0.5], atol=1e-3)
    assert [float(word) for word in link(v)["k"].split(",")][:2] == pytest.approx(point(v, ".key"), abs=1e-9)


def test_what_the_page_says_anew_is_taken_over(rotor):
    v = rotor("position=12")
    v.page.get_by_role("button", name="Another setting").click()
    told(v)
    assert v.page.get_by_label("Position, typed").input_value() == "100"
    assert v.page.locator(".rotor .pair").count() == 6
    v.page.get_by_role("slider", name="Position", exact=True).focus()
    v.page.keyboard.press("ArrowRight")
    told(v)
    assert link(v)["position"] == "101"
