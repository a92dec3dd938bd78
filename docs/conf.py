"""Settings of the documentation."""

import re
import shutil
import zlib
from importlib.metadata import metadata
from importlib.metadata import version as installed
from pathlib import Path

project = "shiftsvd"
author = copyright = "The shiftsvd developers"  # noqa: A001 (the name that Sphinx reads)
version = release = installed("shiftsvd")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.extlinks",
    "sphinx.ext.intersphinx",
    "sphinx-mathjax-offline",  # formulae are drawn by what lies beside the pages, without a network
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_click",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
# Pages of the extensions lie in their folders, and are built with these.
SOURCES = Path(__file__).resolve().parents[1] / "src" / "shiftsvd"
EXTENSIONS = sorted(folder.parent for folder in SOURCES.glob("*/docs"))
DRAWN = [each for each in EXTENSIONS if (each / "docs" / "gallery").is_dir()]
for folder in Path(__file__).parent.glob("fields/*/"):
    shutil.rmtree(folder)
for each in EXTENSIONS:
    pages = shutil.ignore_patterns("gallery")
    shutil.copytree(each / "docs", Path(__file__).parent / "fields" / each.name, ignore=pages)
exclude_patterns = ["_build", "gallery", "sg_execution_times.rst"]
default_role = "py:obj"
smartquotes_action = "qe"  # of two hyphens no dash is made: options of the command are copied from these pages
rst_prolog = ".. currentmodule:: shiftsvd\n\n"  # so that `PCA` is a link on every page
# Names such as `transform` are said of several classes; `sklearn.decomposition.PCA` has no page here.
suppress_warnings = ["ref.python"]


def inventory(names):
    """Where others document the names that these pages link to, as Sphinx reads it, from a list of `names`."""
    address, *entries = names.read_text(encoding="utf-8").splitlines()
    lines = [f"{name} {role} 1 {page} -" for role, name, page in map(str.split, entries)]
    file = Path(__file__).parent / "_build" / "inventories" / f"{names.stem}.inv"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = f"# Sphinx inventory version 2\n# Project: {names.stem}\n# Version: \n"
    note = "# The remainder of this file is compressed using zlib.\n"
    file.write_bytes((head + note).encode() + zlib.compress("\n".join(lines).encode()))
    return address, str(file)


# No network: the names are listed in a few small files here.
intersphinx_mapping = {
    names.stem: inventory(names) for names in sorted(Path(__file__).parent.glob("inventories/*.txt"))
}
math_eqref_format = "({number})"
math_numfig = False
extlinks = {"doi": ("https://doi.org/%s", "doi:%s")}

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings give shapes and units, which types do not
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": [
        "gallery",
        *(str(each / "docs" / "gallery") for each in EXTENSIONS if (each / "docs" / "gallery").is_dir()),
    ],
    "gallery_dirs": [
        "auto_gallery",
        *(f"fields/{each.name}/gallery" for each in EXTENSIONS if (each / "docs" / "gallery").is_dir()),
    ],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "capture_repr": ("_repr_html_",),
    "download_all_examples": True,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "backreferences_dir": "api/uses",
    "doc_module": ("shiftsvd",),
}

html_theme = "pydata_sphinx_theme"
html_title = f"shiftsvd {release}"
html_static_path = ["_static"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_css_files = ["shiftsvd.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_nav_level": 2,
    "header_links_before_dropdown": 6,  # the sixth is "Coming from elsewhere"; the reference is not hidden under "More"
    "pygments_light_style": "tango",
}
# The address of the repository is in pyproject.toml, once there is one.
urls = dict(line.split(", ", 1) for line in metadata("shiftsvd").get_all("Project-URL") or [])
if "Repository" in urls:
    html_theme_options["icon_links"] = [{"name": "Repository", "url": urls["Repository"], "icon": "fa-solid fa-code"}]
html_sidebars = {
    page: []
    for page in (
        *("index", "recipes", "how_it_works", "measurements", "capabilities", "operators", "glossary"),
        *("whats_new", "citing", "stability"),
    )
}

# Between brackets, `n_components_` is a name, and not a link as a word that ends so is otherwise.
NAME = re.compile(r"``.*?``|`.*?`|(?<=[( ])(\w+)_(?=[,)])")


def escape_names(app, what, name, obj, options, lines):
    """Run after numpydoc, which makes one line of a name and its shape."""
    lines[:] = [NAME.sub(lambda found: rf"{found[1]}\_" if found[1] else found[0], line) for line in lines]


def escape_stars(app, ctx, lines):
    """Examples of the command have names such as donors/*.h5ad, which are no emphasis."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def append_changes(app, docname, source):
    """What's new ends with the changelog, which is Markdown: headings and words in backticks become those here."""
    if docname == "whats_new":
        text = (Path(app.srcdir).parent / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")[2]
        text = re.sub(r"`([^`]+)`", r"``\1``", "## " + text)
        source[0] += re.sub(r"^## (.*)$", lambda found: f"{found[1]}\n{'-' * len(found[1])}", text, flags=re.MULTILINE)


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", append_changes)
    app.connect("autodoc-process-docstring", escape_names, priority=900)
    app.connect("sphinx-click-process-epilog", escape_stars)
