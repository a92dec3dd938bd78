"""Word co-occurrences of a text of any length: one reading, memory bounded by the vocabulary."""

import bz2
import gzip
import html
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array

from paper import DataError
from shiftsvd.events import Event, Listener, silent
from shiftsvd.io.base import packing

Normalise = Literal["context", "target"]

CHUNK: Final = 1 << 22  # bytes of text, and ids of the spilled stream, handled at a time
LONGEST: Final = 1 << 26  # bytes without a line end or a space: not a text
TOKEN: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|\n")
LINE_END: Final = 0  # the id of "\n": no pair reaches across it
GENSIM_SAMPLE: Final = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


@dataclass(frozen=True, eq=False)
class WordCounts:
    """Counts of the n most frequent words, in that order, and of the m context words just before them."""

    words: list[str]
    totals: npt.NDArray[np.int64]
    pairs: Any  # csr_array of shape (n, m): how often context j stands just before target i
    n_tokens: int
    n_types: int

    def matrix(self, n: int, normalise: Normalise = "target") -> Any:
        pairs = self.pairs[:n].astype(np.float64)
        if normalise == "target":
            return csr_array(diags_array(1.0 / self.totals[:n]) @ pairs)
        return csr_array(pairs @ diags_array(1.0 / self.totals[: pairs.shape[1]]))


def gensim_sample() -> Path | None:
    spec = find_spec("gensim")
    homes = [] if spec is None else spec.submodule_search_locations or []
    files = [Path(home) / "test" / "test_data" / GENSIM_SAMPLE for home in homes]
    return next((file for file in files if file.is_file()), None)


def lines(path: Path) -> list[str]:
    with path.open("rb") as raw:
        return "".join(_texts(path, raw)).split("\n")


def count_words(path: Path, m: int = 1000, n: int = 300_000, *, scratch: Path, listen: Listener = silent) -> WordCounts:
    """Count the words of a UTF-8 text, and how often each context stands just before each target.

    The text is read once: its words go as int32 ids to a file in `scratch`, and the pairs are counted from
    there when it is known which words are frequent.

    Parameters
    ----------
    path : Path
        Plain text or MediaWiki XML, as it is or compressed by gzip or bzip2 (told by its first bytes).
    m, n : int
        Number of contexts and of targets, each the most frequent words.
    scratch : Path
        An existing directory with room for 4 bytes a word.
    listen : Listener

    Raises
    ------
    DataError
        Not UTF-8 (with the offset and the line), a damaged file, or fewer than m different words.
    """
    spill = scratch / "words.int32"
    try:
        ids = _spill(path, spill, listen)
        totals = _totals(spill, len(ids))
        n_tokens, n_types = int(totals.sum() - totals[LINE_END]), len(ids) - 1
        totals[LINE_END] = -1
        if n_types < m:
            raise DataError(f"corpus {path} has {n_types} different words; {m} are needed as contexts")
        order = np.argsort(-totals, kind="stable")[: min(n, n_types)]
        rank = np.full(len(ids), len(order), np.int64)
        rank[order] = np.arange(len(order))
        pairs = _pairs(spill, rank, m, len(order))
    finally:
        spill.unlink(missing_ok=True)
    words = list(ids)
    return WordCounts([words[i] for i in order], totals[order], pairs, n_tokens, n_types)


def _spill(path: Path, spill: Path, listen: Listener) -> dict[str, int]:
    ids: dict[str, int] = defaultdict(count(LINE_END + 1).__next__, {"\n": LINE_END})  # in order of appearance
    size = path.stat().st_size
    with path.open("rb") as raw, spill.open("wb") as out:
        for text in _texts(path, raw):
            np.fromiter(map(ids.__getitem__, TOKEN.findall(text)), np.int32).tofile(out)
            listen(Event("reading the corpus", raw.tell(), size))
    return ids


def _texts(path: Path, raw: IO[bytes]) -> Iterator[str]:
    lines = offset = 0
    clean = None
    for piece in _pieces(path, raw):
        try:
            text = piece.decode()
        except UnicodeDecodeError as error:
            line = 1 + lines + piece.count(b"\n", 0, error.start)
            raise DataError(
                f"corpus {path} is not UTF-8: byte 0x{piece[error.start]:02x} at offset {offset + error.start} "
                f"(line {line}); convert it first, for instance with `iconv -f latin1 -t utf-8`"
            ) from None
        clean = clean or (_plain if text.lstrip("\ufeff \n").startswith("<mediawiki") else str)
        yield clean(text).lower()
        lines, offset = lines + piece.count(b"\n"), offset + len(piece)


def _pieces(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in _blocks(path, raw):
        cut = max(block.rfind(b"\n"), block.rfind(b" ")) + 1
        if cut == 0 and len(rest) > LONGEST:
            raise DataError(f"corpus {path} has no line end or space in {len(rest)} bytes: it is not a text")
        if cut:
            yield rest + block[:cut]
            rest = b""
        rest += block[cut:]
    yield rest


def _blocks(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    kind = packing(path)
    stream: Any = gzip.GzipFile(fileobj=raw) if kind == "gzip" else bz2.BZ2File(raw) if kind == "bzip2" else raw
    try:
        while block := stream.read(CHUNK):
            yield block
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"corpus {path} cannot be read to its end: {error}") from None


_MARKUP: Final = (
    (re.compile(r"<text[^>]*>"), "\n"),
    (
        re.compile(r"<(?:title|ns|id|parentid|timestamp|username|ip|comment|model|format|sha1)>[^<\n]*</\w+>"),
        "",
    ),
    (re.compile(r"&lt;ref[^\n]*?(?:/ref&gt;|/&gt;)"), ""),
    (re.compile(r"&lt;[^\n]*?&gt;|<[^>\n]*>"), " "),
    (re.compile(r"\{\{[^{}]*\}\}"), " "),
    (re.compile(r"\[\[(?:file|image|category):[^\n]*?\]\]", re.IGNORECASE), " "),
    (re.compile(r"\[\[(?:[^\[\]|\n]*\|)?([^\[\]|\n]*)\]\]"), r"\1"),
    (re.compile(r"\[?https?://[^\s\]]+"), " "),
    (re.compile(r"'{2,}"), ""),
)


def _plain(text: str) -> str:
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    return html.unescape(text)


def _stream(spill: Path) -> Iterator[npt.NDArray[np.int32]]:
    last = np.array([LINE_END], np.int32)
    with spill.open("rb") as ids:
        while len(block := np.fromfile(ids, np.int32, CHUNK)):
            yield np.concatenate([last, block])
            last = block[-1:]


def _totals(spill: Path, n_types: int) -> npt.NDArray[np.int64]:
    totals = np.zeros(n_types, np.int64)
    for block in _stream(spill):
        totals += np.bincount(block[1:], minlength=n_types)
    return totals


def _pairs(spill: Path, rank: npt.NDArray[np.int64], m: int, n: int) -> Any:
    total: Any = csr_array((n, m), dtype=np.int64)
    for block in _stream(spill):
        ranks = rank[block]
        context, target = ranks[:-1], ranks[1:]
        wanted = (context < m) & (target < n)
        # The rank of the line end is n: it is no target, and as n >= m no context either.
        codes, counts = np.unique(target[wanted] * m + context[wanted], return_counts=True)
        total = total + csr_array((counts, (codes // m, codes % m)), shape=(n, m))
    return total
