"""Extensions: formats, transformations, kinds of models, options, verbs, and hooks in the verbs of the command.

An extension is an `Extension`, named by an entry point of the group "shiftsvd.extensions"::

    [project.entry-points."shiftsvd.extensions"]
    colours = "colours:EXTENSION"

Its parts are named as "module:object" and imported at their first use, so that unused extensions cost nothing; the
module of the entry point itself imports this one only. Extensions may use the names of the reference and of the modules
of this package.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from shiftsvd.names import lazy, resolve

if TYPE_CHECKING:
    from shiftsvd.commands.hooks import Hooks as Hooks
    from shiftsvd.commands.hooks import Run as Run
    from shiftsvd.commands.options import Local as Local
    from shiftsvd.commands.options import checked_by as checked_by
    from shiftsvd.commands.options import group_options as group_options
    from shiftsvd.commands.options import print_message as print_message
    from shiftsvd.commands.options import split_names as split_names

__all__ = ["Decoder", "Extension", "Format", "Hooks", "Run", "extensions"]

GROUP: Final = "shiftsvd.extensions"


class Format(NamedTuple):
    """A kind of file.

    Parameters
    ----------
    reader : str
        "module:function" of a function ``(path, key, memory_limit) -> io.Opened``; for a table with `choices` as well.
    suffixes : tuple of str
        Suffixes of such files.
    contents : tuple of str
        Possible contents by their first bytes: names from `Extension.magic`, "folder", "HDF5"; empty: none of them.
    description : str
        Name of the format in ``shiftsvd info`` and in messages.
    is_table : bool
        Whether options may select columns of such a file.
    claims : str or None
        "module:function" of ``(root) -> bool``: True if an open HDF5 file or Zarr folder has this format.
    element : str or None
        "module:function" of ``(tree, key) -> io.Opened`` for a Zarr folder that `claims` accepts.
    describe : str or None
        "module:function" of ``(paths, opened, key, memory_limit) -> mapping``: facts by name for ``shiftsvd info`` and
        "settings", a mapping of options of a first fit, or empty. Several paths are stacked by columns. It must not
        read the whole matrix.
    remote : "copied", "read" or "refused"
        For an address such as s3://bucket/x: copy the file to a temporary one, pass the address to the reader as an
        object with the methods of a Path that read, or raise an error, as for formats of several files.
    schemes : tuple of str
        For a reader that opens addresses by itself: schemes of addresses that only this format has, such as "soma".
        Other addresses are passed to the reader, without a check of their content, if the user names the format.
    selects : bool
        Whether the reader has the keywords `measurement` and `obs_query` of `io.open_matrix`.

    See Also
    --------
    Extension : Declares formats by name.

    Examples
    --------
    >>> from shiftsvd.extend import Format
    >>> Format("colours:read", (".ppm",), (), "portable pixmap").suffixes
    ('.ppm',)
    """

    reader: str
    suffixes: tuple[str, ...]
    contents: tuple[str, ...]
    description: str
    is_table: bool = False
    claims: str | None = None
    element: str | None = None
    describe: str | None = None
    remote: Literal["copied", "read", "refused"] = "copied"
    schemes: tuple[str, ...] = ()
    selects: bool = False


class Decoder(NamedTuple):
    """Files that only `io.convert` reads, by decoding them once.

    Parameters
    ----------
    suffixes : tuple of str
        Suffixes of such files.
    decode : str
        "module:function" of ``(path_in, path_out, key, memory_limit) -> None``.
    targets : mapping
        Suffixes of output files, each with the suffixes of its additional files; `io.open_matrix` reads the first one.
    refusal : str
        "module:function" of ``(path) -> str``: the message of the error when such a file is opened.

    See Also
    --------
    Extension : Declares a decoder.

    Examples
    --------
    >>> from shiftsvd.extend import Decoder
    >>> Decoder(
    ...     (".vcf",), "colours:decode", {".pgen": (".pvar", ".psam")}, "colours:refusal"
    ... ).suffixes
    ('.vcf',)
    """

    suffixes: tuple[str, ...]
    decode: str
    targets: Mapping[str, tuple[str, ...]]
    refusal: str


@dataclass(frozen=True, kw_only=True)
class Extension:
    """The parts of an extension.

    Parameters
    ----------
    name : str
        Name of the extension.
    module : str or None
        Module to import as ``shiftsvd.NAME``.
    formats : mapping of str to Format
        Formats that `io.open_matrix` and the command read, by name.
    magic : mapping of bytes to str
        First bytes of files, and the name of their content.
    by_content : mapping of str to str
        Format of a file by its content, for files whose suffix is unknown.
    decoder : Decoder or None
        Files that `io.convert` decodes once.
    targets : mapping of str to (str, str)
        Additional suffixes of outputs of `io.convert`, each with the "module:function" of ``(path, blocks, shape,
        names) -> None``, which writes blocks of rows, and that of ``(path) -> bool``: True if `force` may replace a
        folder, because it holds only such output.
    beside : str or None
        "module:function" of ``(path, matrix, memory_limit) -> io.Opened or None``: names and orientation of a
        MatrixMarket file, from files in the same folder.
    transforms : mapping of str to str
        Names for ``preprocess=`` and ``--preprocess``, each with the "module:class" of a `Transform`.
    kinds : str or None
        "module:mapping" of kinds of models in model files, by class name.
    values : str or None
        "module:mapping" of frozen values in model files, by class name.
    options : mapping of str to str
        "module:tuple" of click options, by verb.
    help : mapping of str to str
        A paragraph for the help of a verb.
    examples : mapping of str to tuple of str
        Command lines for the help of a verb.
    scales : tuple of str
        Additional names for ``--scale``.
    verbs : mapping of str to (str, str)
        Additional subcommands: "module:command", and a line of help.
    hooks : str or None
        "module:class" of a subclass of `Hooks`, for ``fit``, ``estimate``, ``transform`` and ``info``.
    writers : mapping of str to str
        Additional suffixes of the tables that ``transform`` writes, without the dot, each with the "module:function" of
        a context manager ``(file, table)`` that gives a function of the first row and a block of rows.

    See Also
    --------
    extensions : The installed extensions.

    Examples
    --------
    >>> from shiftsvd.extend import Extension
    >>> Extension(name="colours", verbs={"colour": ("colours:colour", "Colour a file.")}).verbs[
    ...     "colour"
    ... ][1]
    'Colour a file.'
    """

    name: str
    module: str | None = None
    formats: Mapping[str, Format] = field(default_factory=dict)
    magic: Mapping[bytes, str] = field(default_factory=dict)
    by_content: Mapping[str, str] = field(default_factory=dict)
    decoder: Decoder | None = None
    targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    beside: str | None = None
    transforms: Mapping[str, str] = field(default_factory=dict)
    kinds: str | None = None
    values: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    help: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scales: tuple[str, ...] = ()
    verbs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hooks: str | None = None
    writers: Mapping[str, str] = field(default_factory=dict)


@cache
def extensions() -> tuple[Extension, ...]:
    """Return the installed extensions, sorted by name.

    Returns
    -------
    tuple of Extension
        The extensions whose modules exist: an entry point of a removed module is ignored.

    Raises
    ------
    ImportError
        If an existing extension fails to import.

    See Also
    --------
    Extension : The parts of an extension.

    Examples
    --------
    >>> from shiftsvd.extend import extensions
    >>> "colours" in [each.name for each in extensions()]
    False
    """
    return tuple(_loaded())


def _loaded() -> Iterator[Extension]:
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            yield point.load()
        except ModuleNotFoundError as error:
            if not f"{point.module}.".startswith(f"{error.name}."):
                raise


def merged(part: str) -> dict[Any, Any]:
    """Merge a mapping of all extensions."""
    return {key: value for each in extensions() for key, value in getattr(each, part).items()}


def tables(part: str) -> dict[str, Any]:
    """Merge the mappings that extensions name as "module:mapping"."""
    places = (getattr(each, part) for each in extensions())
    return {name: value for place in places if place is not None for name, value in resolve(place).items()}


def public_modules() -> dict[str, str]:
    return {each.name: each.module for each in extensions() if each.module is not None}


if not TYPE_CHECKING:
    homes = {
        "shiftsvd.commands.hooks": ("Hooks", "Run"),
        "shiftsvd.commands.options": ("Local", "checked_by", "group_options", "print_message", "split_names"),
    }
    __getattr__, __dir__ = lazy(__name__, homes)
