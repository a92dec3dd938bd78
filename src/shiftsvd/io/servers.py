"""Read objects of servers by ranges of bytes: HTTP with checks of each answer, other stores by fsspec."""

import io
import math
import os
import re
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from shiftsvd.errors import public_address, without_secrets
from shiftsvd.io.base import optional

_TIMEOUT: Final = "SHIFTSVD_TIMEOUT"
_PAUSES: Final = (0.5, 1.0, 2.0)  # seconds before each of three further attempts
_SLOWEST: Final = 2**14  # bytes per second: a server that sends less for the time of the timeout makes no progress
_PIECE: Final = 2**16  # bytes read from a socket at once
_LARGEST: Final = 2**31  # bytes of an object that is read whole: a chunk, or metadata
METADATA: Final = (".zmetadata", "zarr.json", ".zgroup", ".zarray")  # files that make a folder of a server a Zarr one
_TAGS: Final = ["ETag", "etag", "LastModified", "last_modified", "generation", "version", "mtime", "updated", "created"]
_DOWNLOAD: Final = "Download the file, and pass its path."
_BUSY: Final = (408, 425, 429, 500, 502, 503, 504)


class Stat(NamedTuple):
    """Size of an object in bytes, and text that changes with its content."""

    size: int
    tag: str


def failed(address: str, why: str, kind: type[OSError] = OSError) -> OSError:
    return kind(f"{public_address(address)} {why}")


def late(address: str, seconds: float) -> OSError:
    return failed(address, f"sent no complete answer for {seconds:g} s ({_TIMEOUT}). Try again later.")


def unreadable(address: str, why: str) -> OSError:
    return failed(address, f"cannot be read: {why}. {_DOWNLOAD}")


def joined(address: str, name: str) -> str:
    path, mark, query = address.partition("?")
    name = quote(name) if address.startswith("http") else name
    return f"{path.rstrip('/')}/{name}{mark}{query}"


def timeout() -> float:
    given = os.environ.get(_TIMEOUT, "60")
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ValueError(f"{_TIMEOUT} must be a number of seconds above 0, got {given!r}.")
    return seconds


class _AgainError(Exception):
    """A failure that may pass: the request is repeated."""


class _TimedFile(io.RawIOBase):
    """A socket that is read until a deadline."""

    def __init__(self, raw: Any, seconds: float) -> None:
        self.raw, self.until = raw, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self.until:
            raise TimeoutError
        read: int | None = self.raw.readinto(buffer)
        return read

    def close(self) -> None:
        self.raw.close()
        super().close()


class _Answer(HTTPResponse):
    """An answer whose headers must arrive within the timeout of its socket, which alone holds for each packet."""

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._file = _TimedFile(self.fp.detach(), sock.gettimeout() or math.inf)
        self.fp = io.BufferedReader(self._file)

    def begin(self) -> None:
        super().begin()
        self._file.until = math.inf  # the body has a limit of its own


def _with_deadline(pool: Any) -> Any:
    connection = type("Connection", (pool.ConnectionCls,), {"response_class": _Answer})
    return type("Pool", (pool,), {"ConnectionCls": connection})


# `Http` and `Store` have the same methods, whose errors begin with the address. `fetch` returns the bytes `lo` to `hi`
# of an object (None: to its end; fewer at its end) and its `Stat`; `listing` returns the objects of a folder by their
# paths in it, or None if the server has no lists.


