"""What is released, and how: workflows call `make` and nothing else, addresses have one place, a tag is a version."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

in_clone = pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no workflows and no tools")


def steps(workflow: Path) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@in_clone
def test_there_are_workflows_that_test_release_and_publish():
    assert {path.stem for path in WORKFLOWS} >= {"test", "release", "docs", "nightly"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_of_a_workflow_calls_a_target_that_there_is(workflow):
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    for command in commands:
        called = re.fullmatch(r"make ([a-z-]+)( [A-Z]+=[\w.-]+)*", command)
        assert called, f"{workflow.name}: {command!r} is more than a call of make"
        assert called[1] in TARGETS, f"{workflow.name}: no target {called[1]}"
    assert commands


@in_clone
def test_nothing_is_published_that_was_not_tested_and_tagged_as_its_version():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    (publishing,) = (name for name, job in jobs.items() if job.get("permissions", {}).get("id-token") == "write")
    needed = [jobs[name] for name in jobs[publishing]["needs"]]
    commands = {step.get("run", "").partition(" PYTHON")[0] for job in needed for step in job["steps"]}
    assert {"make check-tag", "make test-sdist", "make check-dist", "make wheels"} <= commands
    assert not any("run" in step for step in jobs[publishing]["steps"])


def complaints(tag: str) -> list[str]:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "tag.py"), tag], capture_output=True, text=True)
    assert bool(done.returncode) == bool(done.stderr), done.stderr
    return done.stderr.splitlines()


@in_clone
def test_a_tag_is_the_version_or_is_refused():
    version = PYPROJECT["project"]["version"]
    assert not any("the tag is" in line for line in complaints(f"v{version}"))
    for tag in (version, f"v{version}.post1", f"V{version}", ""):
        assert any("the tag is" in line for line in complaints(tag)), tag


@in_clone
def test_oldest_versions_are_the_lower_bounds():
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "oldest.py")], capture_output=True, text=True)
    pinned = dict(line.split("==") for line in done.stdout.split())
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    required = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    for requirement in required:
        name = re.match(r"[\w.-]+", requirement)[0]
        if name != "shiftsvd":
            assert f">={pinned[name]}" in requirement


@in_clone
def test_the_recipe_for_conda_requires_what_the_package_requires():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "tools" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    project = PYPROJECT["project"]
    spaced = [re.sub(r"^([\w-]+)", r"\1 ", line) for line in project["dependencies"]]
    assert recipe["requirements"]["run"] == ["python", *spaced]
    assert recipe["context"]["version"] == project["version"]
    assert f'"<{project["requires-python"].removeprefix(">=")}"' in recipe["build"]["skip"]
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["license_file"] == project["license-files"]


def test_addresses_have_one_place():
    urls = PYPROJECT["project"]["urls"]
    cited = re.findall(r"^(?:repository-code|url): \"?([^\"\n]+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert set(cited) <= set(urls.values())
    for name in ("SECURITY.md", "CONTRIBUTING.md", "README.md", "docs/conf.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.findall(r"github\.com/[\w-]+/shiftsvd", text), name


def test_versions_of_python_are_those_that_are_tested():
    named = {line.rpartition(" ")[2] for line in PYPROJECT["project"]["classifiers"] if ":: Python :: 3." in line}
    assert PYPROJECT["project"]["requires-python"] == f">={min(named, key=lambda name: int(name[2:]))}"
    assert "Free Threading" not in str(PYPROJECT["project"]["classifiers"])


def test_version_is_the_same_everywhere():
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == [PYPROJECT["project"]["version"]]
    assert f"## {cited[0]} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_failed_build_of_the_kernels_leads_to_a_package_without():
    overrides = PYPROJECT["tool"]["scikit-build"]["overrides"]
    assert any(rule["if"].get("failed") and rule["wheel"]["cmake"] is False for rule in overrides)
    # A later rule wins, so that one who asks for kernels does not get a package without.
    assert overrides[-1]["if"] == {"env": {"SHIFTSVD_KERNELS": "^require$"}}
    assert overrides[-1]["wheel"]["cmake"] is True


def recipe(*arguments: str) -> str:
    """What make would run."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    # Not with the variables of a make that runs these tests, such as the environment that they are in.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    command = ["make", "-n", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=alone).stdout


def test_an_environment_of_its_own_leaves_the_others_alone():
    lines = recipe("test", "lint", "VENV=.venv-other", f"PYTHON={sys.executable}").splitlines()
    removed = [path for line in lines if line.startswith("rm -f ") for path in line.split()[2:]]
    assert len(removed) == 5  # the stamp of the tests and of lint, with those that each includes
    assert all(path.startswith(".venv-other/.") for path in removed), removed


def test_what_make_makes_is_ignored_and_so_not_in_an_sdist():
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone")
    made = [path for line in recipe("clean").splitlines() for path in line.removeprefix("rm -rf ").split()]
    assert {".venv", ".venv-oldest", ".venv-newest", "dist"} <= set(made)
    for path in made:
        assert not subprocess.run(["git", "check-ignore", "-q", f"{path}/a"], cwd=ROOT).returncode, path
