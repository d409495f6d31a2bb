"""The teacher sweep, all members in one batch, beside peft's adapters trained one after the other: time, losses, memory."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from engine.device import CPU_THREADS
from engine.lora import LoraParams, alone, full_members, low_rank_members, train
from engine.teacher import teacher_of

SIZES = (LoraParams(steps=100), LoraParams(d_in=256, d_out=256, batch=64, steps=30))
ROUNDS = 3


def lines() -> Iterator[str]:
    """Yield one line per size: seconds of both, their ratio, the largest difference of their losses, peak memory of both."""
    yield f"lora: teacher sweep, 7 ranks and full, 3 seeds; medians of {ROUNDS} interleaved rounds, {CPU_THREADS} CPU threads offered"
    for params in SIZES:
        times = {"ours": [], "peft": []}
        for _ in range(ROUNDS):
            for name, work in (("ours", ours), ("peft", one_by_one)):
                started = time.perf_counter()
                curves = alone(lambda work=work, params=params: work(params))
                times[name].append(time.perf_counter() - started)
                times[f"{name} curves"] = curves
        mine, theirs = (median(times[name]) for name in ("ours", "peft"))
        apart = np.abs(times["ours curves"] - times["peft curves"]) / np.maximum(times["peft curves"], 1e-3)
        size = f"{params.d_out} x {params.d_in}, batch {params.batch}, {params.steps} steps"
        memory = [peak(name, params) for name in ("ours", "one_by_one")]
        yield f"  {size}: {mine:.2f} s against {theirs:.2f} s, {theirs / mine:.1f} x; one thread each"
        yield f"    largest difference of a loss, over the loss or 0.001: {apart.max():.0e}; grown by {memory[0]:.0f} MiB against {memory[1]:.0f} MiB"


def ours(params: LoraParams) -> np.ndarray:
    """Return the batch losses of all low-rank members and full fine-tuning, (members, steps), trained at once."""
    teacher = teacher_of(params)
    groups = [low_rank_members(params, params.ranks, teacher.W), full_members(params)]
    return np.stack([np.concatenate(losses) for _, losses in train(params, teacher, groups, measure=False) if losses], axis=1)


def one_by_one(params: LoraParams) -> np.ndarray:
    """Return the same losses from peft and torch, one model after the other."""
    from tests.engine.lora_peft import peft_curve, torch_curve

    members = [(rank, s) for rank in params.ranks for s in range(params.n_seeds)]
    return np.stack([*(peft_curve(params, *member) for member in members), *(torch_curve(params, s) for s in range(params.n_seeds))])


def peak(name: str, params: LoraParams) -> float:
    """Return by how many MiB a fresh process grows at its peak while it does the work, once everything is imported."""
    code = f"from tests.benchmarks.lora import grown; print(grown({name!r}, {params.d_in}, {params.batch}))"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()[-1])


def grown(name: str, width: int, batch: int) -> float:
    """Return the growth of this process's peak memory in MiB over the work of a few steps, after a tiny run of the same kind."""
    work = {"ours": ours, "one_by_one": one_by_one}[name]
    work(LoraParams(d_in=8, d_out=8, max_rank=2, rank=2, teacher_rank=2, steps=2))
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak counts from now
    before = _status("VmRSS")
    work(replace(LoraParams(), d_in=width, d_out=width, batch=batch, steps=5))
    return _status("VmHWM") - before


def _status(name: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