class Http:
    """A server of HTTP; each answer must hold exactly the bytes that were requested."""

    def __init__(self, seconds: float) -> None:
        requests = optional("requests", "remote")
        self._seconds, self._session = seconds, requests.Session()
        for scheme in ("http", "https"):
            adapter = requests.adapters.HTTPAdapter(pool_connections=4, pool_maxsize=64)
            pools = adapter.poolmanager.pool_classes_by_scheme
            adapter.poolmanager.pool_classes_by_scheme = {**pools, scheme: _with_deadline(pools[scheme])}
            self._session.mount(f"{scheme}://", adapter)
        weakref.finalize(self, self._session.close)

    def stat(self, address: str) -> Stat:
        return self.fetch(address, 0, 1)[1]  # addresses that are signed for GET refuse HEAD

    def is_folder(self, address: str) -> bool:
        path = address.partition("?")[0].rstrip("/")
        if path.rpartition("/")[2] in METADATA or (not path.endswith(".zarr") and self._has(address)):
            return False
        return any(self._has(joined(address, name)) for name in METADATA)

    def _has(self, address: str) -> bool:
        try:
            self.stat(address)
        except (FileNotFoundError, PermissionError):  # S3 answers 403 for absent objects of a bucket without lists
            return False
        return True

    def listing(self, address: str) -> None:
        return None

    def fetch(self, address: str, lo: int, hi: int | None) -> tuple[bytes, Stat]:
        for pause in (*_PAUSES, None):
            try:
                return self._answered(address, lo, hi)
            except _AgainError as error:
                if pause is None:
                    raise failed(address, f"{error} ({len(_PAUSES) + 1} attempts). Try again later.") from None
                time.sleep(pause)
        raise AssertionError

    def _answered(self, address: str, lo: int, hi: int | None) -> tuple[bytes, Stat]:
        headers = {"Accept-Encoding": "identity"}
        if lo or hi is not None:
            headers["Range"] = f"bytes={lo}-{'' if hi is None else hi - 1}"
        with (
            self._requesting(address),
            self._session.get(address, headers=headers, stream=True, timeout=self._seconds) as answer,
        ):
            self._check_status(address, answer)
            tag = f"{answer.headers.get('ETag', '')} {answer.headers.get('Last-Modified', '')}"
            if answer.status_code == 416:
                return b"", Stat(_total(address, answer), tag)
            first, last, total = _span(address, answer, lo, hi, asked="Range" in headers)
            body = self._body(address, answer, None if last is None else last - first)
            return body, Stat(lo + len(body) if total is None else total, tag)

    @contextmanager
    def _requesting(self, address: str) -> Iterator[None]:
        requests, urllib3 = optional("requests", "remote"), optional("urllib3", "remote")
        # The texts of these errors hold the whole address: none is shown or chained.
        try:
            yield
        except (requests.Timeout, urllib3.exceptions.TimeoutError):
            raise late(address, self._seconds) from None
        except (requests.exceptions.SSLError, urllib3.exceptions.SSLError):
            raise failed(address, "cannot be read: the certificate of the server is not valid.") from None
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError, urllib3.exceptions.HTTPError) as e:
            causes, timeout = list(_causes(e)), urllib3.exceptions.TimeoutError
            if any(isinstance(each, urllib3.exceptions.NameResolutionError) for each in causes):
                unknown = "cannot be read: the name of the server is unknown (DNS). Check the address."
                raise failed(address, unknown) from None
            refused = urllib3.exceptions.NewConnectionError  # in urllib3 2 a subclass of TimeoutError
            if any(isinstance(each, timeout) and not isinstance(each, refused) for each in causes):
                raise late(address, self._seconds) from None
            why = next((each.strerror for each in causes if isinstance(each, OSError) and each.strerror), None)
            raise _AgainError(f"cannot be read: {why or 'the connection ended early'}") from None
        except requests.RequestException as error:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
            raise failed(address, f"cannot be read: {words}.") from None

    def _check_status(self, address: str, answer: Any) -> None:
        code = answer.status_code
        shown = f"{code} ({answer.reason})" if answer.reason else str(code)
        if code in (200, 206, 416):
            return
        if code in (404, 410):
            raise failed(address, f"does not exist: the server answers {shown}.", FileNotFoundError)
        if code in (401, 403, 407):
            remedy = "Check the address and your credentials for this server."
            raise failed(address, f"cannot be read: the server answers {shown}. {remedy}", PermissionError)
        if code in _BUSY:
            raise _AgainError(f"cannot be read: the server answers {shown}")
        raise unreadable(address, f"the server answers {shown}")

    def _body(self, address: str, answer: Any, expected: int | None) -> bytes:
        most = _LARGEST if expected is None else expected
        body, since, mark = bytearray(), time.monotonic(), 0
        while len(body) <= most and (piece := answer.raw.read1(_PIECE, decode_content=False)):
            body += piece
            if (waited := time.monotonic() - since) > self._seconds:
                if len(body) - mark < _SLOWEST * waited:
                    slow = f"sent only {len(body) - mark:,} bytes in {waited:.0f} s ({_TIMEOUT}). Try again later."
                    raise failed(address, slow)
                since, mark = time.monotonic(), len(body)
        if len(body) > most:
            raise unreadable(address, f"the server sends more than the {most:,} bytes requested")
        if expected is not None and len(body) < expected:
            raise _AgainError(f"cannot be read: the server sent {len(body):,} of {expected:,} bytes")
        return bytes(body)


def _total(address: str, answer: Any) -> int:
    found = re.fullmatch(r"bytes \*/(\d+)", answer.headers.get("Content-Range", ""))
    if found is None:
        raise unreadable(address, "the server answers 416 (range) without the size of the file")
    return int(found[1])


