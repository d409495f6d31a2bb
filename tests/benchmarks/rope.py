"""Every law in one batch against one law at a time through the model's own forward with transformers' ``rope_parameters``.

Fable on a window of held-out text at 1x and 4x its trained context; medians over interleaved rounds in one process.
"""

import time
from collections.abc import Iterator
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from engine.device import CPU_THREADS, use_all_threads
from engine.models.loading import open_model
from engine.models.rope_config import export
from engine.rope import RopeParams
from engine.rope_laws import LAWS
from engine.rope_measure import _one_window, _rotations, window_ids

ROUNDS, CONTEXTS = 3, 4
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
        ours = _one_window(shared, row, rotations)
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
