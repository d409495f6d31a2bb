"""The app as people meet it: a cold link, a slider, a click, a zoom, a phone, a dark room, two visitors at once."""

import json
import re
from dataclasses import fields

import pytest

from engine.spectra_params import SpectraParams
from pages.shared import data
from tests.browser.conftest import serve

TABS = ("Cause", "Attention", "Compare", "Tokens", "Distance", "Training", "Composition", "Latent", "Guess")
MAP, SPECTRUM = "effective rank of every head", "Singular values"


def test_a_cold_link_is_the_first_visit_of_a_process(visitor):
    with serve() as (address, _):
        v = visitor(address).open("/spectra?layer=2&head=3&circuit=qk")
        assert v.page.locator("[data-testid=stTopNavLink]").count() >= 2
        assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 3 is chosen")


def test_the_slider_writes_the_link_and_the_picture_follows(visitor):
    v = visitor().open("/spectra?layer=1")
    slider = v.page.get_by_role("slider").first
    slider.focus()
    v.page.keyboard.press("ArrowRight")
    v.settle()
    assert "layer=2" in v.query()
    assert v.figure(SPECTRUM).get_attribute("aria-label").startswith("Singular values of layer 2, head 0")


def test_chart_node_and_zoom_survive_a_slider_move(visitor):
    v = visitor().open("/spectra?layer=1")
    ranges = """() => { const node = document.querySelector(".figure[aria-label^='Singular']");
                        return JSON.stringify([node._fullLayout.xaxis.range, node._fullLayout.yaxis.range, node._fullData[1].y[0]]); }"""
    v.page.evaluate("() => { document.querySelector(\".figure[aria-label^='Singular']\").kept = 'same node'; }")
    box = v.figure(SPECTRUM).locator(".nsewdrag").bounding_box()
    v.page.mouse.move(box["x"] + 60, box["y"] + 60)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + 220, box["y"] + 160, steps=5)
    v.page.mouse.up()
    v.page.wait_for_timeout(500)
    zoomed = v.page.evaluate(ranges)
    v.page.get_by_role("slider").first.focus()
    v.page.keyboard.press("ArrowRight")
    v.settle()
    after = v.page.evaluate(ranges)
    assert v.page.evaluate("document.querySelector(\".figure[aria-label^='Singular']\").kept") == "same node"
    number = re.compile(r"\[\[(.*?)\],\[(.*?)\],(.*?)\]")
    assert number.match(after).groups()[:2] == number.match(zoomed).groups()[:2]
    assert number.match(after)[3] != number.match(zoomed)[3]
    assert float(number.match(zoomed)[1].split(",")[0]) > 1


def test_a_click_on_the_map_chooses_a_head(visitor):
    v = visitor().open("/spectra")
    box = v.figure(MAP).locator(".heatmaplayer").bounding_box()
    v.page.mouse.click(box["x"] + box["width"] * (5.5 / 8), box["y"] + box["height"] * (2.5 / 4))
    v.settle()
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 5 is chosen")
    assert {"layer=2", "head=5"} <= set(v.query().lstrip("?").split("&"))


def test_back_after_a_click_returns_picture_and_controls_together(visitor):
    v = visitor().open("/spectra?layer=1&head=1")
    box = v.figure(MAP).locator(".heatmaplayer").bounding_box()
    v.page.mouse.click(box["x"] + box["width"] * (1.5 / 8), box["y"] + box["height"] * (3.5 / 4))
    v.settle()
    v.page.go_back()
    v.page.wait_for_timeout(800)
    assert "layer=1" in v.query()
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 1, head 1 is chosen")


def copied_from(v) -> str:
    """Return the query of the link that a visitor copies."""
    button = v.page.get_by_role("button", name="Copy link")
    button.click()
    return button.get_attribute("data-link").partition("?")[2]


def test_copied_link_holds_every_field_and_opens_the_same_view(visitor):
    first = visitor().open("/spectra?tab=Attention&layer=3&head=4&prompt=A+fox+%26+a+crow")
    link = copied_from(first)
    shown = {"tab", "colour", "against", "sort", "compare", "other", "snapshot"}
    assert {part.split("=")[0] for part in link.split("&")} == {f.name for f in fields(SpectraParams)} | shown
    second = visitor().open("/spectra?" + link)
    assert second.page.get_by_role("textbox", name="Prompt").input_value() == "A fox & a crow"
    second.page.wait_for_selector(".figure[aria-label^='Attention of layer 3, head 4'] .plot-container")
    assert second.page.get_by_role("alert").count() == 0


