"""Hostile files of all formats but HDF5 and Zarr: each function writes one, by its generator, into a folder."""

import io
import json
import os
import socket
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tests.support.hostile_trees import TREES, Case, M, N, Rng, flipped, numbers
from tests.support.places import readable_of
from tests.support.written import frame, triplets, write_10x, write_bpcells, write_csv, write_mtx, write_svmlight

JUNK = [
    "0x10",
    "1,5",
    "1.5abc",
    "1e",
    "--1",
    "1_0",
    "½",
    "nan nan",
    "1;2",
    "\x1b[2J",
    "1e999999",
    "\x00",
    "١",
    "+-3",
    "1.2.3",
]


def market(path: Path, lines: list[str], sizes: str, field: str = "real", kind: str = "coordinate") -> Path:
    path.write_text(f"%%MatrixMarket matrix {kind} {field} general\n{sizes}\n" + "\n".join(lines) + "\n")
    return path


def mtx_values(folder: Path, rng: Rng, canary: Path) -> Path:
    lines = [f"{i} {j} {i + j}.5" for i in range(1, M + 1) for j in range(1, N + 1)]
    lines[rng.integers(len(lines))] = f"1 1 {JUNK[rng.integers(len(JUNK))]}"
    return market(folder / "a.mtx", lines, f"{M} {N} {len(lines)}")


def mtx_places(folder: Path, rng: Rng, canary: Path) -> Path:
    lines = [f"{i} {j} {i + j}.5" for i in range(1, M + 1) for j in range(1, N + 1)]
    bad = ["0", "1.9", "-1", str(M + 1), str(2**31), str(2**64), "1e2", "", "٢", "+1", "0x1"][rng.integers(11)]
    lines[rng.integers(len(lines))] = [f"{bad} 1 2.5", f"1 {bad} 2.5"][rng.integers(2)]
    return market(folder / "a.mtx", lines, f"{M} {N} {len(lines)}")


def mtx_counts(folder: Path, rng: Rng, canary: Path) -> Path:
    lines = [f"{i} {j} {i + j}" for i in range(1, M + 1) for j in range(1, N + 1)]
    off = int(rng.choice([-3, -1, 1, 5, 10**6, 10**15]))
    return market(folder / "a.mtx", lines, f"{M} {N} {max(len(lines) + off, 0)}", ["real", "integer"][rng.integers(2)])


def mtx_claims(folder: Path, rng: Rng, canary: Path) -> Path:
    big = 10 ** int(rng.integers(8, 30))
    sizes = [f"{big} {big} 1", f"{M} {big} 1", f"-{M} {N} 1", f"{M} {N}", f"{M} {N} {big}", f"{M} x 1", "\n" * 9][
        rng.integers(7)
    ]
    return market(folder / "a.mtx", ["1 1 1"], sizes, kind=["coordinate", "array"][rng.integers(2)])


def packed_garbage(folder: Path, rng: Rng, canary: Path) -> Path:
    name = ["a.mtx.gz", "a.csv.gz", "a.csv.bz2", "a.svmlight.gz"][rng.integers(4)]
    path = folder / name
    (write_mtx if "mtx" in name else write_csv if "csv" in name else lambda p: write_svmlight(p, zero_based=True))(path)
    return flipped(path, rng)


