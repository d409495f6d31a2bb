"""The set-up of compose.yaml without containers: replicas on this machine behind Debian's haproxy.

    python deploy/local.py --replicas 2 --port 8080

Stops with Ctrl-C, and all that it started with it.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Start the replicas and the proxy, and wait for the proxy to end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    if shutil.which("haproxy") is None:
        print("haproxy is not installed here; on Debian: apt install haproxy.", file=sys.stderr)
        return 2
    ports = range(options.port + 1, options.port + 1 + options.replicas)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as replicas:
        replicas.write("backend lab\n" + "".join(f"    server lab{port} 127.0.0.1:{port}\n" for port in ports))
        replicas.flush()
        started = []
        try:
            for port in ports:
                started.append(replica(port))
            command = ["haproxy", "-f", str(HERE / "haproxy.cfg"), "-f", replicas.name]
            started.append(subprocess.Popen(command, env={**os.environ, "BIND": f"127.0.0.1:{options.port}"}))
            print(f"http://127.0.0.1:{options.port} with replicas on {', '.join(map(str, ports))}", flush=True)
            return started[-1].wait()
        except KeyboardInterrupt:
            return 0
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(20)


def replica(port: int) -> subprocess.Popen:
    """Start one server of the lab, for this machine only."""
    command = [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.address", "127.0.0.1", "--server.port", str(port)]
    return subprocess.Popen([*command, "--server.headless", "true"], cwd=HERE.parent)


if __name__ == "__main__":
    sys.exit(main())
