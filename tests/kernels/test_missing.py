"""What is said where the compiled kernels are missing, and the command that it names."""

import json
from types import SimpleNamespace

import pytest

from shiftsvd import kernels


@pytest.fixture
def installed(monkeypatch):
    """Pretend that the package was installed so; files are those of its metadata."""

    def pretend(**files: str) -> str:
        package = SimpleNamespace(version="1.2", read_text=lambda name: files.get(name.partition(".")[0]))
        monkeypatch.setattr(kernels, "distribution", lambda name: package)
        return kernels.reinstall_command()

    return pretend


def origin(url: str, **more: object) -> str:
    return json.dumps({"url": url, **more})


def test_command_goes_past_what_pip_has_cached_and_takes_sources(installed):
    assert installed() == f"{kernels.PIP} --no-binary shiftsvd shiftsvd==1.2"
    assert "--no-cache-dir" in kernels.PIP
    assert "--force-reinstall" in kernels.PIP


@pytest.mark.parametrize(
    ("direct", "source"),
    [
        (origin("file:///a/shiftsvd", dir_info={}), "file:///a/shiftsvd"),
        (origin("file:///a/shiftsvd", dir_info={"editable": True}), "-e file:///a/shiftsvd"),
        (origin("file:///a/s.tar.gz", archive_info={}), "file:///a/s.tar.gz"),
        (origin("https://host/s.tar.gz?a=1&b=2", archive_info={}), "'https://host/s.tar.gz?a=1&b=2'"),
        (origin("https://host/s", vcs_info={"vcs": "git", "commit_id": "0a"}), "git+https://host/s@0a"),
        (origin("file:///a/s-py3-none-any.whl", archive_info={}), "--no-binary shiftsvd shiftsvd==1.2"),
    ],
)
def test_command_takes_the_package_from_where_it_came(installed, direct, source):
    assert installed(direct_url=direct) == f"{kernels.PIP} {source}"


def test_command_is_that_of_the_installer(installed):
    assert installed(INSTALLER="uv\n").startswith(f"{kernels.UV} ")
    assert installed(INSTALLER="pip\n").startswith(f"{kernels.PIP} ")


def test_kernels_that_do_not_load_say_why():
    error = ImportError("undefined symbol: PyNone")
    assert kernels.missing_kernels_message(error).startswith(
        "the compiled kernels do not load (undefined symbol: PyNone), "
    )
    assert kernels.missing_kernels_message(ModuleNotFoundError("no")).startswith("the compiled kernels are missing, ")
    assert kernels.reinstall_command() in kernels.missing_kernels_message(error)
