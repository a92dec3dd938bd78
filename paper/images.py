"""Images as rows of one uint8 matrix: handwritten digits, and faces from a folder, a file or a package."""

import os
import socket
import struct
import zipfile
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paper import DataError
from shiftsvd.events import Event, Listener, silent

Pixels = npt.NDArray[np.uint8]

SIDE: Final = 250  # the paper's faces are 250 x 250
SUFFIXES: Final = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"))
LFW_HOST: Final = ("ndownloader.figshare.com", 443)


@dataclass(frozen=True, eq=False)
class Images:
    """One image a row, `height` pixels high; `skipped` names the files that could not be read."""

    pixels: npt.NDArray[Any]
    height: int
    source: str
    skipped: tuple[str, ...] = ()


def digits() -> Images:
    from sklearn.datasets import load_digits

    return Images(load_digits().data, 8, "scikit-learn, load_digits()")


def read_tree(folder: Path, scratch: Path, listen: Listener = silent) -> Images:
    """Every image under a folder, in sorted order, as 250 x 250 grey bytes in a memory-mapped file.

    Parameters
    ----------
    folder : Path
    scratch : Path
        An existing directory with room for 62 500 bytes an image.
    listen : Listener

    Raises
    ------
    DataError
        If the folder has no readable image.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise DataError(f"no image under {folder} (looked for {', '.join(sorted(SUFFIXES))})")
    # Bytes in a mapped file: 13 233 images are 0.8 GB, as float64 they would be 6.6 GB.
    pixels = np.lib.format.open_memmap(scratch / "faces.npy", "w+", np.uint8, (len(files), SIDE * SIDE))
    skipped: list[str] = []
    for done, file in enumerate(files, start=1):
        try:
            pixels[done - 1 - len(skipped)] = _grey(file)
        except DataError as error:
            skipped.append(str(error))
        listen(Event("reading the images", done, len(files)))
    pixels.flush()
    if len(skipped) == len(files):
        raise DataError(f"none of the {len(files)} images under {folder} can be read; the first: {skipped[0]}")
    return Images(pixels[: len(files) - len(skipped)], SIDE, f"image files under {folder}", tuple(skipped))


def _grey(file: Path) -> Pixels:
    from PIL import Image

    try:
        with Image.open(file) as image:
            grey = image.convert("L")
            return np.asarray(grey if grey.size == (SIDE, SIDE) else grey.resize((SIDE, SIDE))).reshape(-1)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise DataError(f"{file}: {error}") from None


def read_npz(path: Path) -> Images:
    try:
        # Opened here: np.load leaves the file open when it is no archive after all.
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            images = arrays["images"] if isinstance(arrays, np.lib.npyio.NpzFile) and "images" in arrays else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable NPZ file: {error}") from None
    if images is None:
        raise DataError(f"{path} has no array named `images`")
    if images.dtype != np.uint8 or images.ndim not in (2, 3) or len(images) < 2:
        raise DataError(
            f"`images` in {path} must be at least two images of uint8, N x pixels or N x height x width, "
            f"got {images.dtype} {images.shape}"
        )
    height = images.shape[1] if images.ndim == 3 else _square_height(images.shape[1])
    return Images(images.reshape(len(images), -1), height, str(path))


def _square_height(pixels: int) -> int:
    height = round(pixels**0.5)
    return height if height**2 == pixels else 1


def packaged_faces(scratch: Path, download: bool, listen: Listener = silent) -> Images:
    folder = _sklearn_lfw(download, listen)
    if folder is not None:
        return read_tree(folder, scratch, listen)
    from skimage.data import lfw_subset

    # The second hundred are not faces.
    crops = np.round(lfw_subset()[:100] * 255).astype(np.uint8)
    return Images(crops.reshape(100, -1), 25, "scikit-image, lfw_subset(): 100 crops of 25 x 25")


def _sklearn_lfw(download: bool, listen: Listener) -> Path | None:
    # Not get_data_home(): it would make the folder.
    home = Path(os.environ.get("SCIKIT_LEARN_DATA", "~/scikit_learn_data")).expanduser() / "lfw_home"
    folders = (home / "lfw", home / "lfw_funneled")  # the paper's are not funneled
    if not any(folder.is_dir() for folder in folders) and download and _online():
        listen(Event("fetching Labeled Faces in the Wild", 0))
        _fetch()
    return next((folder for folder in folders if folder.is_dir()), None)


def _fetch() -> None:
    from sklearn.datasets import fetch_lfw_people

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        # Only the files are wanted: one person's images keep the float copy that comes with them small.
        fetch_lfw_people(funneled=False, min_faces_per_person=500)
    except (OSError, HTTPException):
        return
    finally:
        socket.setdefaulttimeout(timeout)


def _online() -> bool:
    try:
        socket.create_connection(LFW_HOST, timeout=3).close()
    except OSError:
        return False
    return True
