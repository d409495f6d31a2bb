"""What pages build from results, kept while it is asked for again: pictures as JSON, numbers worked out from several results.

A room moves the same sliders: what one visitor has seen is not built again for the next. Arguments count as the same if they
are equal, or, where they cannot be compared (results, which hold arrays), if they are the same object: the store shares those.
"""

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache

CAPACITY = 48 * 2**20
SMALL = 2**12


def size_of(result) -> int:
    """Return roughly how many bytes a result keeps alive."""
    if isinstance(result, np.ndarray):
        return result.nbytes
    if is_dataclass(result):
        return 200 + sum(size_of(getattr(result, f.name)) for f in fields(result))
    if isinstance(result, (tuple, list)):
        return 60 + sum(map(size_of, result))
    if isinstance(result, dict):
        return 200 + sum(map(size_of, result.values()))
    return sys.getsizeof(result)


_lock = threading.Lock()
_kept: LRUCache[Hashable, object] = LRUCache(CAPACITY, getsizeof=size_of)
_marks: dict[int, tuple[weakref.ref, int]] = {}
_next_mark = itertools.count()


class Picture(NamedTuple):
    """A figure as two lines of JSON, traces and layout, and its height in pixels."""

    lines: tuple[bytes, bytes]
    height: int


def remembered(function: Callable) -> Callable:
    """Return ``function`` with its results kept, as long as they fit; for a function of its arguments alone."""

    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(*args, **kwargs):
        key = (name, _mark(args), _mark(kwargs))
        with _lock:
            if key in _kept:
                return _kept[key]
        value = function(*args, **kwargs)
        with _lock:
            if size_of(value) <= _kept.maxsize:
                _kept[key] = value
        return value

    return kept


class Pictures:
    """The figures of some modules of ``engine.figures``, each function remembered and returning a Picture; what else they hold is passed on."""

    def __init__(self, *names: str):
        self._modules = [import_module(f"engine.figures.{name}") for name in names]

    def __getattr__(self, name: str):
        found = next((getattr(module, name) for module in self._modules if hasattr(module, name)), None)
        if found is None:
            raise AttributeError(f"engine.figures has no {name} in {[module.__name__ for module in self._modules]}.")
        is_figure = callable(found) and getattr(getattr(found, "__annotations__", {}).get("return"), "__name__", "") == "Figure"
        setattr(self, name, _drawn(found) if is_figure else found)
        return getattr(self, name)


def _drawn(draw: Callable) -> Callable:
    from engine.figures.theme import as_json  # home shows pictures too, and imports no plotly

    @wraps(draw)
    def made(*args, **kwargs) -> Picture:
        figure = draw(*args, **kwargs)
        json = as_json(figure)
        return Picture((json["traces"].encode(), json["layout"].encode()), figure.layout.height)

    return remembered(made)


def _mark(value) -> Hashable:
    """Return a key of a value: itself if it can be compared, else what identifies this one object."""
    if isinstance(value, dict):
        return tuple((name, _mark(item)) for name, item in value.items())
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_mark, value))
    if isinstance(value, np.ndarray) and value.nbytes <= SMALL:
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, set):
        value = frozenset(value)
    try:
        hash(value)
    except TypeError:
        return _mark_of_object(value)
    return type(value), value


def _mark_of_object(value) -> Hashable:
    """Return a number that no other object has had or will have."""
    where = id(value)
    with _lock:
        found = _marks.get(where)
        if found is None or found[0]() is not value:
            found = _marks[where] = weakref.ref(value, lambda _: _marks.pop(where, None)), next(_next_mark)
        return found[1]
