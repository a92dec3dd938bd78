"""A toy extension: a format of images, a transformation, and a verb that says how bright a file is."""

from shiftsvd.extend import Extension, Format

EXTENSION = Extension(
    name="toy",
    module="toy",
    formats={"pgm": Format("toy.parts:read", (".pgm",), ("PGM",), "plain PGM image")},
    magic={b"P2": "PGM"},
    by_content={"PGM": "pgm"},
    transforms={"brighten": "toy.parts:Brighten"},
    options={"fit": "toy.parts:OPTIONS"},
    verbs={"brightness": ("toy.parts:brightness", "Print the mean of a file.")},
    hooks="toy.parts:Told",
)
