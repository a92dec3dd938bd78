"""Where the repository is, and where what a benchmark makes is kept."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "benchmarks" / ".work"