def test_copied_link_follows_what_is_moved_and_moved_back(visitor):
    v = visitor().open("/spectra?layer=1&head=2")
    for key, layer in (("ArrowRight", "layer=2"), ("ArrowLeft", "layer=1"), ("ArrowLeft", "layer=0")):
        v.page.get_by_role("slider").first.press(key)
        v.settle()
        assert {layer, "head=2", "tab=Cause"} <= set(copied_from(v).split("&"))


def test_a_broken_link_gets_one_message_and_a_working_page(visitor):
    v = visitor().open("/spectra?layer=257&head=abc&circuit=%3Cb%3Ebold%3C%2Fb%3E&tab=no&laier=2")
    alert = v.page.get_by_test_id("stAlert")
    assert alert.count() == 1
    text = alert.inner_text()
    more = v.page.get_by_text("2 more of this link mended")
    more.click()
    text += v.page.get_by_test_id("stExpanderDetails").inner_text()
    for part in ("Layer: '257' is outside 0 to 3; using '3'", "Head: 'abc' is not a whole number", "'<b>bold</b>' is not an option", "'laier'"):
        assert part in text
    assert v.page.locator("[data-testid=stAlert] b, [data-testid=stExpanderDetails] b").count() == 0
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 3, head 0 is chosen")
    v.page.get_by_role("slider").first.focus()
    v.page.keyboard.press("ArrowLeft")
    v.settle()
    assert v.page.get_by_test_id("stAlert").count() == 0
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 0 is chosen")


def test_a_setting_that_a_link_holds_twice_is_one_thing_for_controls_and_page(visitor):
    v = visitor().open("/spectra?layer=1&layer=2")
    assert "'layer' more than once; using the last, '2'" in v.page.get_by_test_id("stAlert").inner_text()
    assert v.page.get_by_role("slider").first.input_value() == "2"
    assert v.figure(SPECTRUM).get_attribute("aria-label").startswith("Singular values of layer 2, head 0")


def test_reset_and_presets(visitor):
    v = visitor().open("/spectra?layer=3&head=4&circuit=qk")
    v.page.get_by_role("button", name="Reset", exact=True).click()
    v.settle()
    assert v.query() == ""
    assert v.page.get_by_role("radio", name="ov").is_checked()
    preset = v.page.locator("[class*='st-key-preset'] button").last
    preset.click()
    v.settle()
    assert v.query() != ""


def test_from_page_to_page_nothing_is_carried_and_nothing_complained_of(visitor):
    v = visitor().open("/projections", see="[role=tab]")
    for tab, page in (("A real head", "Feed-forward"), ("Regions", "Head spectra"), ("Tokens", "Norms"), ("Depth", "Head spectra")):
        v.page.get_by_role("tab", name=tab, exact=True).click()
        v.settle()
        v.page.get_by_role("link", name=page, exact=True).first.click()
        v.page.get_by_role("heading", name=page, exact=True).wait_for(timeout=60_000)
        v.settle()
        assert v.page.get_by_test_id("stAlert").all_inner_texts() == []
        assert v.query() == ""


def test_home_leads_to_a_lab_with_its_setting(visitor):
    v = visitor().open("/", see="text=Start here")
    v.page.get_by_role("link", name="Copying, cut to eight directions").first.click()
    v.page.wait_for_selector(".figure .plot-container")
    v.settle()
    assert v.page.url.split("?")[0].endswith("/spectra")
    assert v.page.get_by_test_id("stAlert").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_take_the_themes_colours(visitor, scheme):
    v = visitor(color_scheme=scheme).open("/spectra")
    colour = v.page.evaluate("getComputedStyle(document.querySelector('.figure .xtick text')).fill")
    bright = sum(int(c) for c in re.findall(r"\d+", colour)[:3]) > 3 * 128
    assert bright == (scheme == "dark")