def _span(address: str, answer: Any, lo: int, hi: int | None, *, asked: bool) -> tuple[int, int | None, int | None]:
    # First byte, end and total of an answer; end and total are None for a whole object of unknown length.
    packed, length = answer.headers.get("Content-Encoding", "identity"), answer.headers.get("Content-Length", "")
    if packed not in ("identity", ""):
        raise unreadable(address, f"the server compresses its answers ({packed!r}) unasked")
    declared = int(length) if re.fullmatch(r"\d{1,18}", length) else None
    if answer.status_code == 200:
        if lo == 0 and not (asked and (declared is None or hi is None or declared > hi)):
            return 0, declared, declared
        whole = "cannot be read by parts: the server answers requests of ranges with the whole file."
        raise failed(address, f"{whole} {_DOWNLOAD}")
    given = answer.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", given)
    if found is None:
        raise unreadable(address, f"Content-Range must be 'bytes FIRST-LAST/SIZE', got {given[:80]!r}")
    first, end, total = int(found[1]), int(found[2]) + 1, int(found[3])
    if (first, end) != (lo, total if hi is None else min(hi, total)) or declared not in (None, end - first):
        wanted = f"{lo:,}-{'' if hi is None else f'{hi - 1:,}'}"
        raise unreadable(address, f"bytes {wanted} were requested, the server sent {given!r}")
    return first, end, total


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[Any] = [error]
    while seen:
        each = seen.pop()
        if isinstance(each, BaseException):
            yield each
            seen += [each.__cause__ or each.__context__, getattr(each, "reason", None), *each.args]


# Errors of libraries of stores that are not OSErrors, by module; the module is in memory if it can raise one.
_RAISED: Final = {
    "botocore.exceptions": "BotoCoreError",
    "google.auth.exceptions": "GoogleAuthError",
    "aiohttp": "ClientError",
    "azure.core.exceptions": "AzureError",
}


class Store:
    """A store that fsspec opens: s3, gs, memory and others; its packages find the credentials and repeat requests."""

    def __init__(self, address: str, seconds: float) -> None:
        core, asyn, exceptions = (optional(f"fsspec.{part}", "remote") for part in ("core", "asyn", "exceptions"))
        scheme = address.partition("://")[0]
        waits = {"connect_timeout": seconds, "read_timeout": seconds}
        options: dict[str, Any] = {"config_kwargs": waits, "use_listings_cache": False} if scheme == "s3" else {}
        try:
            files = core.url_to_fs(address, skip_instance_cache=True, **options)[0]
        except ImportError as error:
            raise ImportError(f"{public_address(address)} needs another package. {error}.") from None
        except ValueError as error:
            raise ValueError(f"{public_address(address)} cannot be opened: {without_secrets(str(error))}.") from None
        self._seconds, self._files = seconds, files
        self._sync, self._expired = asyn.sync, exceptions.FSTimeoutError

    def stat(self, address: str) -> Stat:
        return _stat_of(self._call(address, "info", 0))

    def is_folder(self, address: str) -> bool:
        return bool(self._call(address, "isdir", 0))

    def listing(self, address: str) -> dict[str, Stat]:
        root = self._files._strip_protocol(address).rstrip("/") + "/"
        found = self._call(address, "find", 0, detail=True)
        return {name.removeprefix(root): _stat_of(each) for name, each in sorted(found.items())}

    def fetch(self, address: str, lo: int, hi: int | None) -> tuple[bytes, Stat]:
        if lo == 0 and hi is None:
            data = self._call(address, "cat_file", _LARGEST // 2**10)
        else:
            data = self._call(address, "cat_file", (hi or lo) - lo, start=lo, end=hi)
        return bytes(data), self.stat(address)  # after the data: they are those of this object or of an older one

    def _call(self, address: str, name: str, n_bytes: int, **more: Any) -> Any:
        files, kinds = self._files, _raised()
        path = files._strip_protocol(address)
        try:
            if not files.async_impl:
                return getattr(files, name)(path, **more)
            seconds = self._seconds + n_bytes / _SLOWEST
            return self._sync(files.loop, getattr(files, f"_{name}"), path, timeout=seconds, **more)
        except FileNotFoundError:
            raise failed(address, "does not exist.", FileNotFoundError) from None
        except PermissionError as error:
            remedy = "Check the address and your credentials for this store."
            why = without_secrets(str(error)) or "access denied"
            raise failed(address, f"cannot be read: {why}. {remedy}", PermissionError) from None
        except self._expired:
            raise late(address, self._seconds) from None
        except kinds as error:
            why = without_secrets(str(error)).strip() or type(error).__name__
            raise failed(address, f"cannot be read: {why}") from None


def _stat_of(info: dict[str, Any]) -> Stat:
    return Stat(int(info.get("size") or 0), " ".join(str(info[name]) for name in _TAGS if name in info))


def _raised() -> tuple[type[Exception], ...]:
    there = ((sys.modules.get(module), name) for module, name in _RAISED.items())
    foreign = (getattr(module, name) for module, name in there if module is not None)
    return (OSError, ValueError, RuntimeError, TypeError, *foreign)
