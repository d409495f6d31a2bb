"""Who computes: not the visitor's script thread.

``run`` hands an engine function to a worker; whoever asks for the same key waits on the same job, and draws its place in
line and its progress. The key holds everything that can influence a result.
"""

import gc
import sys
import threading
import time
from collections.abc import Callable, Hashable
from functools import cache, lru_cache

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.web.server.starlette.starlette_app_utils import decode_xsrf_token_string

from engine.device import compute_device
from engine.models.catalog import identity
from engine.params import restrict
from engine.settings import settings
from pages.shared.jobs import Job, Store
from pages.shared.panel import run_again

QUIET_SECONDS = 0.3
POLL_SECONDS = 0.1
AGAIN_SECONDS = 0.7
IN_LINE_POLL_SECONDS = 1.0
BROWSER_COOKIE = "_streamlit_xsrf"
_making = threading.Lock()


def store() -> Store:
    """Return the one store of this process."""
    with _making:
        return _made()


@cache
def _made() -> Store:
    """Return a store, with the process prepared for many visitors at once (measured: MEASUREMENTS.md)."""
    gc.freeze()  # what has been imported by now stays
    gc.set_threshold(5_000, 10, 100)  # a look through all sessions takes a quarter of a second, in which nobody is answered: seldom
    sys.setswitchinterval(0.02)  # a page's script and the server pass the interpreter to each other for every message otherwise
    limits = settings()
    return Store(limits.store * 2**20, limits.jobs, limits.grace, limits.queue, limits.per_visitor)


def run(function: Callable, params):
    """Return ``function(params)``, from the store or from a worker, drawing progress after a moment.

    ``params`` is restricted to the fields that the function uses; with the function's name, the device and the
    identity of the model's files it is the key. Engine errors come out as they are.
    """
    params, held = restrict(function, params), store()
    key = _key(function, params)
    job = held.finished(key)
    if job is None:  # nothing is joined and left for what is there already: a page asks for ten results in a run
        who = _visitor()
        job = held.join(key, lambda on_step: function(params, on_step), _kind(function, params), who)
        try:
            _wait(job)
        finally:
            held.leave(job, who)
    if job.error is not None:
        raise job.error
    st.session_state["_seconds"] = job.seconds
    return job.result


def follow(function: Callable, params):
    """Return (what ``function(params)`` has so far, whether that is all), drawing progress and a button to stop.

    While it runs the page runs again every moment, so every picture grows in place; who stops keeps what there is. For a
    function that offers parts (``engine.progress.offer``).
    """
    params = restrict(function, params)
    key, stopped = _key(function, params), st.session_state.setdefault("_stopped", {})
    if key in stopped:
        st.caption("Stopped: this is what there was.")
        st.button("Go on", key=f"go_on_{function.__name__}", on_click=stopped.pop, args=(key, None))
        return stopped[key], True
    who, place = _visitor(), st.empty()
    job = store().join(key, lambda on_step: function(params, on_step), _kind(function, params), who)
    try:
        while not job.done.wait(QUIET_SECONDS) and job.partial is None:
            _draw(job, place)
        place.empty()
    finally:
        store().leave(job, who)
    if job.error is not None:
        raise job.error
    if job.done.is_set():
        st.session_state["_seconds"] = job.seconds
        return job.result, True
    so_far = job.partial

    def stop() -> None:
        stopped[key] = job.partial
        store().stop(job)

    _again_in_a_moment(job, stop, function.__name__)
    return so_far, False


def begin_again(function: Callable, params) -> None:
    """Forget that the visitor has stopped a computation."""
    st.session_state.get("_stopped", {}).pop(_key(function, restrict(function, params)), None)


def so_far(function: Callable, params):
    """Return what there is of ``function(params)`` by now: all of it, a part, or None; nothing is started."""
    key = _key(function, restrict(function, params))
    job, stopped = store().known(key), st.session_state.get("_stopped", {})
    if job is not None and job.done.is_set():
        return job.result
    return stopped.get(key) or (job.partial if job else None)


def _again_in_a_moment(job: Job, stop: Callable, name: str) -> None:
    """Draw progress and the button to stop, and let the page run again."""
    drawn = time.monotonic()

    @st.fragment(run_every=AGAIN_SECONDS)
    def again() -> None:
        if time.monotonic() - drawn > AGAIN_SECONDS / 2:
            run_again()
        with st.container(horizontal=True, vertical_alignment="center"):
            _draw(job, st)
            st.button("Stop", key=f"stop_{name}", on_click=stop)

    again()


def outside(function: Callable, params):
    """Return ``run``'s result for a caller that is no page: nothing is drawn, nobody is counted."""
    params = restrict(function, params)
    job = store().join(_key(function, params), lambda on_step: function(params, on_step), _kind(function, params))
    job.done.wait()
    store().leave(job)
    if job.error is not None:
        raise job.error
    return job.result


def _key(function: Callable, params) -> Hashable:
    """Return all that can influence a result: function, parameters, device, and the identity of the model's files."""
    return _name(function), params, compute_device().name, identity_now(params.model) if hasattr(params, "model") else None


def identity_now(model: str) -> Hashable:
    """Return what identifies a model's files, at most a second old."""
    return _identity(model, int(time.monotonic()))


@lru_cache(maxsize=64)
def _identity(model: str, _second: int) -> Hashable:
    """Return what identifies a model's files, looked up once a second: a page asks ten times in a run."""
    return identity(model)


def _kind(function: Callable, params) -> Hashable:
    """Return what tells how long a computation takes: function and model."""
    return _name(function), getattr(params, "model", None)


def _name(function: Callable) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _visitor() -> Hashable:
    """Return the browser that asks, whatever its number of tabs; its session where there is no cookie."""
    token, _ = decode_xsrf_token_string(st.context.cookies.get(BROWSER_COOKIE, ""))  # its cookie's text is another one for every tab
    context = get_script_run_ctx()
    return token or (context.session_id if context else None)


def _wait(job: Job) -> None:
    """Wait for a job; after a moment show how far it is. Drawing is also where Streamlit ends a script that has moved on."""
    if job.done.wait(QUIET_SECONDS):
        return
    place, poll = st.empty(), POLL_SECONDS
    while not job.done.wait(poll):
        poll = _draw(job, place)
    place.empty()


def _draw(job: Job, where) -> float:
    """Draw a job's place in line, or its progress; return after how many seconds it is worth drawing again."""
    place = store().place(job)
    if place:
        before = f"{place.ahead} before this" if place.ahead else "this is next"
        where.progress(0.0, f"In line: {before}, about {max(place.seconds, 1):.0f} s until it starts …")
        return IN_LINE_POLL_SECONDS
    done, total, message = job.progress
    where.progress(done / total if total else 0.0, f"{message}: {done} of {total}" if total else f"{message} …")
    return POLL_SECONDS
