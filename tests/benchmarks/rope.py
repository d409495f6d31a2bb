"""Every law in one batch against one law at a time through the model's own forward with transformers' ``rope_parameters``.

Fable on a window of held-out text at 1x and 4x its trained context; medians over interleaved rounds in one process.
"""

import shutil
import time
from collections.abc import Iterator
from statistics import median

import torch
from playwright.sync_api import sync_playwright
from torch.nn.functional import cross_entropy

from engine.device import CPU_THREADS, use_all_threads
from engine.models.loading import open_model
from engine.models.rope_config import export
from engine.rope import RopeParams
from engine.rope_laws import LAWS
from engine.rope_measure import _one_window, _rotations, window_ids
from tests.benchmarks.projections import traffic
from tests.browser.conftest import ARGUMENTS, serve

ROUNDS, CONTEXTS, SECONDS = 3, 4, 4.0
LISTS = {"short_factor": ",".join(["1"] * 16), "long_factor": ",".join(f"{1 + i / 5}" for i in range(16))}


def lines() -> Iterator[str]:
    """Yield how long both take, their ratio, and how far the losses are apart."""
    use_all_threads()
    shared, length = open_model("fable"), CONTEXTS * 256
    row = window_ids("fable", shared, 0, length)
    rotations = {n: list(_rotations(RopeParams(**LISTS), 256, n)[0].values()) for n in (256, length)}
    started = time.perf_counter()
    theirs = [built(shared, name) for name in LAWS]
    building = time.perf_counter() - started
    seconds, found = {"together": [], "one by one": []}, []
    for done in range(ROUNDS + 1):
        started = time.perf_counter()
        ours = _one_window(shared, row, rotations, lambda: None)
        halfway = time.perf_counter()
        apart = {n: [one(model, row[:n]) for model in theirs] for n in (256, length)}
        found = found or [(a[: n - 1], b) for n in (256, length) for a, b in zip(ours[n], apart[n], strict=True)]
        if done:
            seconds["together"].append(halfway - started)
            seconds["one by one"].append(time.perf_counter() - halfway)
    together, apart = (median(times) for times in seconds.values())
    # of the first round: later, transformers' dynamic NTK keeps the base of the longest prompt that it has read
    worst = max(abs(float((torch.as_tensor(a) - b).mean())) for a, b in found)
    yield f"rope: {CPU_THREADS} CPU threads; medians of {ROUNDS} interleaved rounds in one process"
    yield f"  {len(LAWS)} laws on one window of {length} tokens and at 1x, in one batch: {together:.2f} s"
    yield f"  one law at a time through transformers' own forward: {apart:.2f} s, {apart / together:.2f} x"
    yield f"  building a model for each law besides: {building:.2f} s"
    yield f"  mean losses differ by at most {worst:.1e} nats"
    yield from scrubbing()


def scrubbing() -> Iterator[str]:
    """Yield pictures a second while the rotor's position is dragged in Chromium, and bytes while it moves and when it is let go."""
    with serve() as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        sent, received = traffic(page)
        page.goto(f"{address}/rope")
        slider = page.locator(".rotor input[type=range]").first
        slider.wait_for(timeout=60_000)
        page.wait_for_timeout(15_000)  # until the loss is measured
        page.evaluate("window.frames_ = 0; const count = () => { window.frames_ += 1; requestAnimationFrame(count); }; requestAnimationFrame(count);")
        box = slider.bounding_box()
        x, y = box["x"] + 10, box["y"] + box["height"] / 2
        drawn = lambda: int(page.locator(".rotor").get_attribute("data-frames"))  # noqa: E731
        page.mouse.move(x, y)
        page.mouse.down()
        first, before, frames, started, moves = drawn(), sum(sent) + sum(received), page.evaluate("window.frames_"), time.perf_counter(), 0
        while time.perf_counter() - started < SECONDS:
            page.mouse.move(x + moves % 200, y)
            moves += 1
        seconds = time.perf_counter() - started
        rates = [n / seconds for n in (drawn() - first, moves, page.evaluate("window.frames_") - frames)]
        moved, ends = sum(sent) + sum(received) - before, (len(sent), len(received))
        page.mouse.up()
        page.wait_for_timeout(4000)
        yield "  scrubbing: {:.0f} pictures for {:.0f} moves a second, {:.0f} frames a second, ".format(*rates) + f"{moved} bytes while moving"
        yield f"  let go: {sum(sent[ends[0] :])} bytes up, {sum(received[ends[1] :])} down"
        browser.close()


def built(shared, scheme: str):
    """Return a model with Fable's weights that transformers built with a law's exported ``rope_parameters``."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    said = shared.config.to_dict() | export(RopeParams(scheme=scheme, **LISTS))
    model = AutoModelForCausalLM.from_config(LlamaConfig(**said)).eval()
    model.load_state_dict(shared.state_dict(), strict=False)
    return model


@torch.no_grad()
def one(model, row: torch.Tensor) -> torch.Tensor:
    """Return nats (tokens - 1) of one row."""
    logits = model(input_ids=row[None], use_cache=False).logits[0, :-1].float()
    return cross_entropy(logits, row[1:], reduction="none").double()


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
