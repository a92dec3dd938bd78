"""A local HTTP server of a folder, which answers ranges and, by switches, wrongly."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class FolderServer(ThreadingHTTPServer):
    """Serve the files of a folder; `fault` names what is wrong with answers from number `after` on.

    With `once`, each request (path and range) has the fault at its first attempt alone.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.fault, self.after = folder, "", 0
        self.once, self.failed = False, set[str]()
        self.only = ""  # part of the paths that have the fault
        self.tags = ("ETag", "Last-Modified")  # headers by which a change is noticed
        self.n_answers = self.n_bytes = self.n_faults = 0
        self.rate = 0.0  # bytes per second of all connections together
        self.pause = 0.0  # seconds before each answer
        self.free_at = 0.0
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_fault(self, path: str, span: str) -> str:
        with self.lock:
            self.n_answers += 1
            if not self.fault or self.n_answers <= self.after or self.only not in path:
                return ""
            request = f"{path} {span}"
            if self.once and request in self.failed:
                return ""
            self.failed.add(request)
            self.n_faults += 1
            return self.fault

    def send_slowly(self, n_bytes: int) -> None:
        with self.lock:
            self.n_bytes += n_bytes
            if not self.rate:
                return
            self.free_at = max(self.free_at, time.monotonic()) + n_bytes / self.rate
            until = self.free_at
        time.sleep(max(0.0, until - time.monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # clients close connections


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    server: FolderServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).lstrip("/")
        file = self.server.folder / path
        fault = self.server.next_fault(path, self.headers.get("Range", ""))
        time.sleep(self.server.pause)
        if fault.isdigit():
            self._answer(int(fault), b"no")
            return
        if fault == "hang":
            time.sleep(3)
            return
        if fault == "drip headers":
            for line in ("HTTP/1.1 200 OK", *60 * ["X-More: one"]):
                self.wfile.write(f"{line}\r\n".encode())
                self.wfile.flush()
                time.sleep(0.05)
            return
        if fault == "reset":
            self.close_connection = True
            return
        if fault == "redirect":
            self._answer(302, b"", {"Location": f"/{path}"})
            return
        if fault == "elsewhere":
            self._answer(302, b"", {"Location": "file:///etc/passwd"})
            return
        if not file.is_file():
            self._answer(404, b"no")
            return
        stats = file.stat()
        size = stats.st_size
        tag = {"ETag": f'"{stats.st_mtime_ns:x}-{stats.st_size:x}"', "Last-Modified": formatdate(stats.st_mtime)}
        tag = {name: tag[name] for name in self.server.tags}
        if fault == "etag":
            tag["ETag"] = '"another"'
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None or fault in ("whole", "whole, no length"):
            if fault == "packed":
                tag["Content-Encoding"] = "gzip"
            self._answer(200, file.read_bytes(), tag, fault)
            return
        first, last = int(asked[1]), min(int(asked[2] or size), size - 1)
        if first >= size:
            self._answer(416, b"", {**tag, "Content-Range": f"bytes */{size}"})
            return
        with file.open("rb") as content:
            content.seek(first)
            body = content.read(last + 1 - first)
        spans = {
            "range": f"bytes {first + 1}-{last + 1}/{size + 2}",
            "total": f"bytes {first}-{last}/{size + 7}",
            "unknown": f"bytes {first}-{last}/*",
            "nonsense": "bytes of all kinds",
            "backwards": f"bytes {last + 1}-{first}/{size}",
            "negative": f"bytes -5-{last}/{size}",
            "huge": f"bytes {first}-{last}/{10**30}",
            "none": "",
        }
        headers = {**tag, "Content-Range": spans.get(fault, f"bytes {first}-{last}/{size}")}
        if fault == "none":
            del headers["Content-Range"]
        if fault == "packed":
            headers["Content-Encoding"] = "gzip"
        self._answer(206, body, headers, fault)

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None, fault: str = "") -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        length = len(body)
        if fault == "short":
            body, self.close_connection = body[: len(body) // 2], True
        if fault == "shorter":
            body = body[: len(body) // 2]
            length = len(body)
        if fault == "long":
            body = body + b"more"
            length = len(body)
        if fault in ("chunked long", "whole, no length", "chunked short"):
            self.close_connection = True
            body = body[: len(body) // 2] if fault == "chunked short" else body + b"more"
        else:
            self.send_header("Content-Length", "many" if fault == "length" else str(length))
        if code >= 500:
            self.send_header("Retry-After", "0")
        if fault in ("chunked long", "whole, no length", "chunked short"):
            self.send_header("Connection", "close")
        self.end_headers()
        if fault == "drip":
            for at in range(len(body)):
                self.wfile.write(body[at : at + 1])
                self.wfile.flush()
                time.sleep(0.05)
            return
        self.server.send_slowly(len(body))
        self.wfile.write(body)


@contextmanager
def serving(folder: Path) -> Iterator[FolderServer]:
    server = FolderServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
