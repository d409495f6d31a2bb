"""Every law in one batch against one law at a time through the model's own forward with transformers' ``rope_parameters``.

Fable on two windows of held-out text at 4x its trained context; medians over interleaved rounds in one process.
"""

import time
from collections.abc import Iterator
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from engine.device import CPU_THREADS, use_all_threads
from engine.models.loading import open_model
from engine.models.rope_config import export
from engine.models.turning import losses
from engine.rope import RopeParams
from engine.rope_laws import LAWS
from engine.rope_measure import _rotations, _windows

ROUNDS, CONTEXTS = 3, 4
LISTS = {"short_factor": ",".join(["1"] * 16), "long_factor": ",".join(f"{1 + i / 5}" for i in range(16))}


def lines() -> Iterator[str]:
    """Yield how long both take, their ratio, and how far the losses are apart."""
    use_all_threads()
    shared, length = open_model("fable"), CONTEXTS * 256
    row = _windows("fable", shared, 0, length)[0]
    rotations, _ = _rotations(RopeParams(**LISTS), 256, length)
    theirs = {name: built(shared, name) for name in LAWS}
    seconds, found = {"together": [], "one by one": []}, {}
    for done in range(ROUNDS + 1):
        started = time.perf_counter()
        found["together"] = losses(shared, row.expand(len(LAWS), -1), [rotations[name] for name in LAWS])
        halfway = time.perf_counter()
        found["one by one"] = [one(theirs[name], row) for name in LAWS]
        if done:
            seconds["together"].append(halfway - started)
            seconds["one by one"].append(time.perf_counter() - halfway)
    together, apart = (median(times) for times in seconds.values())
    worst = max(abs(float((torch.as_tensor(a) - b).mean())) for a, b in zip(found["together"], found["one by one"], strict=True))
    yield f"rope: {CPU_THREADS} CPU threads; medians of {ROUNDS} interleaved rounds in one process"
    yield f"  {len(LAWS)} laws on {length} tokens in one batch: {together:.2f} s; one at a time through transformers' own forward: {apart:.2f} s"
    yield f"  ratio {apart / together:.2f} x; mean losses differ by at most {worst:.1e} nats"


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