def csv_text(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.csv"
    odd = [
        b'"' * 5000,
        b"\x00" * 50,
        b"\xff\xfe",
        b"1," * 50_000,
        b"\r" * 99,
        b'"a\n' * 999,
        b"\x1b]0;x\x07",
        b"9" * 10**6,
    ]
    lines = [b"id,a,b"] + [b"s%d,%d,%d" % (i, i, 2 * i) for i in range(M)]
    lines[rng.integers(len(lines))] = odd[rng.integers(len(odd))]
    path.write_bytes(b"\n".join(lines))
    return path


def csv_damaged(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.csv"
    write_csv(path)
    return flipped(path, rng)


def triplets_far(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.tsv"
    far = [2**31, 2**62, -1, 2**63, 10**30, 1.5][rng.integers(6)]
    path.write_text(f"row\tcolumn\tvalue\n0\t0\t1\n{far}\t1\t2\n1\t{far if rng.random() < 0.5 else 1}\t3\n")
    return path


def svmlight_text(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.svmlight"
    bad = ["-1:2", "99999999999:1", "1:0x10", "1:1e999", "1:1 1:2", "5:1 2:1", ":", "1:", "a:b", "2147483648:1"][
        rng.integers(10)
    ]
    path.write_text(f"1 1:2 2:3\n0 {bad}\n1 3:4\n")
    return path


def archive(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def npz_places(folder: Path, rng: Rng, canary: Path) -> Path:
    """Indices that are no whole numbers, or out of range, of every kind of matrix."""
    kind = ["csr", "csc", "coo", "bsr", "dia"][rng.integers(5)]
    path = folder / "a.npz"
    sparse.save_npz(path, sparse.random_array((M, N), density=0.4, rng=rng).asformat(kind))
    with np.load(path) as file:
        arrays = dict(file)
    name = sorted(arrays.keys() & {"indices", "indptr", "row", "col", "offsets"})[-1 if rng.random() < 0.5 else 0]
    wrong = arrays[name].astype([np.int64, np.float64][rng.integers(2)])
    wrong[rng.integers(len(wrong))] = [-1, 10**6, 2**31, 2**62, 1.9][rng.integers(5)]
    return archive(path, arrays | {name: wrong})


def npz_parts(folder: Path, rng: Rng, canary: Path) -> Path:
    """Parts missing, of other lengths, kinds or shapes."""
    path = folder / "a.npz"
    sparse.save_npz(path, sparse.random_array((M, N), density=0.4, rng=rng).asformat("csr"))
    with np.load(path) as file:
        arrays = dict(file)
    name = sorted(arrays)[rng.integers(len(arrays))]
    wrong: list[Any] = [
        np.zeros(0),
        np.zeros((2, 2)),
        np.array("x"),
        np.arange(10**4),
        np.array([-5, 2**40]),
        np.array(7j),
    ]
    return archive(path, arrays | {name: wrong[rng.integers(len(wrong))]})


def npz_objects(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / ("a.npz" if rng.random() < 0.5 else "a.npy")

    class Runs:
        def __reduce__(self) -> Any:
            return os.system, (f"cat {canary} > {folder / 'ran'}",)

    X = np.array([[Runs(), Runs()]], dtype=object)
    if path.suffix == ".npy":
        np.save(path, X)
        return path
    return archive(path, {["X", "shape", "format", "row_names"][rng.integers(4)]: X, "Y": numbers(rng)})


def npz_members(folder: Path, rng: Rng, canary: Path) -> Path:
    """Names that lead out of the folder, twice the same name, and members that unpack to much more."""
    path, content = folder / "a.npz", io.BytesIO()
    np.save(content, numbers(rng))
    names = ["../../evil.npy", "/tmp/evil.npy", "X.npy", "a/../X.npy", "C:\\X.npy"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(names[rng.integers(len(names))], content.getvalue())
        if rng.random() < 0.5:
            head = (
                b"\x93NUMPY\x01\x00v\x00"
                + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000, 99999), }".ljust(117)
                + b"\n"
            )
            file.writestr("B.npy", head + bytes(1 << 26))
    return path


def npz_damaged(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.npz"
    sparse.save_npz(path, sparse.random_array((M, N), density=0.4, rng=rng).asformat("csr"))
    return flipped(path, rng)


def npy_header(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.npy"
    m, n = 10 ** rng.integers(1, 18, 2)
    heads = [
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({m}, {n}), }}",
        "{'descr': '<f8', 'fortran_order': True, 'shape': (-3, 4), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 4), }",
        "__import__('os').system('true')",
        "(" * 5000,
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4, 5), }",
        "{'descr': '<M8[s]', 'fortran_order': 1, 'shape': (3, 4), }",
    ]
    head = heads[rng.integers(len(heads))].encode().ljust(118 if rng.random() < 0.9 else 70_000) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) & 0xFFFF) + head + bytes(96))
    return path


