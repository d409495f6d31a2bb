"""Where tensors are computed: the only module that knows device names.

Everything is stored and returned in the precision it was asked for; spectra are always computed in double precision,
which Apple's GPUs lack, so those are never chosen on their own.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import torch

from engine.errors import InputError
from engine.settings import settings

SETTING = "BARE_WEIGHTS_DEVICE"
BACKGROUND = 5  # the kernel's "nice" value: about a third of the share of a thread at 0
CHOICES = ("auto", "cpu", "cuda")
CPU_THREADS = min(torch.get_num_threads(), settings().threads or torch.get_num_threads())
NUMPY_ALONE = os.environ.get("OPENBLAS_NUM_THREADS") == "1"
"""Whether numpy keeps to the thread that calls it. The programs of this repository say so before numpy is imported."""


@dataclass(frozen=True)
class Device:
    """What computes: a torch device name and a label for people, such as ``2 CPU threads``."""

    name: str
    label: str


def compute_device(setting: str | None = None) -> Device:
    """Return the device of this process: a CUDA GPU if torch sees one, else the CPU.

    ``setting`` (default: the environment variable ``BARE_WEIGHTS_DEVICE``) forces ``cpu`` or ``cuda``.
    Raises InputError for any other value, or when CUDA is asked for and absent.
    """
    return _device((setting or os.environ.get(SETTING) or "auto").strip().lower())


@cache
def _device(asked: str) -> Device:
    """Return the device that a setting means: what torch sees does not change, and a page asks twenty times in a run."""
    if asked not in CHOICES:
        raise InputError(f"{SETTING} is {asked[:40]!r}; accepted are {', '.join(CHOICES)}.")
    has_gpu = torch.cuda.is_available()
    if asked == "cuda" and not has_gpu:
        raise InputError(f"{SETTING} asks for cuda, but this torch sees no GPU; use cpu or install a CUDA build of torch.")
    if has_gpu and asked != "cpu":
        return Device("cuda", torch.cuda.get_device_name(0))
    return Device("cpu", f"{CPU_THREADS} CPU thread{'s' if CPU_THREADS != 1 else ''}")


def use_all_threads() -> None:
    """Let the calling thread's torch operations use every CPU thread; for threads started after ``parallel_map``.

    torch hands the setting of the thread that set it last to every new thread, so a worker must say what it wants.
    """
    torch.set_num_threads(CPU_THREADS)


def give_way() -> None:
    """Let other threads of this process run first, where the system ranks threads (Linux): for work that nobody drags a slider for."""
    if hasattr(os, "setpriority") and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND)


def parallel_map(function: Callable, items: Iterable) -> list:
    """Return [function(item), ...], computed one item per CPU thread: for small LAPACK kernels, which do not use two."""
    return list(_single_threaded().map(function, items))


def map_heads(function: Callable, items: Iterable, at: torch.Tensor) -> list:
    """Return [function(item), ...]: one item per CPU thread if the tensor ``at`` is on the CPU, in turn if a GPU works on them."""
    return parallel_map(function, items) if at.device.type == "cpu" else [function(item) for item in items]


def workers(at: torch.Tensor) -> int:
    """Return how many items ``map_heads`` works on at once."""
    return CPU_THREADS if at.device.type == "cpu" else 1


def symmetric_product(X: torch.Tensor, out: torch.Tensor) -> None:
    """Put X X^T into ``out``, for X (n, r, m) in float64 on the CPU: with half the multiply-adds where numpy may do it.

    numpy computes one triangle (BLAS syrk), which torch does not offer; but an OpenBLAS with threads of its own lets
    only one caller in at a time, and is then slower than torch.
    """
    if NUMPY_ALONE:
        with np.errstate(all="ignore"):  # torch says nothing of an overflow either: whoever asks looks at the result
            np.matmul(X.numpy(), X.mT.numpy(), out=out.numpy())
    else:
        torch.bmm(X, X.mT, out=out)


@lru_cache(maxsize=1)
def _single_threaded() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CPU_THREADS, thread_name_prefix="lapack", initializer=torch.set_num_threads, initargs=(1,))


def free_memory(device: Device) -> int | None:
    """Return the bytes that a new allocation on the device may use, or None where the system does not say.

    On the CPU: what Linux calls available, within the limit of the process's control group (a container's).
    """
    if device.name == "cuda":
        return torch.cuda.mem_get_info()[0]
    known = [count for count in (_available(), _left_in_group()) if count is not None]
    return min(known, default=None)


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _left_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return limit - use of this control group, counting cached files as free; None without a limit."""
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines()).get("inactive_file", 0)
        return int(limit) - int(used) + int(cached)
    except (OSError, ValueError):  # no such files, or a limit of "max"
        return None


def synchronize(device: Device) -> None:
    """Wait until the device has finished what was queued, so that a clock reads something true."""
    if device.name == "cuda":
        torch.cuda.synchronize()


def autocast(device: Device, enabled: bool = True):
    """Return the bfloat16 autocast context of the device, or a context that does nothing."""
    return torch.autocast(device.name, dtype=torch.bfloat16) if enabled else nullcontext()
