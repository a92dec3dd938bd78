"""Whether a tag of git, such as v0.1.0, is the version in pyproject.toml, and the changelog and CITATION.cff know it.

Run: python tools/tag.py v0.1.0
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def wrong(tag: str) -> list[str]:
    """What does not fit the tag."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    checks = {
        f"the tag is {tag or 'missing'}, and pyproject.toml has version {version}": tag == f"v{version}",
        f"CHANGELOG.md has no heading `## {version} (YYYY-MM-DD)`": bool(
            re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE)
        ),
        f"CITATION.cff has no line `version: {version}`": f"\nversion: {version}\n" in cited,
    }
    return [complaint for complaint, right in checks.items() if not right]


def main(tag: str) -> int:
    """How many things do not fit."""
    complaints = wrong(tag)
    print(*complaints, sep="\n", end="\n" if complaints else "", file=sys.stderr)
    return len(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
