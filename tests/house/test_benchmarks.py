"""Every measurement is listed where a reader looks for it, and nothing is listed that is not there."""

import re

from tests.support.places import ROOT

FOLDER = ROOT / "benchmarks"
LISTED = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)`", (FOLDER / "README.md").read_text(), re.MULTILINE))
PARTS = {"cluster.peer", "peers.worker", "certificate.leaders_peer"}  # processes that others start


def test_the_list_of_measurements_names_what_can_be_run() -> None:
    runs = {f"{file.parent.name}.{file.stem}" for file in FOLDER.glob("[a-z]*/*.py") if "__main__" in file.read_text()}
    assert runs - PARTS == LISTED
