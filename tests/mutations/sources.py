"""The sources that faults are put into: a tree of their own with what tests need, and files that are changed back."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.faults import Fault
from tests.support.places import ROOT

PACKAGE = Path("src", "shiftsvd")
KERNELS = PACKAGE / "kernels"


@dataclass(frozen=True)
class Tree:
    """A checkout of one revision, with an environment that imports the package from it, and the tests of another."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / ".venv" / "bin" / "python"

    @property
    def sources(self) -> Path:
        return self.root / PACKAGE

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """The tree with one fault in it; kernels that are compiled are built again."""
        path, compiled = self.sources / fault.file, fault.file.endswith((".cpp", ".hpp"))
        sound = path.read_text()
        path.write_text(changed(sound, fault))
        kept = [(kernels, kernels.read_bytes()) for kernels in self._compiled()] if compiled else []
        try:
            if compiled:
                self._build()
            yield
        finally:
            path.write_text(sound)
            for kernels, content in kept:
                kernels.write_bytes(content)

    def _compiled(self) -> list[Path]:
        return list((self.root / KERNELS).glob("_compiled*.so"))

    def _build(self) -> None:
        """Build the kernels in a folder that is kept, so that only what has changed is compiled."""
        build = self.root / "build"
        beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        cmake = shutil.which("cmake", path=beside)
        if cmake is None:
            raise SystemExit("faults of C++ need cmake: leave them out by --only")
        told = {"cwd": self.root, "check": True, "stdout": subprocess.DEVNULL}
        subprocess.run([cmake, "-S", ".", "-B", str(build), f"-DPython_EXECUTABLE={sys.executable}"], **told)
        subprocess.run([cmake, "--build", str(build)], **told)
        for kernels in build.rglob("_compiled*.so"):
            shutil.copy(kernels, self.root / KERNELS)


def fits(source: str, fault: Fault) -> bool:
    """Whether a source holds what the fault changes, once: another revision may be written otherwise."""
    return source.count(fault.old) == 1


def changed(source: str, fault: Fault) -> str:
    """The source with the fault in it; what is changed must be there once."""
    if not fits(source, fault):
        raise ValueError(f"{fault.file} must hold {fault.old!r} once, it does {source.count(fault.old)} times")
    return source.replace(fault.old, fault.new)


@contextmanager
def checkout(root: Path, ref: str, tests_ref: str) -> Iterator[Tree]:
    """A worktree of `ref` with the tests of `tests_ref`, removed at the end."""
    _git("worktree", "add", "--quiet", "--detach", str(root), ref)
    try:
        if tests_ref != ref:
            shutil.rmtree(root / "tests")
            _git("-C", str(root), "checkout", "--quiet", tests_ref, "--", "tests")
        yield _equipped(Tree(root))
    finally:
        _git("worktree", "remove", "--force", str(root))


def _equipped(tree: Tree) -> Tree:
    """The tree with an environment of its own: the packages and the kernels of this one, the sources of the tree."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tree.root / ".venv"], check=True)
    (site,) = (tree.root / ".venv" / "lib").glob("python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    # The folders of the packages alone: what they say of this tree in their .pth files is not read.
    (site / "sources.pth").write_text("\n".join([str(tree.root / "src"), *packages]) + "\n")
    command = Path(sys.executable).parent / "shiftsvd"
    if command.exists():
        _, _, rest = command.read_text().partition("\n")
        (tree.python.parent / "shiftsvd").write_text(f"#!{tree.python}\n{rest}")
        (tree.python.parent / "shiftsvd").chmod(0o755)
    from shiftsvd.kernels import _compiled

    shutil.copy(str(_compiled.__file__), tree.root / KERNELS)
    return tree


def moved(tests_ref: str) -> dict[str, list[str]]:
    """Where files of tests that are here in a folder, or under a name, lie in another revision, as git finds them."""
    found = _git("diff", "-M30%", "--name-status", "--diff-filter=R", tests_ref, "HEAD", "--", "tests").splitlines()
    before = {now: then for _, then, now in (line.split("\t") for line in found)}
    there = set(_git("ls-tree", "-r", "--name-only", tests_ref, "tests").splitlines())
    places: dict[str, list[str]] = {}
    for path in _git("ls-files", "tests/**/test_*.py").splitlines():
        then = before.get(path, path)
        for place in (path, *map(str, list(Path(path).parents)[:-2])):
            places.setdefault(place, []).extend([then] if then in there else [])
    for then in sorted(
        path for path in there - set(before.values()) - set(places) if Path(path).name.startswith("test_")
    ):  # one that has been parted since
        folder = Path(then).parent if Path(then).parent.name != "tests" else Path("tests", Path(then).stem[5:])
        places.get(str(folder), []).append(then)
    return places


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
