"""What was measured on clusters: lines of JSON, one for each run, in a file that belongs to the repository."""

import json
from pathlib import Path

FILE = Path(__file__).with_name("cluster.jsonl")
# What tells one run from another; a run that is repeated takes the place of the one before.
IDENTITY = ("what", "name", "gigabytes", "workers", "k")


def load(what: str, file: Path = FILE) -> list[dict]:
    """All runs of a kind: "fit", "peer", "block", "client" or "sweep"."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [record for record in map(json.loads, lines) if record["what"] == what]


def save(record: dict, file: Path = FILE) -> None:
    """Write a run down, instead of an earlier one like it."""
    lines = file.read_text().splitlines() if file.exists() else []
    others = [line for line in lines if _identity(json.loads(line)) != _identity(record)]
    file.write_text("".join(line + "\n" for line in [*others, json.dumps(record)]))


def _identity(record: dict) -> list:
    """Two runs of which these are the same are the same run."""
    return [record.get(name) for name in IDENTITY]
