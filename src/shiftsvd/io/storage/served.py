"""A store of Zarr in a folder of a server; imports Zarr."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from shiftsvd.io.location import Location
from shiftsvd.io.servers import METADATA, failed
from shiftsvd.runs.messages import log_notice

_IS_METADATA = (*METADATA, ".zattrs")
Check = Callable[[Location, str, bytes], None]


class ServedStore(Store):  # type: ignore[misc]  # Zarr is not installed for mypy
    """The objects below a location; `check` validates the content of each object that is read whole."""

    supports_writes = supports_deletes = supports_partial_writes = False
    supports_listing = True

    def __init__(self, folder: Location, check: Check) -> None:
        super().__init__(read_only=True)
        self._folder, self._check, self._noticed = folder, check, False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServedStore) and self._folder == other._folder

    def __reduce__(self) -> Any:
        return ServedStore, (self._folder, self._check)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        data = await asyncio.to_thread(self._read, key, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    def _read(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        file, connection = self._folder / key, self._folder.connection
        try:
            if isinstance(byte_range, RangeByteRequest):
                return connection.read(file.address, byte_range.start, byte_range.end)
            if isinstance(byte_range, OffsetByteRequest):
                return connection.read(file.address, byte_range.offset)
            if isinstance(byte_range, SuffixByteRequest):
                size = connection.stat(file.address).size
                return connection.read(file.address, max(0, size - byte_range.suffix), size)
            data = file.read_bytes()
        except FileNotFoundError:
            if key.rpartition("/")[2] not in _IS_METADATA:
                self._notice(file)
            return None
        except PermissionError:  # S3 answers 403 for absent objects of a bucket without lists
            if key.rpartition("/")[2] not in _IS_METADATA:
                raise
            return None
        self._check(self._folder, key, data)
        return data

    def _notice(self, chunk: Location) -> None:
        if not self._noticed:
            self._noticed = True
            why = "no chunk was written, or it was not copied to the server. Its entries have the fill value"
            log_notice(f"{chunk} does not exist: {why}.")

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        return await asyncio.to_thread(self._read, key, None) is not None

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        listing = await asyncio.to_thread(lambda: self._folder.connection.listing)
        if listing is None:
            why = "has no consolidated metadata, and the server does not list folders."
            remedy = f"Add it with zarr.consolidate_metadata, or pass the address of the matrix: {self._folder / 'X'}"
            raise failed(self._folder.address, f"{why} {remedy}")
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        names = (name.removeprefix(start).partition("/")[0] for name in listing if name.startswith(start))
        for name in dict.fromkeys(names):
            yield name

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in self._folder.connection.listing or ():
            if name.startswith(prefix):
                yield name

    async def set(self, key: str, value: Buffer) -> None:
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        raise NotImplementedError
