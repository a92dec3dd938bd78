"""Run the tests of the core, or build its pages, in a copy of the checkout without the folder of an extension.

    python tools/without.py genetics                       # all tests of the core that `make test` runs
    python tools/without.py genetics tests/io -m "not slow"
    python tools/without.py genetics --docs                # the pages

The copy has an environment of its own, which finds the sources of the copy and the packages of this interpreter.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def copied(name: str, folder: Path) -> Path:
    """Copy what git tracks, without the extension and its tests, and with the compiled kernels."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    out = (f"src/shiftsvd/{name}/", f"tests/{name}/")
    for file in filter(None, tracked.split("\0")):
        if not file.startswith(out) and (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, folder / file)
    kernels = Path("shiftsvd") / "kernels"
    for place in (Path(sysconfig.get_path("platlib")) / kernels, ROOT / "src" / kernels):
        for file in place.glob("_compiled*"):
            shutil.copy2(file, folder / "src" / kernels)
    return folder


def environment(folder: Path) -> Path:
    """Make an interpreter that finds the sources of the copy before everything else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    python = folder / ".venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    ).stdout.strip()
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    Path(site, "here.pth").write_text("\n".join([str(folder / "src"), *packages]) + "\n", encoding="utf-8")
    script = python.with_name("shiftsvd")
    script.write_text(f"#!{python}\nimport sys\nfrom shiftsvd.cli import main\nsys.exit(main())\n", encoding="utf-8")
    script.chmod(0o755)
    return python


def main() -> int:
    name, *words = sys.argv[1:]
    assert (ROOT / "src" / "shiftsvd" / name / "extension.py").exists(), f"{name} is no extension"
    with tempfile.TemporaryDirectory(prefix=f"without-{name}-") as temporary:
        folder = copied(name, Path(temporary))
        tests = ["pytest", "-q", *(words or ["-n", "2", "-m", "not long"])]
        docs = ["sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html"]
        command = [environment(folder), "-m", *(docs if words == ["--docs"] else tests)]
        return subprocess.run(command, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
