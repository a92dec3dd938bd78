"""Folders and files of 10x, written by the tests themselves."""

import gzip
from pathlib import Path

import numpy as np

CELLS, GENES, OTHERS = 30, 12, 4


X = np.random.default_rng(0).poisson(1.0, (CELLS, GENES + OTHERS)).astype(np.int64)


BARCODES = np.array([f"AAAC{i:04}-1" for i in range(CELLS)])


NAMES = np.array(
    [*(f"gene{j}" for j in range(GENES)), "CD3", "gene1", "CD19", "sg1"]
)  # an antibody is called as a gene


IDS = np.array([f"ENS{j:05}" for j in range(GENES + OTHERS)])


TYPES = np.array(["Gene Expression"] * GENES + ["Antibody Capture"] * 3 + ["CRISPR Guide Capture"])


HEAD = "%%MatrixMarket matrix coordinate integer general\n"


V3 = HEAD + '%metadata_json: {"software_version": "cellranger-7.0.0", "format_version": 2}\n'


def market(M: np.ndarray, head: str = HEAD + "%\n") -> str:
    i, j = np.nonzero(M)
    lines = [f"{a + 1} {b + 1} {M[a, b]}\n" for a, b in zip(i, j, strict=True)]
    return head + f"{M.shape[0]} {M.shape[1]} {len(i)}\n" + "".join(lines)


def put(path: Path, text: str) -> None:
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write(text)


def write_folder(folder: Path, version: int = 3, prefix: str = "", typed: bool = True) -> Path:
    """As CellRanger writes it: packed and with types since its third version."""
    folder.mkdir(exist_ok=True)
    packed = ".gz" if version == 3 else ""
    put(folder / f"{prefix}matrix.mtx{packed}", market(X.T, V3) if version == 3 else market(X.T))
    put(folder / f"{prefix}barcodes.tsv{packed}", "".join(f"{name}\n" for name in BARCODES))
    fields = zip(IDS, NAMES, TYPES, strict=True)
    rows = ["\t".join(row if version == 3 and typed else row[:2]) + "\n" for row in fields]
    put(folder / f"{prefix}{'features' if version == 3 else 'genes'}.tsv{packed}", "".join(rows))
    return folder
