"""Reading images: sizes, order, damaged files, and files that are something else."""

import os
from pathlib import Path

import numpy as np
import pytest

from paper import DataError, images

Image = pytest.importorskip("PIL.Image")


def save(file: Path, size: tuple[int, int], grey: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (grey, grey, grey)).save(file)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "faces"
    save(folder / "b" / "1.png", (250, 250), 20)
    save(folder / "a" / "2.jpg", (80, 60), 10)
    (folder / "a" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\nno image at all")
    save(folder / "c.bmp", (250, 250), 30)
    (folder / "notes.txt").write_text("not an image", encoding="utf-8")
    return folder


def test_tree_is_read_in_order_as_bytes_of_250_by_250(tree: Path, tmp_path: Path) -> None:
    found = images.read_tree(tree, tmp_path)
    assert (found.pixels.dtype, found.pixels.shape) == (np.uint8, (3, 62_500))
    assert isinstance(found.pixels, np.memmap)
    np.testing.assert_allclose(found.pixels.mean(axis=1), [10, 20, 30], atol=1)


def test_unreadable_image_is_named_skipped_and_counted(tree: Path, tmp_path: Path) -> None:
    found = images.read_tree(tree, tmp_path)
    assert len(found.skipped) == 1
    assert str(tree / "a" / "3.png") in found.skipped[0]


def test_truncated_image_is_skipped(tmp_path: Path) -> None:
    save(tmp_path / "t" / "whole.png", (250, 250), 1)
    noise = np.random.default_rng(0).integers(0, 255, (250, 250), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "t" / "cut.png")
    cut = tmp_path / "t" / "cut.png"
    cut.write_bytes(cut.read_bytes()[:9000])
    found = images.read_tree(tmp_path / "t", tmp_path)
    assert (len(found.pixels), len(found.skipped)) == (1, 1)


def test_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no image under"):
        images.read_tree(tmp_path / "empty", tmp_path)


def test_folder_with_no_readable_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"none of the 1 images .*x\.png"):
        images.read_tree(tmp_path / "bad", tmp_path)


@pytest.mark.parametrize("shape", [(5, 12), (5, 3, 4)])
def test_npz_of_either_layout_is_read(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)
    np.savez(tmp_path / "f.npz", images=array)
    found = images.read_npz(tmp_path / "f.npz")
    np.testing.assert_array_equal(found.pixels, array.reshape(5, 12))
    assert found.height == (3 if len(shape) == 3 else 1)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda f: np.savez(f, faces=np.zeros((3, 4), np.uint8)), "no array named `images`"),
        (lambda f: np.savez(f, images=np.zeros((3, 4))), "uint8.*got float64"),
        (lambda f: np.savez(f, images=np.zeros(4, np.uint8)), r"got uint8 \(4,\)"),
        (lambda f: f.write_bytes(b"PK\x03\x04 broken"), "not a readable NPZ"),
        (lambda f: f.write_bytes(b"plain text"), "not a readable NPZ"),
    ],
)
def test_npz_that_cannot_be_used_says_why(tmp_path: Path, write, message: str) -> None:
    write(tmp_path / "f.npz")
    with pytest.raises(DataError, match=message):
        images.read_npz(tmp_path / "f.npz")


def test_packaged_faces_are_faces_without_any_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skimage")
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: pytest.fail("a network was asked for"))
    found = images.packaged_faces(tmp_path, download=False)
    assert (found.pixels.shape, found.pixels.dtype) == ((100, 625), np.uint8)
    assert not (tmp_path / "nothing").exists()


def test_without_a_network_the_packaged_faces_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skimage")
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "nothing"))

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("socket.create_connection", refuse)
    assert "scikit-image" in images.packaged_faces(tmp_path, download=True).source


def test_cached_faces_of_scikit_learn_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "cache" / "lfw_home" / "lfw" / "somebody" / "1.jpg", (250, 250), 7)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    found = images.packaged_faces(tmp_path, download=False)
    assert found.pixels.shape == (1, 62_500)
    assert "lfw_home" in found.source


def test_real_faces_have_the_known_shape() -> None:
    folder = os.environ.get("SHIFTSVD_TEST_DATA")
    if folder is None:
        pytest.skip("SHIFTSVD_TEST_DATA names no folder with olivetti_64x64.npz")
    found = images.read_npz(Path(folder) / "olivetti_64x64.npz")
    assert (found.pixels.shape, found.height) == ((400, 4096), 64)