@pytest.mark.parametrize("path", ["/", *(f"/spectra?tab={tab}" for tab in TABS)])
def test_nothing_is_wider_than_a_phone(visitor, path):
    see = "text=Start here" if path == "/" else ".figure .plot-container"
    v = visitor(viewport={"width": 390, "height": 844}, has_touch=True).open(path, see=see)
    wide = v.page.evaluate(
        """() => {
            const page = document.querySelector("[data-testid=stMainBlockContainer]");
            const own = (e) => { for (let p = e.parentElement; p && p !== page; p = p.parentElement) {
                if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX)) return false; } return true; };
            return [...page.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > 391 && e.offsetParent && own(e))
                .map(e => e.tagName + "." + e.className); }"""
    )
    assert wide == []


@pytest.mark.parametrize("path", ["/", "/spectra"])
def test_the_first_screen_needs_no_scrolling(visitor, path):
    see = "text=Start here" if path == "/" else ".figure .plot-container"
    v = visitor().open(path, see=see)
    v.page.get_by_role("heading").first.wait_for()
    last = v.page.locator(".numbers > div").nth(3) if path != "/" else v.page.get_by_text("Start here")
    box = last.bounding_box()
    assert box["y"] + box["height"] <= 720


def test_the_projector_view_has_no_navigation(visitor):
    v = visitor().open("/spectra?present=1&layer=2")
    assert not v.page.locator("[data-testid=stTopNavLink]").first.is_visible()
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 0 is chosen")
    larger = v.page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)")
    assert larger > 16


def test_two_visitors_keep_their_own_settings(visitor):
    first, second = visitor().open("/spectra?layer=1"), visitor().open("/spectra?layer=2")
    for v, layer in ((first, 1), (second, 2), (first, 1)):
        v.page.get_by_text("qk", exact=True).click()
        v.settle()
        assert f"layer={layer}" in v.query()
        assert v.figure(MAP).get_attribute("aria-label").endswith(f"layer {layer}, head 0 is chosen")


def test_only_the_open_tab_is_drawn(visitor):
    v = visitor().open("/spectra?tab=Compare")
    v.page.wait_for_selector(".figure[aria-label^='Cumulative energy'] .plot-container")
    assert v.figure("Attention").count() == 0
    v.page.get_by_role("tab", name="Attention").click()
    v.settle()
    assert "tab=Attention" in v.query()
    assert v.figure("Attention").count() == 2
    assert v.figure("Cumulative energy").count() == 0


def test_distance_and_folding_change_the_spectrum_and_the_link(visitor):
    v = visitor().open("/spectra?circuit=qk&layer=1&head=4")
    first = "JSON.stringify(Array.from(document.querySelector(\".figure[aria-label^='Singular']\")._fullData.at(-1).y))"
    before = v.page.evaluate(first)
    v.page.get_by_role("button", name="More").click()
    v.page.get_by_text("Fold the norm's gain").click()
    v.settle()
    assert "fold=true" in v.query()
    assert v.page.evaluate(first) != before


def test_a_model_that_is_not_here_is_refused_in_a_sentence(visitor):
    v = visitor().open("/spectra?model=no-such-model&layer=2")
    text = v.page.get_by_test_id("stAlert").inner_text()
    assert "no-such-model" in text
    assert "Using 'fable'" in text
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 0 is chosen")


def test_figures_make_room_for_the_sidebar(visitor):
    v = visitor().open("/spectra")
    v.page.get_by_test_id("stExpandSidebarButton").click()
    v.page.wait_for_timeout(1500)
    width = "f => [f.querySelector('.main-svg').getBoundingClientRect().width, f.getBoundingClientRect().width]"
    for figure in v.page.locator(".figure").all():
        drawn, room = figure.evaluate(width)
        assert abs(drawn - room) <= 2


def test_a_preset_under_another_model_sets_picture_controls_and_copied_link(visitor, tiny_llama):
    v = visitor().open(f"/spectra?model={tiny_llama}&layer=1&head=3")
    v.page.get_by_role("button", name="An induction head").click()
    v.page.wait_for_timeout(3000)
    v.settle()
    link = data.lab("spectra").preset("An induction head").link
    assert v.figure(MAP).get_attribute("aria-label").endswith(f"layer {link['layer']}, head {link['head']} is chosen")
    shown = [v.page.get_by_test_id("stSliderThumbValue").nth(i).inner_text() for i in (0, 1)]
    assert shown == [link["layer"], link["head"]]
    copied = copied_from(v).split("&")
    assert {"model=fable", f"layer={link['layer']}", f"head={link['head']}", "tab=Attention"} <= set(copied)


