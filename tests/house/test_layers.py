"""The house: who may import whom, held by walking the imports."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import shiftsvd
from benchmarks.structure.docstrings import public

ROOT = Path(shiftsvd.__file__).parent
# Lowest first, one folder or module a line where two of a level might meet: CONTRIBUTING.md, "Where things are".
LAYERS = (
    ("errors", "names"),
    ("extend",),
    ("kernels", "events"),
    ("numerics",),
    ("algebra",),
    ("operators",),
    ("sketch", "runs"),
    ("backends",),
    ("io", "transforms"),
    ("result",),
    ("accuracy",),
    ("solvers",),
    ("missing",),
    ("preparation",),
    ("shifts",),
    ("front",),
    ("biwhitening", "choosing"),
    ("model_file",),
    ("streaming",),
    ("estimators",),
    ("plot", "testing"),
    ("wording",),
    ("report",),
    ("commands",),
    ("cli",),
    ("extend.commands", "extend.files", "extend.fits", "extend.models", "extend.operators", "extend.running"),
    ("extend.plots", "extend.transforms"),
)
EXTENSIONS = ("genetics", "scanpy", "xarray")  # which the core does not import, and that do not import each other
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(("shiftsvd", *(part for part in parts if part != "__init__")))


def house(name: str) -> str:
    """The part of the house that a module belongs to: its first name below the package, or a file for extensions."""
    first = name.split(".")[1]
    return name.removeprefix("shiftsvd.") if first == "extend" else first


@cache
def nodes(file: Path) -> list[ast.AST]:
    """The statements and calls that may import: keeping every node makes each collection of garbage slow."""
    kinds = ast.If, ast.Import, ast.ImportFrom, ast.Call
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)]


@cache
def imports(file: Path) -> list[str]:
    """Modules of the package that a file imports anywhere, but for types only."""
    return list(found(file))


def found(file: Path) -> Iterator[str]:
    for_types = {
        id(inner)
        for node in nodes(file)
        if isinstance(node, ast.If)
        and any("TYPE_CHECKING" in vars(of).values() for of in ast.walk(node.test))  # a name or an attribute
        for inner in ast.walk(node)
    }
    for node in nodes(file):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "shiftsvd")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "shiftsvd":
            for alias in node.names:
                submodule = ROOT.joinpath(*node.module.split(".")[1:], alias.name)
                is_module = submodule.with_suffix(".py").exists() or submodule.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            yield from by_name(node.args[0])


def by_name(argument: ast.expr) -> Iterator[str]:
    """Modules of the package that are imported by their names; for a name in braces, all of that folder."""
    if isinstance(argument, ast.Constant):
        yield from (name for name in (argument.value,) if name.split(".")[0] == "shiftsvd")
    elif isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        folder = ROOT.joinpath(*argument.values[0].value.strip(".").split(".")[1:])
        if folder != ROOT:
            yield from (module_name(file) for file in sorted(folder.glob("*.py")))


def test_modules_import_only_what_is_below_them() -> None:
    wrong = []
    for file in MODULES:
        name = module_name(file)
        if name == "shiftsvd":
            assert imports(file) == []  # names resolve lazily
            continue
        if house(name) in EXTENSIONS:
            others = (other for other in imports(file) if other != "shiftsvd" and house(other) != house(name))
            wrong += [f"{name} imports {other}" for other in others if house(other) in EXTENSIONS]
            continue
        assert house(name) in LEVEL, f"{name} has no layer: CONTRIBUTING.md, Where things are"
        for other in imports(file):
            if other == "shiftsvd":
                if LEVEL[house(name)] < LEVEL["plot"]:
                    wrong.append(f"{name} imports the public names from below the top")
            elif house(other) in EXTENSIONS:
                wrong.append(f"{name} imports {other}, an extension")
            elif house(other) != house(name) and LEVEL[house(other)] >= LEVEL[house(name)]:
                wrong.append(f"{name} imports {other}, which is not below it")
    assert not wrong, "\n".join([*wrong, "CONTRIBUTING.md, Where things are, says who may import whom"])


def test_extensions_import_public_names_alone() -> None:
    # So that each could be a distribution of its own: what the reference lists, and `shiftsvd.extend`.
    known = {name for name, is_member in public() if not is_member}
    wrong = []
    for file in (file for name in EXTENSIONS for file in (ROOT / name).glob("*.py")):
        own = f"shiftsvd.{file.parent.name}"
        for node in nodes(file):
            if isinstance(node, ast.Import):
                wrong += [f"{file}: {alias.name}" for alias in node.names if alias.name.startswith("shiftsvd.")]
            elif isinstance(node, ast.ImportFrom):
                asked = (f"{node.module}.{alias.name}" for alias in node.names)
                asked = (name for name in asked if not name.startswith((own + ".", "shiftsvd.extend.")))
                wrong += [f"{file}: {name}" for name in asked if name.startswith("shiftsvd.") and name not in known]
    assert not wrong, "\n".join([*wrong, "extensions import what is public, and shiftsvd.extend"])


def test_no_relative_imports() -> None:
    for file in MODULES:
        for node in nodes(file):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{file}: relative import"


def test_no_circle_of_imports() -> None:
    # Those inside functions count, and so do those by name; those for types do not.
    graph = {module_name(file): {other for other in imports(file) if other != "shiftsvd"} for file in MODULES}
    # A package may import its own modules, which do not import the package.
    order = list(TopologicalSorter({name: others - {name} for name, others in graph.items()}).static_order())
    assert order.index("shiftsvd.operators") < order.index("shiftsvd.front") < order.index("shiftsvd.estimators.pca")


def test_the_walk_sees_imports_of_every_form() -> None:
    seen = {module_name(file): set(imports(file)) for file in MODULES}
    assert "shiftsvd.numerics.moments" in seen["shiftsvd.algebra.operator"]
    assert "shiftsvd.solvers" in seen["shiftsvd.front"]
    assert "shiftsvd.runs.memory" in seen["shiftsvd.front"]


def test_algorithms_do_not_ask_what_the_data_are() -> None:
    # "No `if` about data inside an algorithm": only backends, readers and matrices with gaps know SciPy's.
    for file in MODULES:
        layer = file.relative_to(ROOT).parts[0].removesuffix(".py")
        of_data = layer in ("backends", "kernels", "io") or file.stem in ("gaps", "opening")
        if LEVEL.get(layer, len(LAYERS)) <= LEVEL["front"] and not of_data:
            text = file.read_text()
            assert "issparse" not in text, file
            assert "scipy.sparse import" not in text, file
