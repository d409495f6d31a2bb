"""The operator's settings: one switch, and how much a visitor may ask for.

Each is an environment variable; ``pages.shared.hosting`` puts Streamlit secrets of the same names there. Read when asked
for, never kept, so that a test or a notebook may set them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import InputError

HOSTED, ALLOWED = "BARE_WEIGHTS_HOSTED", "BARE_WEIGHTS_MODELS"
YES, NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Setting:
    """A whole number that the operator may set: its environment variable, its range, its value on one's own machine and hosted."""

    variable: str
    low: int
    high: int
    local: int
    hosted: int
    meaning: str


NUMBERS = {
    "prompt": Setting("BARE_WEIGHTS_PROMPT", 20, 100_000, 100_000, 400, "characters of the longest prompt"),
    "sweep": Setting("BARE_WEIGHTS_SWEEP", 1, 64, 64, 8, "repetitions in the largest sweep: networks, adapters, or trained contexts of text"),
    "jobs": Setting("BARE_WEIGHTS_JOBS", 1, 64, 2, 1, "long computations at once"),
    "queue": Setting("BARE_WEIGHTS_QUEUE", 1, 10_000, 1000, 60, "long computations that may wait in line"),
    "per_visitor": Setting("BARE_WEIGHTS_JOBS_PER_VISITOR", 1, 100, 20, 2, "long computations under way for one visitor"),
    "store": Setting("BARE_WEIGHTS_STORE_MIB", 8, 1_000_000, 256, 128, "MiB of results that are kept"),
    "grace": Setting("BARE_WEIGHTS_GRACE", 1, 86_400, 10, 120, "seconds until a computation that nobody waits for is stopped"),
    "threads": Setting("BARE_WEIGHTS_THREADS", 0, 1024, 0, max((os.cpu_count() or 2) - 1, 1), "CPU threads of arithmetic; 0 is all"),
}


@dataclass(frozen=True)
class Settings:
    """What holds in this process: ``hosted``, the ``models`` that the operator lists, and the numbers of ``NUMBERS``."""

    hosted: bool
    models: tuple[str, ...]
    prompt: int
    sweep: int
    jobs: int
    queue: int
    per_visitor: int
    store: int
    grace: int
    threads: int


def settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process; raise InputError, in one sentence, for a value that is not acceptable."""
    environment = os.environ if environment is None else environment
    hosted = _switch(environment.get(HOSTED, ""))
    listed = tuple(name.strip() for name in environment.get(ALLOWED, "").split(",") if name.strip())
    numbers = {name: _number(one, environment.get(one.variable, ""), hosted) for name, one in NUMBERS.items()}
    return Settings(hosted, listed, **numbers)


def is_hosted() -> bool:
    """Whether this process serves a public page."""
    return _switch(os.environ.get(HOSTED, ""))


def _switch(raw: str) -> bool:
    if raw.strip().lower() not in YES + NO:
        raise InputError(f"{HOSTED} is {raw[:40]!r}; accepted are 1 (hosted) and 0.")
    return raw.strip().lower() in YES


def _number(setting: Setting, raw: str, hosted: bool) -> int:
    text = raw.strip()
    if not text:
        return setting.hosted if hosted else setting.local
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else -1
    if not setting.low <= value <= setting.high:
        raise InputError(f"{setting.variable} is {raw[:40]!r}; accepted are whole numbers from {setting.low} to {setting.high} ({setting.meaning}).")
    return value
