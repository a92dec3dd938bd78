"""Where the compiled kernels are missing: what that costs, and the command that builds them."""

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

# Past the cache of what was built before, in which a package without kernels may lie.
PIP = "pip install --force-reinstall --no-cache-dir --no-deps"
UV = "uv pip install --reinstall --no-cache --no-deps"
SEVERAL = "sparse products are several times slower"


def told(error: ImportError) -> str:
    command = f"install a C++ compiler, then: {reinstall()}"
    if isinstance(error, ModuleNotFoundError):
        return f"the compiled kernels are missing: {SEVERAL}; {command}"
    return f"the compiled kernels do not load ({error}): {SEVERAL}; {command}"


def reinstall() -> str:
    try:
        package = distribution("shiftsvd")
    except PackageNotFoundError:
        return f"{PIP} shiftsvd"
    installer = UV if (package.read_text("INSTALLER") or "").strip() == "uv" else PIP
    return f"{installer} {_origin(package)}"


def _origin(package: Distribution) -> str:
    direct = package.read_text("direct_url.json")
    release = f"--no-binary shiftsvd shiftsvd=={package.version}"
    if direct is None:
        return release
    origin: dict[str, Any] = json.loads(direct)
    url = str(origin["url"])
    if url.endswith(".whl"):
        return release
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(url)