def npy_cut(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.npy"
    np.save(path, np.asfortranarray(numbers(rng)) if rng.random() < 0.5 else numbers(rng))
    content = path.read_bytes()
    path.write_bytes(content[: rng.integers(len(content) + 1)] if rng.random() < 0.5 else content + rng.bytes(9))
    return path


def parquet_damaged(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.parquet"
    (frame() if rng.random() < 0.5 else triplets(named=True)).to_parquet(path)
    return flipped(path, rng)


def arrow_damaged(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.feather"
    frame().reset_index(drop=True).to_feather(path, compression=["uncompressed", "lz4", "zstd"][rng.integers(3)])
    return flipped(path, rng)


def bed_sizes(folder: Path, rng: Rng, canary: Path) -> Path:
    pytest.importorskip("bed_reader").to_bed(folder / "a.bed", rng.integers(0, 3, (30, 12)).astype(float))
    part = folder / ["a.bed", "a.fam", "a.bim"][rng.integers(3)]
    how = rng.integers(3)
    if how == 0:
        flipped(part, rng)
    elif how == 1:
        part.unlink()
        part.symlink_to(canary)
    else:
        part.write_bytes(part.read_bytes()[: -int(rng.integers(1, 30))])
    return folder / "a.bed"


def pgen_damaged(folder: Path, rng: Rng, canary: Path) -> Path:
    pgenlib = pytest.importorskip("pgenlib")
    with pgenlib.PgenWriter(str(folder / "a.pgen").encode(), 12, variant_ct=9, nonref_flags=False) as file:
        for _ in range(9):
            file.append_biallelic(rng.integers(0, 3, 12).astype(np.int8))
    (folder / "a.pvar").write_text("#CHROM\tPOS\tID\tREF\tALT\n" + "".join(f"1\t{i}\tv{i}\tA\tC\n" for i in range(9)))
    (folder / "a.psam").write_text("#IID\n" + "".join(f"s{i}\n" for i in range(12)))
    flipped(folder / ["a.pgen", "a.pgen", "a.pvar", "a.psam"][rng.integers(4)], rng)
    return folder / "a.pgen"


def bpcells_folder(folder: Path, rng: Rng, canary: Path) -> Path:
    path = write_bpcells(folder / "a.bpcells")
    part = path / rng.choice(sorted(file.name for file in path.iterdir()))
    content, how = part.read_bytes(), rng.integers(7)
    if how == 0:
        flipped(part, rng)
    elif how == 1:
        part.write_bytes(content[: rng.integers(len(content))])
    elif how == 2:
        part.unlink()
        [lambda: None, lambda: part.symlink_to(canary), lambda: os.mkfifo(part)][rng.integers(3)]()
    elif how == 3:
        header = [b"UINT32v1", b"UINT64v1", b"FLOATSv1", b"DOUBLEv1", b"\x1b[2J----"][rng.integers(5)]
        part.write_bytes(header + content[8:])
    else:  # a number of some width
        size, value = int(rng.choice([4, 8])), int(rng.choice([0, 1, 3, 33 * 4, 2**31, 2**32 - 1, 2**62, 2**64 - 1]))
        at = 8 + size * int(rng.integers(max(1, (len(content) - 8) // size)))
        part.write_bytes(content[:at] + (value % 2 ** (8 * size)).to_bytes(size, "little") + content[at + size :])
    return path


def tenx_folder(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "ten"
    write_10x(path, "")
    part = sorted(path.iterdir())[rng.integers(3)]
    if rng.random() < 0.3:
        part.write_bytes(b"\x1b[31m\t\x9b\n" * int(rng.integers(1, 99)))
    else:
        flipped(part, rng)
    return path


def model_header(folder: Path, rng: Rng, canary: Path) -> Path:
    import shiftsvd as ss

    path = folder / "a.safetensors"
    ss.PCA(2, random_state=0).fit(numbers(rng)).save(path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    told = json.loads(content[8 : 8 + size])
    name = list(told)[rng.integers(len(told))]
    if "data_offsets" in told[name]:
        told[name][["data_offsets", "shape", "dtype"][rng.integers(3)]] = [
            [0, 2**60],
            [-1, 5],
            [2**62, 2],
            "F64",
            None,
        ][rng.integers(5)]
    else:
        told[name] = {key: "\x1b[2J" + value[:-1] for key, value in told[name].items()}
    head = json.dumps(told).encode()
    claimed = len(head) if rng.random() < 0.8 else int(rng.choice([0, 2**40, 2**63 - 1]))
    path.write_bytes(claimed.to_bytes(8, "little") + head + content[8 + size :])
    return path


def model_damaged(folder: Path, rng: Rng, canary: Path) -> Path:
    import shiftsvd as ss

    path = folder / "a.safetensors"
    ss.PCA(2, random_state=0).fit(numbers(rng)).save(path)
    return flipped(path, rng)


def special(folder: Path, rng: Rng, canary: Path) -> Path:
    """What is no file: a link to a device, a socket, a circle of links."""
    path = folder / ["a.h5", "a.csv", "a.mtx", "a.npz"][rng.integers(4)]
    how = rng.integers(3)
    if how == 0:
        path.symlink_to(["/dev/zero", "/dev/null", "/dev/random"][rng.integers(3)])
    elif how == 1:
        with socket.socket(socket.AF_UNIX) as door:
            where = os.getcwd()
            os.chdir(folder)
            door.bind(path.name)
            os.chdir(where)
    else:
        path.symlink_to(path)
    return path


def misnamed(folder: Path, rng: Rng, canary: Path) -> Path:
    """One format under the name of another."""
    sound = folder / "a.npy"
    np.save(sound, numbers(rng))
    suffixes = [
        "h5",
        "h5ad",
        "zarr",
        "mtx",
        "npz",
        "csv",
        "parquet",
        "feather",
        "nc",
        "bed",
        "pgen",
        "svmlight",
        "safetensors",
    ]
    path = folder / f"b.{suffixes[rng.integers(len(suffixes))]}"
    path.write_bytes(sound.read_bytes() if rng.random() < 0.5 else rng.bytes(int(rng.integers(0, 4000))))
    return path


FILES: dict[str, Case] = {
    "MatrixMarket: values": mtx_values,
    "MatrixMarket: places": mtx_places,
    "MatrixMarket: counts": mtx_counts,
    "MatrixMarket: claims": mtx_claims,
    "gzip, bzip2: damaged": packed_garbage,
    "CSV: text": csv_text,
    "CSV: damaged": csv_damaged,
    "triplets: places": triplets_far,
    "svmlight: text": svmlight_text,
    "npz: places": npz_places,
    "npz: parts": npz_parts,
    "npz, npy: objects": npz_objects,
    "npz: members": npz_members,
    "npz: damaged": npz_damaged,
    "npy: header": npy_header,
    "npy: cut": npy_cut,
    "Parquet: damaged": parquet_damaged,
    "Arrow: damaged": arrow_damaged,
    "bed: sizes, damaged, links": bed_sizes,
    "pgen: damaged": pgen_damaged,
    "10x folder: damaged": tenx_folder,
    "BPCells folder: damaged": bpcells_folder,
    "model: header": model_header,
    "model: damaged": model_damaged,
    "special files": special,
    "misnamed": misnamed,
}
CASES = readable_of(TREES | FILES)
