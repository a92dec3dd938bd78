"""Files of every format that hold far more than their size tells: each function writes one and returns the command."""

import bz2
import gzip
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.hostile_trees import anndata, sparse_group
from tests.support.places import readable_of
from tests.support.written import write_10x

Words = list[Any]  # of a command: the subcommand and its arguments
Bomb = Callable[[Path], Words]
MIB, GIB = 2**20, 2**30
ROWS, COLUMNS = 1000, 5
RNG = np.random.default_rng(0)


def fit(path: Path) -> Words:
    return ["fit", path, "-k", 2]


@cache
def deflated(n_bytes: int = 4 * GIB) -> bytes:
    """Zeros as one stream of zlib: a block of 64 MiB again and again."""
    packer = zlib.compressobj(1, wbits=-15)
    block = packer.compress(bytes(64 * MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(1, wbits=-15).flush()
    checksum = (n_bytes % 65521) << 16 | 1  # of Adler, for zeros
    return b"\x78\x01" + block * (n_bytes // (64 * MIB)) + end + struct.pack(">I", checksum)


@cache
def gzipped(part: bytes, n_bytes: int = 2 * GIB) -> bytes:
    """A part of a text repeated, as many members of gzip."""
    whole = part * (16 * MIB // len(part))
    return gzip.compress(whole, 1) * (n_bytes // len(whole))


@cache
def zstandard(n_bytes: int = 4 * GIB, part: bytes = bytes(MIB)) -> bytes:
    """Zeros as one frame of zstd that tells its size."""
    packer = pytest.importorskip("zstandard").ZstdCompressor(3).compressobj(n_bytes)
    return b"".join([*(packer.compress(part) for _ in range(n_bytes // len(part))), packer.flush()])


def checked(data: bytes) -> bytes:
    """The checksum that HDF5's fletcher32 writes behind a chunk, over words of two bytes."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), ">u2").astype(np.uint64)
    first = second = 0
    for lo in range(0, len(words), 360):
        for word in words[lo : lo + 360].tolist():
            first += word
            second += first
        first, second = (first & 0xFFFF) + (first >> 16), (second & 0xFFFF) + (second >> 16)
    first, second = (first & 0xFFFF) + (first >> 16), (second & 0xFFFF) + (second >> 16)
    return data + struct.pack("<I", second << 16 | first)


def dataset(group: Any, name: str, chunk: bytes, filters: Any, kind: Any = "f8", shape: Any = (ROWS, COLUMNS)) -> Any:
    """A dataset of one chunk, whose packed bytes are given."""
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("hdf5plugin")
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk(shape)
    for code, values in filters:
        if code == 1:
            settings.set_deflate(1)
        elif code == 2:
            settings.set_shuffle()
        elif code == 3:
            settings.set_fletcher32()
        else:
            settings.set_filter(code, h5py.h5z.FLAG_OPTIONAL, values)
    kind = h5py.h5t.py_create(np.dtype(kind), logical=True)
    made = h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create_simple(shape), settings)
    made.write_direct_chunk((0,) * len(shape), chunk)
    return made


DEFLATE, SHUFFLE, SUM, BZ2, LZF, BLOSC, LZ4, ZSTD = (
    (1, ()),
    (2, ()),
    (3, ()),
    *(
        (code, values)
        for code, values in (
            (307, (9,)),
            (32000, (4, 261, 40_000)),
            (32001, (2, 2, 8, 40_000)),
            (32004, ()),
            (32015, (3,)),
        )
    ),
)


def in_hdf5(*filters: Any) -> Callable[[Callable[[], bytes]], Bomb]:
    """A bomb in a plain dataset, behind these filters."""

    def of(packed: Callable[[], bytes]) -> Bomb:
        def write(folder: Path) -> Words:
            with pytest.importorskip("h5py").File(folder / "a.h5", "w") as file:
                dataset(file, "X", packed(), filters)
            return fit(folder / "a.h5")

        return write

    return of


def blosc() -> bytes:
    return bytes(pytest.importorskip("numcodecs").Blosc("zstd").encode(np.zeros(GIB + GIB // 2, "u1")))


def lz4_of_hdf5() -> bytes:
    """The filter's own frame: the size of all, that of a block, and blocks with their sizes before them."""
    size = GIB
    block = pytest.importorskip("numcodecs").LZ4().encode(bytes(size))[4:]
    return struct.pack(">QI", size, size) + struct.pack(">I", len(block)) + block


def lzf() -> bytes:
    """A byte, then references of 264 bytes to the one before."""
    return b"\x00\x00" + b"\xe0\xff\x00" * (3 * MIB)


def names_of_h5ad(folder: Path, write: Callable[[Any], None]) -> Words:
    path = anndata(folder / "a.h5ad", np.random.default_rng(0))
    with pytest.importorskip("h5py").File(path, "r+") as file:
        del file["obs/_index"]
        write(file["obs"])
    return fit(path)


def h5ad_names(folder: Path) -> Words:
    chunk = zlib.compress(deflated(), 1)
    return names_of_h5ad(folder, lambda obs: dataset(obs, "_index", chunk, [DEFLATE, DEFLATE], "S20", (12,)))


def shared_text(group: Any, name: str, count: int = 50_000, length: int = 100_000) -> None:
    """Names of any length that are all one text: the reference to it is repeated."""
    h5py = pytest.importorskip("h5py")
    node = group.create_dataset(name, (count,), h5py.string_dtype(), chunks=(count,))
    node[0] = "x" * length
    _, first = node.id.read_direct_chunk((0,))
    node.id.write_direct_chunk((0,), first[:16] * count)


def h5ad_shared_text(folder: Path) -> Words:
    path = folder / "a.h5ad"
    with pytest.importorskip("h5py").File(path, "w") as file:
        file["X"] = np.ones((50_000, 2))
        file.attrs["encoding-type"] = "anndata"
        shared_text(file.create_group("obs"), "_index")
        file.create_group("var")["_index"] = [b"a", b"b"]
    return fit(path)


def h5ad_categories(folder: Path) -> Words:
    """A column of classes whose texts are one of 100 kB."""
    path = anndata(folder / "a.h5ad", np.random.default_rng(0))
    with pytest.importorskip("h5py").File(path, "r+") as file:
        group = file["obs"].create_group("donor")
        group.attrs["encoding-type"] = "categorical"
        group["codes"] = np.arange(12, dtype="i4")
        shared_text(group, "categories")
    return [*fit(path), "--groups", "donor"]


def tenx_barcodes(folder: Path) -> Words:
    path = folder / "a.h5"
    with pytest.importorskip("h5py").File(path, "w") as file:
        group = sparse_group(file, np.random.default_rng(0), "matrix", shape=(5, 12))
        group["shape"] = [5, 12]
        dataset(group, "barcodes", zstandard(), [ZSTD], "S20", (12,))
        group["features/name"] = group["features/id"] = [b"a"] * 5
    return fit(path)


def h5_sparse_indices(folder: Path) -> Words:
    path = folder / "a.h5"
    with pytest.importorskip("h5py").File(path, "w") as file:
        group = sparse_group(file, np.random.default_rng(0))
        count = group["indices"].shape[0]
        del group["indices"]
        dataset(group, "indices", zstandard(), [ZSTD], "i4", (count,))
    return fit(path)


def netcdf(folder: Path, change: Callable[[Any], None]) -> Words:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path = folder / "a.nc"
    X = xarray.DataArray(RNG.normal(size=(ROWS, COLUMNS)), dims=("time", "space"), name="X")
    X.to_netcdf(path, engine="h5netcdf")
    with pytest.importorskip("h5py").File(path, "r+") as file:
        change(file)
    return fit(path)


def netcdf_deflate(folder: Path) -> Words:
    def change(file: Any) -> None:
        scales = [file["X"].dims[axis][0] for axis in (0, 1)] if all(len(dim) for dim in file["X"].dims) else []
        del file["X"]
        dataset(file, "X", deflated(), [DEFLATE])
        for axis, scale in enumerate(scales):
            file["X"].dims[axis].attach_scale(scale)

    return netcdf(folder, change)


def netcdf_shared_text(folder: Path) -> Words:
    return netcdf(folder, lambda file: shared_text(file, "notes"))


def in_zarr(name: str, packed: Callable[[], bytes], version: int = 2, **how: Any) -> Bomb:
    """A bomb in the first chunk of an array."""

    def write(folder: Path) -> Words:
        zarr, codecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
        path = folder / "a.zarr"
        codec = {"gzip": codecs.GZip, "zlib": codecs.Zlib, "bz2": codecs.BZ2, "lzma": codecs.LZMA, "lz4": codecs.LZ4}
        codec |= {"zstd": codecs.Zstd, "blosc": codecs.Blosc}
        made = {"compressors": codec[name]()} if version == 2 else {}
        if version == 3:
            made = {"compressors": {"gzip": zarr.codecs.GzipCodec(), "zstd": zarr.codecs.ZstdCodec()}[name]}
        settings = {"shape": (ROWS, COLUMNS), "chunks": (ROWS, COLUMNS), "dtype": "f8", "zarr_format": version}
        array = zarr.create_array(str(path), **settings, **made, **{key: make(codecs) for key, make in how.items()})
        array[:] = 1.0
        chunk = next(file for file in path.rglob("*") if file.is_file() and file.name[0] in "0c")
        chunk.write_bytes(packed())
        return fit(path)

    return write


def zarr_shard(folder: Path) -> Words:
    zarr = pytest.importorskip("zarr")
    path = folder / "a.zarr"
    zarr.create_array(
        str(path), shape=(ROWS, COLUMNS), shards=(ROWS, COLUMNS), chunks=(ROWS, COLUMNS), dtype="f8",
        compressors=zarr.codecs.ZstdCodec(),
    )[:] = 1.0  # fmt: skip
    chunk = next(file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    packed, crc32c = zstandard(), pytest.importorskip("google_crc32c", reason="the checksum of a shard's index")
    index = struct.pack("<QQ", 0, len(packed))
    chunk.write_bytes(packed + index + struct.pack("<I", crc32c.value(index)))
    return fit(path)


def zarr_consolidated(folder: Path) -> Words:
    """Metadata of the whole that name another codec than those of the array."""
    zarr = pytest.importorskip("zarr")
    path = folder / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.create_array("X", shape=(ROWS, COLUMNS), chunks=(ROWS, COLUMNS), dtype="f8", compressors=None)[:] = 1.0
    zarr.consolidate_metadata(str(path), zarr_format=2)
    told = json.loads((path / ".zmetadata").read_text())
    told["metadata"]["X/.zarray"]["compressor"] = {"id": "zstd", "level": 1}
    (path / ".zmetadata").write_text(json.dumps(told))
    (path / "X" / "0.0").write_bytes(zstandard())
    return fit(path)


def zarr_metadata(folder: Path) -> Words:
    """60 MB of JSON, of the smallest objects there are."""
    words = in_zarr("zstd", lambda: b"")(folder)
    (words[1] / ".zattrs").write_text('{"a":[' + "[]," * 20_000_000 + "[]]}")
    return words


def npz_member(folder: Path) -> Words:
    path = folder / "a.npz"
    head = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (200000, 1000), }".ljust(117)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file, file.open("X.npy", "w") as member:
        member.write(head + b"\n")
        for _ in range(1000):
            member.write(bytes(1_600_000))
    return fit(path)


def npz_lies(folder: Path) -> Words:
    """A member that unpacks to more than the directory says."""
    words = npz_member(folder)
    content = bytearray(words[1].read_bytes())
    at = content.rindex(b"PK\x01\x02")
    struct.pack_into("<I", content, at + 24, 128 + 1_600_000)
    words[1].write_bytes(content)
    return words


def npy_hole(folder: Path) -> Words:
    """Numbers that no disk holds, as a file with a hole: read in blocks, all zeros."""
    path = folder / "a.npy"
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 100000000), }".ljust(117) + b"\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00v\x00" + head)
        file.truncate(128 + 32 * 10**8)
    return fit(path)


def market(part: bytes, suffix: str) -> Bomb:
    def write(folder: Path) -> Words:
        head = b"%%MatrixMarket matrix coordinate real general\n1000 1000 300000000\n"
        body = gzip.compress(head) + gzipped(part) if suffix == ".gz" else bz2.compress(head) + bzipped(part)
        (folder / f"a.mtx{suffix}").write_bytes(body)
        return fit(folder / f"a.mtx{suffix}")

    return write


@cache
def bzipped(part: bytes, n_bytes: int = GIB) -> bytes:
    whole = part * (4 * MIB // len(part))
    return bz2.compress(whole) * (n_bytes // len(whole))


def text(name: str, head: bytes, part: bytes, *more: str) -> Bomb:
    def write(folder: Path) -> Words:
        pack = bz2.compress(head) + bzipped(part) if name.endswith(".bz2") else gzip.compress(head) + gzipped(part)
        (folder / name).write_bytes(pack)
        return [*fit(folder / name), *more]

    return write


def triplets(folder: Path) -> Words:
    path = folder / "a.tsv"
    path.write_text("row\tcolumn\tvalue\n0\t0\t1\n900000000\t1\t2\n1\t900000000\t3\n")
    return fit(path)


def spooled(folder: Path) -> Words:
    """A bomb on standard input."""
    path = folder / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n") + gzipped(b'"1'))
    return ["fit", path, "-k", 2, "--format", "csv"]


def parquet(folder: Path, **columns: Any) -> Words:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table(columns)
    pq.write_table(table, folder / "a.parquet", compression="zstd", row_group_size=len(table))
    return fit(folder / "a.parquet")


def parquet_names(folder: Path) -> Words:
    """Names that are all one text of 20 kB, once in the file."""
    pa = pytest.importorskip("pyarrow")
    names = pa.DictionaryArray.from_arrays(np.zeros(200_000, "i4"), pa.array(["x" * 20_000]))
    return parquet(folder, name=names, a=np.arange(200_000) % 7 + 0.5, b=np.arange(200_000) % 11 + 0.5)


def parquet_rows(folder: Path) -> Words:
    return parquet(folder, **{f"c{j}": np.zeros(10_000_000) for j in range(30)})


def arrow(compression: str, names: bool = False) -> Bomb:
    def write(folder: Path) -> Words:
        pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
        path, column = folder / "a.feather", pa.array(np.zeros(4_000_000))
        columns = {f"c{j}": column for j in range(40)}
        if names:
            texts = pa.DictionaryArray.from_arrays(np.zeros(200_000, "i4"), pa.array(["x" * 20_000]))
            columns = {"name": texts, "a": np.arange(200_000) + 0.5}
        feather.write_feather(pa.table(columns), path, compression=compression, chunksize=4_000_000)
        return fit(path)

    return write


def genotypes(folder: Path) -> Path:
    path = folder / "a.bed"
    pytest.importorskip("bed_reader").to_bed(path, RNG.integers(0, 3, (30, 12)).astype(float))
    return path


def bim(folder: Path) -> Words:
    path = genotypes(folder)
    path.with_suffix(".bim").write_bytes(gzip.compress(b"1 a 0 1 A C\n") + gzipped(b"1 a 0 1 A C\n"))
    return fit(path)


def bim_line(folder: Path) -> Words:
    path = genotypes(folder)
    with path.with_suffix(".fam").open("r+b") as file:
        file.truncate(3 * GIB)
    return fit(path)


def keep_list(folder: Path) -> Words:
    (folder / "keep.gz").write_bytes(gzipped(b"a b\n"))
    return [*fit(genotypes(folder)), "--keep", folder / "keep.gz"]


def pvar(folder: Path) -> Words:
    pgenlib = pytest.importorskip("pgenlib")
    path = folder / "a.pgen"
    with pgenlib.PgenWriter(str(path).encode(), 12, variant_ct=9, nonref_flags=False) as file:
        for _ in range(9):
            file.append_biallelic(RNG.integers(0, 3, 12).astype(np.int8))
    part = b"1\t1\tv\tA\tC\n" * 100_000
    head = pytest.importorskip("zstandard").compress(b"#CHROM\tPOS\tID\tREF\tALT\n")
    path.with_suffix(".pvar.zst").write_bytes(head + zstandard(len(part) * 4000, part))
    path.with_suffix(".psam").write_text("#IID\n" + "".join(f"s{i}\n" for i in range(12)))
    return fit(path)


def vcf(folder: Path) -> Words:
    pytest.importorskip("cyvcf2")
    path = folder / "a.vcf.gz"
    head = b'##fileformat=VCFv4.2\n##contig=<ID=1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description="G">\n'
    head += b"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts1\ts2\n1\t1\tv\tA\t"
    path.write_bytes(gzip.compress(head) + gzipped(b"C"))
    return ["convert", path, folder / "out.bed"]


def bgen(folder: Path) -> Words:
    """A variant whose probabilities say that they unpack to 3 GB, and do."""
    pytest.importorskip("bgen")
    names = b"".join(struct.pack("<H", 2) + b"s%d" % i for i in range(4))
    samples = struct.pack("<II", 8 + len(names), 4) + names
    header = struct.pack("<IIII", 20, 1, 4, 0x6E656762) + struct.pack("<I", 1 | 2 << 2 | 1 << 31)
    packed = deflated(3 * GIB)
    variant = struct.pack("<H", 1) + b"v" + struct.pack("<H", 1) + b"v" + struct.pack("<H", 1) + b"1"
    variant += struct.pack("<IH", 5, 2) + struct.pack("<I", 1) + b"A" + struct.pack("<I", 1) + b"C"
    variant += struct.pack("<II", len(packed) + 4, 3 * GIB) + packed
    path = folder / "a.bgen"
    path.write_bytes(struct.pack("<I", len(header) + len(samples)) + header + samples + variant)
    return ["convert", path, folder / "out.bed"]


def tenx_folder(name: str) -> Bomb:
    def write(folder: Path) -> Words:
        write_10x(folder / "ten", ".gz")
        part = folder / "ten" / name
        part.write_bytes(part.read_bytes() + gzipped(b"1 1 1\n" if "matrix" in name else b"ACGT\tACGT\tX\n"))
        return fit(folder / "ten")

    return write


def model(folder: Path) -> Words:
    """A model whose header claims tensors of 3 GB, in a file with a hole."""
    import shiftsvd as ss

    path = folder / "a.safetensors"
    ss.PCA(2, random_state=0).fit(RNG.normal(size=(30, 5))).save(path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    told = json.loads(content[8 : 8 + size])
    end = max(each["data_offsets"][1] for name, each in told.items() if name != "__metadata__")
    told["more"] = {"dtype": "F64", "shape": [400_000_000], "data_offsets": [end, end + 3_200_000_000]}
    head = json.dumps(told).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + content[8 + size :])
        file.truncate(8 + len(head) + end + 3_200_000_000)
    np.save(folder / "X.npy", np.ones((3, 5)))
    return ["transform", path, folder / "X.npy", "-o", folder / "scores.csv"]


def manifest(folder: Path) -> Words:
    """60 MB of JSON beside a model."""
    import shiftsvd as ss

    ss.PCA(2, random_state=0).fit(RNG.normal(size=(30, 5))).save(folder / "model.safetensors")
    (folder / "result.json").write_text('{"a":[' + "[]," * 20_000_000 + "[]]}")
    np.save(folder / "X.npy", np.ones((3, 5)))
    return ["transform", folder / "model.safetensors", folder / "X.npy", "-o", folder / "scores.csv"]


def many_chunks(folder: Path) -> Words:
    """Chunks of 1 kB that were never written: a line tells the seconds of each read, of which this needs one."""
    with pytest.importorskip("h5py").File(folder / "a.h5", "w") as file:
        file.create_dataset("X", (120_000, 128), "f8", chunks=(1, 128), compression="gzip")
    return ["info", folder / "a.h5"]


def lzma_zeros() -> bytes:
    return lzma.compress(bytes(256 * MIB), preset=0) * 8


def numcodecs_lz4() -> bytes:
    return bytes(pytest.importorskip("numcodecs").LZ4().encode(bytes(2 * GIB - 2**25)))


def twice() -> bytes:
    return zlib.compress(deflated(), 1)


BOMBS: dict[str, Bomb] = {
    "HDF5: deflate": in_hdf5(DEFLATE)(deflated),
    "HDF5: deflate twice": in_hdf5(DEFLATE, DEFLATE)(twice),
    "HDF5: shuffle, deflate, fletcher32": in_hdf5(SHUFFLE, DEFLATE, SUM)(lambda: checked(deflated(GIB))),
    "HDF5: zstd": in_hdf5(ZSTD)(zstandard),
    "HDF5: blosc": in_hdf5(BLOSC)(blosc),
    "HDF5: lz4": in_hdf5(LZ4)(lz4_of_hdf5),
    "HDF5: lzf": in_hdf5(LZF)(lzf),
    "HDF5: bzip2": in_hdf5(BZ2)(lambda: bz2.compress(bytes(GIB))),
    "HDF5: 120,000 chunks of 1 kB": many_chunks,
    "HDF5: indices of CSR": h5_sparse_indices,
    "h5ad: names, deflate twice": h5ad_names,
    "h5ad: names that share a text": h5ad_shared_text,
    "h5ad: classes that share a text": h5ad_categories,
    "10x .h5: barcodes, zstd": tenx_barcodes,
    "NetCDF: deflate": netcdf_deflate,
    "NetCDF: texts that are shared": netcdf_shared_text,
    "Zarr 2: zlib": in_zarr("zlib", deflated),
    "Zarr 2: gzip": in_zarr("gzip", lambda: gzipped(bytes(MIB), 4 * GIB)),
    "Zarr 2: zstd": in_zarr("zstd", zstandard),
    "Zarr 2: blosc": in_zarr("blosc", blosc),
    "Zarr 2: lz4": in_zarr("lz4", numcodecs_lz4),
    "Zarr 2: bz2": in_zarr("bz2", lambda: bzipped(bytes(MIB), 2 * GIB)),
    "Zarr 2: lzma": in_zarr("lzma", lzma_zeros),
    "Zarr 2: zlib as a filter, and zstd": in_zarr(
        "zstd", lambda: zstandard(len(deflated()), deflated()), filters=lambda codecs: [codecs.Zlib()]
    ),
    "Zarr 3: gzip": in_zarr("gzip", lambda: gzipped(bytes(MIB), 4 * GIB), 3),
    "Zarr 3: zstd": in_zarr("zstd", zstandard, 3),
    "Zarr 3: a shard": zarr_shard,
    "Zarr: metadata that contradict": zarr_consolidated,
    "Zarr: 60 MB of JSON": zarr_metadata,
    "npz: a member": npz_member,
    "npz: a member that lies": npz_lies,
    "npy: a hole": npy_hole,
    "mtx.gz: blanks": market(b" ", ".gz"),
    "mtx.gz: entries": market(b"1 1 1\n", ".gz"),
    "mtx.bz2: lines": market(b"\n", ".bz2"),
    "csv.gz: one line": text("a.csv.gz", b"a,b\n1,2\n", b"1"),
    "csv.gz: columns": text("a.csv.gz", b"", b"g,"),
    "csv.gz: rows": text("a.csv.gz", b"a,b\n", b"1,2\n"),
    "csv.gz: an open quotation mark": text("a.csv.gz", b'a,b\n1,"', b"2\n"),
    "csv.bz2: names of rows": text("a.csv.bz2", b"id,b\n", b"some long name of a row,2\n", "-q"),
    "tsv.gz: another encoding": text("a.tsv.gz", b"a\tb\n", b"1\t2\n", "--encoding", "latin-1"),
    "svmlight.gz": text("a.svmlight.gz", b"1 1:2 3:4\n", b"0 1:1 2:2\n"),
    "triplets: far places": triplets,
    "Parquet: rows": parquet_rows,
    "Parquet: names that share a text": parquet_names,
    "Arrow: zstd": arrow("zstd"),
    "Arrow: lz4": arrow("lz4"),
    "Arrow: names that share a text": arrow("zstd", names=True),
    ".bim: packed lines": bim,
    ".fam: one line": bim_line,
    "--keep: packed lines": keep_list,
    ".pvar.zst: lines": pvar,
    "VCF: one allele": vcf,
    "BGEN: zlib": bgen,
    "10x folder: barcodes": tenx_folder("barcodes.tsv.gz"),
    "10x folder: matrix": tenx_folder("matrix.mtx.gz"),
    "model: a tensor": model,
    "result.json: 60 MB of JSON": manifest,
}
BOMBS = readable_of(BOMBS)