def test_a_head_switched_off_costs_copying_and_stands_in_the_link(visitor):
    v = visitor().open("/spectra?layer=2&head=5&off=2.6&removal=zero")
    v.page.locator(".numbers > div").nth(3).wait_for()
    before = v.page.locator(".numbers > div").nth(2).inner_text()
    v.page.get_by_role("button", name="Switch 2.5 off").click()
    v.page.wait_for_function("before => document.querySelectorAll('.numbers > div')[2]?.innerText !== before", arg=before)
    v.settle()
    assert "off=2.5%2C2.6" in v.query() or "off=2.5,2.6" in v.query()
    share = lambda text: float(re.search(r"([\d.]+) %", text).group(1))  # noqa: E731
    assert share(v.page.locator(".numbers > div").nth(2).inner_text()) < share(before)


def test_arrow_keys_walk_over_the_map(visitor):
    v = visitor().open("/spectra?layer=1&head=1")
    v.figure(MAP).focus()
    v.page.keyboard.press("ArrowDown")
    v.settle()
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 1 is chosen")
    v.page.keyboard.press("ArrowRight")
    v.settle()
    assert v.figure(MAP).get_attribute("aria-label").endswith("layer 2, head 2 is chosen")


def test_a_phone_gets_all_heads_in_a_strip(visitor):
    wide, phone = visitor().open("/spectra"), visitor(viewport={"width": 390, "height": 844}, has_touch=True).open("/spectra")
    kind = "document.querySelector(\".figure[aria-label^='effective rank']\")._fullData[0].type"
    assert wide.page.evaluate(kind) == "heatmap"
    assert phone.page.evaluate(kind) == "scatter"


def test_numbers_and_pictures_can_be_taken_away(visitor):
    v = visitor().open("/spectra?layer=2&head=6")
    v.page.get_by_role("button", name="Take it away").click()
    offered = v.page.get_by_test_id("stCode").first.inner_text()
    with v.page.expect_download() as table:
        v.page.get_by_text("CSV, the numbers shown").click()
    rows = table.value.path().read_text().splitlines()
    assert len(rows) == 33
    assert rows[0].startswith("layer,head,")
    with v.page.expect_download() as whole:
        v.page.get_by_text("JSON, with provenance").click()
    found = json.loads(whole.value.path().read_text())
    assert found["provenance"]["parameters"]["head"] == 6
    assert len(found["provenance"]["model"]["sha256"]) == 64
    with v.page.expect_download() as picture:
        v.page.locator(".pictures button", has_text="SVG").first.click()
    assert "<svg" in picture.value.path().read_text()[:400]
    namespace = {}
    exec(offered, namespace)  # the lines that the page offers
    assert namespace["result"].ov_effective_rank.shape == (4, 8)


def test_hurried_arrow_keys_switch_no_head_off(visitor):
    v = visitor().open("/spectra?off=2.6&removal=zero")
    v.figure(MAP).focus()
    for _ in range(6):
        v.page.keyboard.press("ArrowRight")
        v.page.wait_for_timeout(150)
    v.settle()
    assert re.search(r"off=2.6(&|$)", v.query())


def test_thumbnails_and_compositions_choose(visitor):
    v = visitor().open("/spectra?tab=Attention&layer=1&head=0")
    v.page.wait_for_selector(".figure[aria-label^='Attention of all heads'] .plot-container")
    v.figure("Attention of all heads").scroll_into_view_if_needed()
    box = v.figure("Attention of all heads").locator(".nsewdrag").bounding_box()
    v.page.mouse.click(box["x"] + box["width"] * 2.5 / 4, box["y"] + box["height"] * 0.75)
    v.settle()
    assert "head=6" in v.query()
    v.page.get_by_role("tab", name="Composition").click()
    v.page.wait_for_selector(".figure[aria-label^='K-composition'] .plot-container")
    v.figure("K-composition").scroll_into_view_if_needed()
    box = v.figure("K-composition").locator(".heatmaplayer").bounding_box()
    v.page.mouse.click(box["x"] + box["width"] * 3.5 / 8, box["y"] + box["height"] * 2.5 / 4)
    v.settle()
    assert "partner=2.3" in v.query()
