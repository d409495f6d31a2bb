"""A server that is told to stop says so first, and goes on answering until its visitors have been taken elsewhere."""

import os
import signal
import time
import urllib.request

from pages.shared.hosting import DRAIN_SECONDS
from tests.benchmarks._visitor import Visitor
from tests.benchmarks.load import hosted, ready
from tests.conftest import finished


def test_stopping_drains():
    with hosted() as (port, pid):
        address = f"http://127.0.0.1:{port}"
        assert ready(address)
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.5)
        assert not ready(address)
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
            assert answer.status == 200

        async def visit():
            visitor = Visitor(port, "projections")
            await visitor.arrive()
            await visitor.leave()
            return visitor.broken + visitor.trouble

        assert finished(visit()) == []
        end = time.monotonic() + DRAIN_SECONDS + 20
        gone = 0
        while gone != pid and time.monotonic() < end:
            time.sleep(0.2)
            gone, _ = os.waitpid(pid, os.WNOHANG)
        assert gone == pid
