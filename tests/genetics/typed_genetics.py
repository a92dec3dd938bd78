"""Calls of genetics that a type checker must let pass, and that it must name: see tests/house/typed_calls.py."""

from typing import assert_type

import shiftsvd as ss


def calls() -> None:
    ss.genetics.pca("a.bed", 5, chromosomes="all")
    ss.genetics.pca("a.bed", 5, chromosomes="every")  # wrong
    ss.genetics.pca("a.bed", 5, solver="lanzos")  # wrong
    assert_type(ss.load_model("model.safetensors", ss.genetics.GenotypePCA).n_used, int)
