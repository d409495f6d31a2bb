"""Fable's heads switched off one by one: a layer's heads in one batch against one head at a time, in one process."""

import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import torch

from engine.ablation import effect, sweep
from engine.changes import MANY, Subject
from engine.device import CPU_THREADS, use_all_threads
from engine.models.interventions import steered
from engine.progress import silent
from engine.spectra import SpectraParams

ROUNDS = 3


def lines() -> Iterator[str]:
    """Yield seconds of both ways, their ratio, and the seconds of one change."""
    use_all_threads()
    contenders = {"batched": lambda: sweep(SpectraParams()), "single": one_at_a_time, "effect": lambda: effect(SpectraParams(off="2.5"))}
    seconds = {name: [] for name in contenders}
    for done in range(ROUNDS + 1):
        for name, function in contenders.items():
            started = time.perf_counter()
            function()
            if done:
                seconds[name].append(time.perf_counter() - started)
    middle = {name: median(values) for name, values in seconds.items()}
    yield f"ablation: {CPU_THREADS} CPU threads; medians of {ROUNDS} interleaved rounds in one process"
    ratio = middle["single"] / middle["batched"]
    yield f"  all 32 heads of Fable, batched: {middle['batched']:.2f} s; one at a time: {middle['single']:.2f} s, {ratio:.1f} x"
    yield f"  one head, before and after: {middle['effect']:.2f} s"


def one_at_a_time() -> None:
    """Measure every head in passes of its own over the same text, each computed from the first layer on."""
    subject = Subject(SpectraParams(), silent)
    text, repeats = subject.windows(MANY)[0], subject.repeats(MANY)
    for layer, head in np.ndindex(subject.shape.n_layers, subject.shape.n_heads):
        with steered([subject.changes([(layer, head)])], 1), torch.no_grad():
            for ids in (text, repeats):
                subject.model(input_ids=ids, use_cache=False)


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
