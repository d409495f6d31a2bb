"""A hub on this machine that answers as the real one does, as far as the client library asks: enough to download from."""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Repository:
    """Files by name, and who may read them."""

    files: dict[str, bytes]
    gated: bool = False
    revisions: tuple[str, ...] = ("main",)


@dataclass
class StubHub:
    """Repositories by id; ``served`` counts the bytes of file contents sent, ``cut`` ends each file's first answer early."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    served: list[tuple[str, int]] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)

    def __enter__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *failure):
        self.server.shutdown()
        self.server.server_close()


def commit(repo: str) -> str:
    return hashlib.sha1(repo.encode()).hexdigest()


def _handler(hub: StubHub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def do_HEAD(self):
            self._answer(body=False)

        def do_GET(self):
            self._answer(body=True)

        def _answer(self, body: bool):
            parts = urlsplit(self.path).path.strip("/").split("/")
            listing = parts[:2] == ["api", "models"]
            owner, name, _, revision, *file = parts[2:] if listing else parts
            repo = hub.repositories.get(f"{owner}/{name}")
            if repo is None:
                return self._refuse(401, "RepoNotFound")
            if revision not in (*repo.revisions, commit(f"{owner}/{name}")):
                return self._refuse(404, "RevisionNotFound")
            if listing:
                siblings = [{"rfilename": n, "size": len(c), "blobId": "0"} for n, c in repo.files.items()]
                return self._send(json.dumps({"id": f"{owner}/{name}", "sha": commit(f"{owner}/{name}"), "siblings": siblings}).encode(), body)
            if repo.gated and "Authorization" not in self.headers:
                return self._refuse(401, "GatedRepo")
            if "/".join(file) not in repo.files:
                return self._refuse(404, "EntryNotFound")
            return self._file(f"{owner}/{name}", file[0], repo.files[file[0]], body)

        def _file(self, repo: str, name: str, content: bytes, body: bool):
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            tag = hashlib.sha256(content).hexdigest()
            headers = {"X-Repo-Commit": commit(repo), "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            sent = content[start:]
            stop = hub.cut.pop(name, None) if body else None
            if body:
                hub.served.append((name, len(sent) if stop is None else stop))
            self._send(sent, body, 206 if start else 200, headers, stop)

        def _send(self, content: bytes, body: bool, status: int = 200, headers=None, stop: int | None = None):
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content[:stop])
            if stop is not None:
                self.close_connection = True

        def _refuse(self, status: int, code: str):
            self._send(b"", True, status, {"X-Error-Code": code, "X-Error-Message": code})

    return Handler
