"""A visitor without a browser: Streamlit's websocket protocol, to this machine only."""

import asyncio
import time
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.Slider_pb2 import Slider
from websockets.asyncio.client import connect

FINISHED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)
PATIENCE = 300
STEPS = 15


class Visitor:
    """One tab: opens a page, moves one of its sliders, and remembers what came back."""

    def __init__(self, port: int, page: str, query: str = "", slider: str = ""):
        self.port, self.page, self.query, self.slider = port, page, dict(parse_qsl(query)), slider
        self.sliders: dict[str, tuple[Slider, str]] = {}
        self.states: dict[str, float] = {}
        self.script, self.socket = "", None
        self.moves = self.bytes = self.messages = 0
        self.trouble: list[str] = []
        self.broken: list[str] = []
        self.answered: list[tuple[float, float]] = []

    async def arrive(self) -> float:
        """Connect, open the page, and return the seconds until its script has finished."""
        started = time.perf_counter()
        address = f"ws://127.0.0.1:{self.port}/_stcore/stream"
        self.socket = await connect(
            address, subprotocols=["streamlit"], max_size=None, compression=None, open_timeout=60, ping_interval=None, proxy=None
        )
        await self._ask()
        return time.perf_counter() - started

    async def move(self) -> float:
        """Move the slider by a step, back to its start after a few, and return the seconds until the page has answered."""
        slider, fragment = next(found for found in self.sliders.values() if found[0].label.startswith(self.slider))
        value = slider.min + slider.step * (self.moves % (1 + min(STEPS, round((slider.max - slider.min) / slider.step))))
        self.moves, self.states[slider.id] = self.moves + 1, value
        if slider.query_param_key:
            self.query[slider.query_param_key] = f"{value:.0f}" if slider.data_type == Slider.INT else f"{value:g}"
        started = time.perf_counter()
        await self._ask(fragment)
        self.answered.append((time.perf_counter(), time.perf_counter() - started))
        return self.answered[-1][1]

    async def leave(self) -> None:
        """Close the connection."""
        if self.socket is not None:
            await self.socket.close()

    async def _ask(self, fragment: str = "") -> None:
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_script_hash, state.fragment_id = urlencode(self.query), self.script, fragment
        state.page_name = "" if self.script else self.page
        state.context_info.url = f"http://127.0.0.1:{self.port}/{self.page}"
        for name, value in self.states.items():
            widget = state.widget_states.widgets.add(id=name)
            widget.double_array_value.data.append(value)
        await self.socket.send(message.SerializeToString())
        async with asyncio.timeout(PATIENCE):
            while not self._is_over(await self.socket.recv()):
                pass

    def _is_over(self, raw: bytes) -> bool:
        """Take in one message; return whether it ends the script's run."""
        self.bytes, self.messages = self.bytes + len(raw), self.messages + 1
        message = ForwardMsg.FromString(raw)
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self.script = message.new_session.page_script_hash
        elif kind == "delta":
            self._see(message.delta)
        elif kind == "script_finished" and message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
            self.broken.append("compile error")
            return True
        return kind == "script_finished" and message.script_finished in FINISHED

    def _see(self, delta) -> None:
        element = delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.broken.append(element.exception.message)
        elif kind == "alert" and element.alert.format == element.alert.ERROR:
            self.trouble.append(element.alert.body)
        elif kind == "slider" and element.slider.type == Slider.SLIDER and not element.slider.disabled:
            self.sliders[element.slider.id] = (element.slider, delta.fragment_id)


async def everybody(visitors: list[Visitor], within: float) -> tuple[list[float], list[str]]:
    """Let all arrive, evenly spread over some seconds; return how long each opening took, and what went wrong."""

    async def one(i: int, visitor: Visitor):
        await asyncio.sleep(within * i / len(visitors))
        return await visitor.arrive()

    found = await asyncio.gather(*(one(i, v) for i, v in enumerate(visitors)), return_exceptions=True)
    return [f for f in found if isinstance(f, float)], [repr(f) for f in found if not isinstance(f, float)]


async def moving(visitors: list[Visitor], seconds: float, every: float = 2.0) -> tuple[list[float], list[str]]:
    """Let each move its slider every two seconds, out of step with the others; return the answers' seconds, and what went wrong.

    Who has not been answered when the next move is due moves as soon as the answer is there, and keeps its own beat: people whom
    a pause of the server has held up do not go on in step.
    """
    end = time.perf_counter() + seconds

    async def one(i: int, visitor: Visitor):
        times = []
        due = time.perf_counter() + every * i / len(visitors)
        while due < end:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            times.append(await visitor.move())
            due += every * max(1, (time.perf_counter() - due) // every)
        return times

    found = await asyncio.gather(*(one(i, v) for i, v in enumerate(visitors)), return_exceptions=True)
    return [t for times in found if isinstance(times, list) for t in times], [repr(f) for f in found if not isinstance(f, list)]


def troubles(visitors: list[Visitor]) -> Iterator[str]:
    """Yield every error that a page showed."""
    for visitor in visitors:
        yield from (f"{visitor.page}: {said}" for said in visitor.broken + visitor.trouble)
