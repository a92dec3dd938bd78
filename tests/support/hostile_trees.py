"""Hostile files of HDF5 and Zarr: each function writes one, by its generator, into a folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Rng = np.random.Generator
Case = Callable[[Path, Rng, Path], Path]  # the folder, the generator, and the file whose bytes must get nowhere
M, N = 12, 5


def numbers(rng: Rng) -> Any:
    return rng.normal(size=(M, N))


def h5() -> Any:
    return pytest.importorskip("h5py")


def anndata(path: Path, rng: Rng) -> Path:
    """A sound AnnData file."""
    from shiftsvd.io import convert

    np.save(path.with_suffix(".npy"), numbers(rng))
    convert(path.with_suffix(".npy"), path, force=True)
    return path


def sparse_group(root: Any, rng: Rng, name: str = "X", **wrong: Any) -> Any:
    """A CSR group, with parts replaced."""
    from scipy.sparse import random_array

    X = random_array((M, N), density=0.4, rng=rng).tocsr()
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr} | wrong
    group = root.create_group(name)
    for part in ("data", "indices", "indptr"):
        group[part] = parts[part]
    group.attrs["encoding-type"] = "csr_matrix"
    group.attrs["shape"] = wrong.get("shape", X.shape)
    return group


def external_link(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        place = ["X", "g/X", "g/h/X"][rng.integers(3)]
        file[place] = h5().ExternalLink([str(canary.with_suffix(".h5")), "../canary.h5"][rng.integers(2)], "/X")
        if rng.random() < 0.5:
            file["other"] = numbers(rng)
    return path


def soft_link_through_external(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        file["out"] = h5().ExternalLink(str(canary.with_suffix(".h5")), "/")
        file["X"] = h5().SoftLink("/out/X" if rng.random() < 0.5 else "out/X")
    return path


def virtual(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        layout = h5().VirtualLayout((M, N), "f8")
        layout[:] = h5().VirtualSource(str(canary.with_suffix(".h5")), "X", (M, N))
        file.create_virtual_dataset("X" if rng.random() < 0.5 else "g/X", layout, fillvalue=float(rng.random()))
    return path


def virtual_of_itself(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    names = ["X"] if rng.random() < 0.5 else ["X", "Y"]
    with h5().File(path, "w") as file:
        for name, other in zip(names, names[::-1], strict=True):
            layout = h5().VirtualLayout((M, N), "f8", maxshape=(None, N))
            source = h5().VirtualSource([".", str(path)][rng.integers(2)], other, (M, N), maxshape=(None, N))
            if rng.random() < 0.5:
                layout[:] = source
            else:
                end = h5().h5s.UNLIMITED
                layout[0:end, :] = source[0:end, :]
            file.create_virtual_dataset(name, layout)
    return path


def external_storage(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        place = [str(canary), "/etc/passwd", "../canary.bin"][rng.integers(3)]
        kind = ["f8", "u1", "S8"][rng.integers(3)]
        file.create_dataset("X", (M, N), kind, external=[(place, int(rng.integers(9)), M * N * 8)])
    return path


def hard_links_in_circles(folder: Path, rng: Rng, canary: Path) -> Path:
    path, count = folder / "a.h5", int(rng.integers(3, 40))
    with h5().File(path, "w") as file:
        groups = [file.create_group(f"g{i}") for i in range(count)]
        for group in groups:
            for i, other in enumerate(groups):
                group[f"h{i}"] = other
        if rng.random() < 0.5:
            groups[-1]["X"] = numbers(rng)
    return path


def columns_in_circles(folder: Path, rng: Rng, canary: Path) -> Path:
    path = anndata(folder / "a.h5ad", rng)
    with h5().File(path, "r+") as file:
        for name in ("a", "b", "c", "d"):
            file["obs"].create_group(name)
        for name in ("a", "b", "c", "d"):
            for other in ("a", "b", "c", "d"):
                file["obs"][name][["codes", "categories", "values", "mask"][ord(other) - 97]] = file["obs"][other]
    return path


def soft_links_in_circles(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        for i in range(5):
            file[f"l{i}"] = h5().SoftLink(f"/l{(i + 1) % 5}")
        file["up"] = h5().SoftLink("/up/up/up")
        if rng.random() < 0.5:
            file["X"] = numbers(rng)
    return path


def claims(folder: Path, rng: Rng, canary: Path) -> Path:
    """Sizes that no memory holds."""
    path = folder / "a.h5"
    size = 10 ** int(rng.integers(5, 12))
    with h5().File(path, "w") as file:
        chunk = int(10 ** rng.integers(0, 5))
        file.create_dataset("X", (size, size), ["f8", "u1"][rng.integers(2)], chunks=(chunk, 100))
    return path


def tiny_chunks(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        side = int(rng.integers(5_000, 20_000))
        file.create_dataset("X", (side, side), "u1", chunks=(1, int(rng.integers(1, 4))))
    return path


def long_names(folder: Path, rng: Rng, canary: Path) -> Path:
    path = anndata(folder / "a.h5ad", rng)
    with h5().File(path, "r+") as file:
        del file["obs/_index"]
        size = int(10 ** rng.integers(4, 7))
        file.create_dataset("obs/_index", (M,), f"S{size}", chunks=(1,), compression="gzip")
    return path


def odd_types(folder: Path, rng: Rng, canary: Path) -> Path:
    path, kinds = folder / "a.h5", h5()
    with h5().File(path, "w") as file:
        types = [
            kinds.ref_dtype,
            kinds.regionref_dtype,
            kinds.vlen_dtype("f8"),
            np.dtype([("a", "f8")]),
            np.dtype("V9"),
        ]
        types += [kinds.enum_dtype({"a": 1}), kinds.string_dtype(), np.dtype(("f8", (3,))), np.dtype("f2")]
        kind = types[rng.integers(len(types))]
        if rng.random() < 0.5:
            file.create_dataset("X", (M, N), kind)
        else:
            sparse_group(file, rng, **{["data", "indices", "indptr"][rng.integers(3)]: np.zeros(9, "V3")})
            del file["X/data"]
            file["X"].create_dataset("data", (9,), kind)
    return path


def bad_sparse(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    indptr = np.arange(M + 1) * 2
    data, indices = rng.normal(size=2 * M), rng.integers(0, N, 2 * M)
    wrong = int(rng.integers(7))
    if wrong == 0:
        indices[rng.integers(2 * M)] = [-1, N, 2**31 - 1, -(2**31)][rng.integers(4)]
    elif wrong == 1:
        indptr = indptr[::-1].copy()
    elif wrong == 2:
        indptr[rng.integers(M)] = 10**9
    elif wrong == 3:
        indptr = indptr.astype(np.uint64) + np.uint64(2**63)
    elif wrong == 4:
        data = data[:-3]
    shape = [(M, N), (-M, N), (2**62, N), (M, 2**62), (M, 0), (M,)][rng.integers(6) if wrong > 4 else 0]
    with h5().File(path, "w") as file:
        sparse_group(
            file, rng, data=data, indices=indices.astype("f4") if wrong == 5 else indices, indptr=indptr, shape=shape
        )
    return path


def bad_categories(folder: Path, rng: Rng, canary: Path) -> Path:
    path = anndata(folder / "a.h5ad", rng)
    with h5().File(path, "r+") as file:
        del file["obs/_index"]
        group = file.create_group("obs/_index")
        group["categories"] = [b"a", b"b"]
        group["codes"] = rng.choice([0, 1, -1, -9, 2, 10**6, -(2**31)], M)
    return path


def outside_of_frames(folder: Path, rng: Rng, canary: Path) -> Path:
    """Names, or columns, that lie in another file."""
    path = anndata(folder / "a.h5ad", rng)
    with h5().File(path, "r+") as file:
        place = ["obs/_index", "var/_index", "obs", "X", "layers", "uns/notes"][rng.integers(6)]
        if place in file:
            del file[place]
        file[place] = h5().ExternalLink(str(canary.with_suffix(".h5")), "/names" if "_index" in place else "/X")
    return path


def tenx_outside(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.h5"
    with h5().File(path, "w") as file:
        group = sparse_group(file, rng, "matrix", shape=(N, M))
        group["shape"] = [N, M]
        there = h5().ExternalLink(str(canary.with_suffix(".h5")), "/names")
        group["barcodes"] = there
        group["features/name"] = group["features/id"] = there
    return path


def netcdf_outside(folder: Path, rng: Rng, canary: Path) -> Path:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    path = folder / "a.nc"
    xarray.Dataset({"X": (("time", "space"), numbers(rng))}).to_netcdf(path, engine="h5netcdf")
    with h5().File(path, "r+") as file:
        how = rng.integers(3)
        if how == 0:
            file["Y"] = h5().ExternalLink(str(canary.with_suffix(".h5")), "/X")
        elif how == 1:
            layout = h5().VirtualLayout((M, N), "f8")
            layout[:] = h5().VirtualSource(str(canary.with_suffix(".h5")), "X", (M, N))
            file.create_virtual_dataset("Y", layout)
        else:
            file.create_dataset("Y", (M, N), "f8", external=[(str(canary), 0, M * N * 8)])
        file["Y2"] = file["X"][:]
    return path


def flipped_h5(folder: Path, rng: Rng, canary: Path) -> Path:
    path = anndata(folder / "a.h5ad", rng)
    if rng.random() < 0.5:
        path = folder / "b.h5"
        with h5().File(path, "w") as file:
            file.create_dataset("X", data=numbers(rng), chunks=(4, N), compression="gzip", shuffle=True)
    return flipped(path, rng)


def flipped(path: Path, rng: Rng) -> Path:
    """Some bytes changed, or the end cut off."""
    content = bytearray(path.read_bytes())
    for at in rng.integers(0, len(content), rng.integers(1, 12)):
        content[at] = rng.integers(256)
    path.write_bytes(content[: rng.integers(len(content))] if rng.random() < 0.2 else content)
    return path


def zarr_folder(folder: Path, rng: Rng, **how: Any) -> Path:
    zarr = pytest.importorskip("zarr")
    path = folder / "a.zarr"
    settings = {"shape": (M, N), "chunks": (4, N), "dtype": "f8", "zarr_format": int(rng.integers(2, 4))} | how
    array = zarr.create_array(str(path), **settings)
    if "shape" not in how:
        array[:] = numbers(rng)
    return path


def chunks_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name[0] in "0123456789")


def zarr_link(folder: Path, rng: Rng, canary: Path) -> Path:
    path = zarr_folder(folder, rng, compressors=None)
    if rng.random() < 0.5:
        chunk = chunks_of(path)[0]
        chunk.unlink()
        chunk.symlink_to(canary if rng.random() < 0.5 else os.path.relpath(canary, chunk.parent))
    else:
        (path / "more").symlink_to(canary.parent, target_is_directory=True)
    return path


def zarr_pipe(folder: Path, rng: Rng, canary: Path) -> Path:
    path = zarr_folder(folder, rng)
    chunk = chunks_of(path)[int(rng.integers(3))]
    chunk.unlink()
    os.mkfifo(chunk)
    return path


def zarr_tiny_chunks(folder: Path, rng: Rng, canary: Path) -> Path:
    side = int(rng.integers(2_000, 10_000))
    return zarr_folder(folder, rng, shape=(side, side), chunks=(1, int(rng.integers(1, 3))), dtype="u1")


def zarr_claims(folder: Path, rng: Rng, canary: Path) -> Path:
    size = int(10 ** rng.integers(5, 12))
    return zarr_folder(folder, rng, shape=(size, size), chunks=(int(10 ** rng.integers(2, 6)), 100))


def metadata_of(path: Path) -> Path:
    return next(file for file in (path / "zarr.json", path / ".zarray") if file.exists())


def zarr_metadata(folder: Path, rng: Rng, canary: Path) -> Path:
    """A value of the metadata replaced."""
    path = zarr_folder(folder, rng)
    file = metadata_of(path)
    told = json.loads(file.read_text())
    junk = [-1, 0, 10**30, None, "", "../..", [], {}, [-1, 5], [10**9, 10**9], True, 0.5, "|O", "<M8[s]", "NaN", ["x"]]
    node, key = told, list(told)[rng.integers(len(told))]
    while isinstance(node[key], dict) and node[key] and rng.random() < 0.7:
        node = node[key]
        key = list(node)[rng.integers(len(node))]
    node[key] = junk[rng.integers(len(junk))]
    text = json.dumps(told)
    file.write_text(
        text if rng.random() < 0.8 else ["[" * 100_000, text[:-3], "\x00", '{"zarr_format":2' * 3][rng.integers(4)]
    )
    return path


def zarr_pickle(folder: Path, rng: Rng, canary: Path) -> Path:
    path = folder / "a.zarr"
    path.mkdir()
    codec, plain = {"id": "pickle"}, {"id": "vlen-utf8"}
    filters = [[plain, codec], [plain], [codec]][rng.integers(3)]
    told = {"zarr_format": 2, "shape": [M, N], "chunks": [M, N], "dtype": ["|O", "<f8"][rng.integers(2)], "order": "C"}
    told |= {"compressor": codec, "filters": filters, "fill_value": None}
    (path / ".zarray").write_text(json.dumps(told))
    code = f"(cos\nsystem\n(Vcat {canary} > {folder / 'ran'}\ntR."
    (path / "0.0").write_bytes(code.encode())
    return path


def zarr_above(folder: Path, rng: Rng, canary: Path) -> Path:
    """Names that are said to lie above the folder."""
    from shiftsvd.io import convert

    path = folder / "a.zarr"
    np.save(folder / "a.npy", numbers(rng))
    convert(folder / "a.npy", path)
    shutil.copytree(path / "obs" / "_index", folder / "secret")
    told = json.loads((path / "obs" / ".zattrs").read_text())
    above = ["../../secret", "../../../secret", str(folder / "secret"), "_index/../../../secret", "..", ".", "//"]
    (path / "obs" / ".zattrs").write_text(json.dumps(told | {"_index": above[rng.integers(len(above))]}))
    return path


def flipped_zarr(folder: Path, rng: Rng, canary: Path) -> Path:
    path = zarr_folder(folder, rng)
    files = [file for file in path.rglob("*") if file.is_file()]
    flipped(files[rng.integers(len(files))], rng)
    return path


TREES: dict[str, Case] = {
    f"HDF5: {case.__name__}": case
    for case in (
        external_link,
        soft_link_through_external,
        virtual,
        virtual_of_itself,
        external_storage,
        hard_links_in_circles,
        soft_links_in_circles,
        claims,
        tiny_chunks,
        odd_types,
        bad_sparse,
        flipped_h5,
    )
}
TREES |= {
    f"AnnData: {case.__name__}": case for case in (columns_in_circles, long_names, bad_categories, outside_of_frames)
}
TREES |= {"10x: tenx_outside": tenx_outside, "NetCDF: netcdf_outside": netcdf_outside}
TREES |= {
    f"Zarr: {case.__name__}": case
    for case in (
        zarr_link,
        zarr_pipe,
        zarr_tiny_chunks,
        zarr_claims,
        zarr_metadata,
        zarr_pickle,
        zarr_above,
        flipped_zarr,
    )
}
