"""Dump what users see: public names, verbs, options, formats, transformations, model kinds and keys of outputs.

python -m benchmarks.structure.surface > before.txt     # and again after
diff before.txt after.txt
"""

import contextlib
import inspect
import io
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp

import shiftsvd as ss
from benchmarks.structure.docstrings import public, resolved
from shiftsvd.cli import main as command
from shiftsvd.io.sniff import formats
from shiftsvd.model_file.kinds import kinds
from shiftsvd.transforms import NAMED


def names() -> Iterator[str]:
    for name, _ in public():
        found = resolved(name)
        try:
            yield f"name {name}{inspect.signature(found)}"  # type: ignore[arg-type]
        except (TypeError, ValueError):
            yield f"name {name}"
        if inspect.isclass(found):
            yield from (f"attribute {name}.{each}" for each in dir(found) if not each.startswith("_"))


def options() -> Iterator[str]:
    with click.Context(command) as context:
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            assert found is not None
            yield f"verb {verb}"
            for each in found.params:
                yield f"option {verb} {'/'.join((*each.opts, *each.secondary_opts))} {each.type.name} {each.default!r}"


def keys(value: Any, place: str) -> Iterator[str]:
    """Yield the places of all values in a JSON document."""
    yield place
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from keys(inner, f"{place}.{name}")


def printed(*arguments: object) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        command([*map(str, arguments)], standalone_mode=False)
    return json.loads(text.getvalue())


def write_cells(path: Path, counts: np.ndarray[Any, Any]) -> None:
    import anndata
    import pandas as pd

    obs = pd.DataFrame(
        {"donor": pd.Categorical(["a", "b"] * (len(counts) // 2))}, [f"c{i}" for i in range(len(counts))]
    )
    marked = np.arange(counts.shape[1]) % 2 == 0
    var = pd.DataFrame({"highly_variable": marked}, [f"g{j}" for j in range(counts.shape[1])])
    anndata.AnnData(sp.csr_matrix(counts.astype(np.float32)), obs, var).write_h5ad(path)


def write_genotypes(path: Path, rng: np.random.Generator) -> None:
    from bed_reader import to_bed

    m, n = 60, 200
    values = rng.binomial(2, rng.uniform(0.1, 0.5, n), (m, n)).astype(np.float32)
    values[rng.random((m, n)) < 0.01] = np.nan
    people = [f"s{i}" for i in range(m)]
    variants = {"sid": [f"rs{j}" for j in range(n)], "bp_position": range(1, n + 1), "chromosome": ["1"] * n}
    to_bed(path, values, {"iid": people, "fid": people, "allele_1": ["A"] * n, "allele_2": ["G"] * n, **variants})


def outputs(folder: Path) -> Iterator[str]:
    """Fit a table, cells and genotypes, and list the keys of what is printed and written."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, (60, 40))
    table, cells, bed = folder / "t.csv", folder / "c.h5ad", folder / "g.bed"
    rows = (f"r{i},{','.join(map(str, row))}" for i, row in enumerate(counts))
    table.write_text("\n".join([",".join(["id", *(f"x{j}" for j in range(40))]), *rows]) + "\n")
    write_cells(cells, counts)
    write_genotypes(bed, rng)
    fits = {
        "table": (table, "--scale", "std"),
        "cells": (cells, "--preprocess", "log-normalize", "--groups", "donor", "--anndata"),
        "ranked": (cells, "--preprocess", "log-normalize", "--top-features", "20"),
        "genotypes": (bed, "--maf", "0.05", "--tracy-widom", "--scan"),
    }
    for name, arguments in fits.items():
        out = folder / name
        told = printed("fit", *arguments, "-k", 3, "-o", out, "--json")
        yield from keys(told, f"result {name}")
        beside = sorted(path for path in folder.iterdir() if path.name.startswith(f"{name}."))
        for file in (*sorted(out.iterdir()), *beside):
            head = file.read_text(encoding="utf-8").splitlines()[0] if file.suffix == ".csv" else ""
            yield f"file {name} {file.name} {head}"
        for verb in (
            ("info", out / "model.safetensors"),
            ("info", arguments[0]),
            ("estimate", *arguments, "-k", 3, "-o", folder / "new"),
        ):
            yield from keys(printed(*verb, "--json"), f"{verb[0]} {name}")
    yield from keys(printed("info", "--json"), "info")


def main() -> None:
    warnings.simplefilter("ignore")
    found = [*names(), *options()]
    found += [f"format {name} {known.suffixes} {known.description}" for name, known in formats().items()]
    found += [f"kind {name} {sorted([*kind.fitted, *kind.sometimes])}" for name, kind in kinds().items()]
    found += [f"transformation {name}" for name in NAMED]
    with tempfile.TemporaryDirectory() as folder:
        found += outputs(Path(folder))
    found += [f"top {name}" for name in dir(ss)]
    print("\n".join(dict.fromkeys(found)))


if __name__ == "__main__":
    main()
