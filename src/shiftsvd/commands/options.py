"""Headings, types and checks of the options. This module imports nothing heavy."""

import csv
import io
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, Field, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

import click

from shiftsvd.errors import Setting, Worded, is_address, plain, public_address, without_secrets
from shiftsvd.names import resolve

if TYPE_CHECKING:
    from shiftsvd.commands.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
OF_FILES: Final = "key orient feature_types var_names measurement obs_query"
OF_TABLES: Final = "ids drop columns one_hot na censored keep_total sep decimal thousands encoding skip comment"
# Settings by heading, in the order of the help; "..." stands for the headings of extensions.
HEADINGS: Final = {
    "Components": "k alpha alphas choose ridge background leave_out widest affinity n_neighbors t drop_first solver "
    "solvers rounds tol certify max_products max_passes seed",
    "Data": f"stack join format {OF_FILES} allow_external max_absent",
    "Tables": f"{OF_TABLES} label_column mixed supplementary",
    "...": "",
    "Preparation": "preprocess trust_values shift scale",
    "Missing entries": "missing unobserved penalty max_iter",
    "Resources": "threads memory device devices scheduler workers checkpoint cache cache_size",
    "Output": "out scores components contributions report dtype compression json_out force spreadsheet_safe",
    "Messages": "progress quiet verbose",
}
_HEADING: Final = {name: heading for heading, names in HEADINGS.items() for name in names.split()}
MANY: Final = 12  # a help with fewer options has no headings
SPOOLED: Final = "shiftsvd.commands.spooled"  # key of `ctx.meta`: temporary files, and the pipes copied to them
LINE: Final = "shiftsvd.commands.line"  # key of `ctx.meta`: the command as typed


def group_options(heading: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options into one decorator; the help lists all options of a heading together, in this order."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            # click collects the options of a function in this list until it makes the command; the last one is new.
            vars(vars(function)["__click_params__"][-1])["heading"] = heading
        return function

    return decorate


def parameters(*decorators: Callable[[F], F]) -> list[click.Parameter]:

    def function() -> None: ...

    for decorate in reversed(decorators):
        decorate(function)
    return list(reversed(vars(function).get("__click_params__", [])))


def declared(setting: "Field[Any]", **other: Any) -> click.Option:
    names, text, more = setting.metadata["option"]
    default = {} if setting.default in (MISSING, None, ()) or setting.default is False else {"default": setting.default}
    shown = {"show_default": True} if default else {}
    settings = {"help": text, **_of_type(setting.type), **default, **shown, **more, **other}
    made = click.Option([*(names or (option_of(setting.name),)), setting.name], **settings)
    vars(made)["heading"] = _HEADING[setting.name]
    return made


def _of_type(annotation: Any) -> dict[str, Any]:
    kinds = get_args(annotation) if NoneType in get_args(annotation) else (annotation,)
    if get_origin(kinds[0]) is Literal:
        return {"type": click.Choice(get_args(kinds[0]))}
    if kinds[0] is bool:
        return {"default": None} if len(kinds) > 1 else {"is_flag": True}
    return {"type": click.IntRange(min=1)} if kinds[0] is int else {}


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> bool:
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    records = [(getattr(each, "heading", "Messages"), line) for each in options if (line := each.get_help_record(ctx))]
    if len(records) < MANY:
        return False
    headings = list(HEADINGS)
    place = headings.index("...")
    headings[place : place + 1] = dict.fromkeys(heading for heading, _ in records if heading not in HEADINGS)
    for heading in headings:
        if lines := [line for found, line in records if found == heading]:
            with formatter.section(heading):
                formatter.write_dl(lines)
    return True


class Matrix(click.Path):
    """A path of data. A named pipe is copied to a temporary file, because data may be read several times."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        from shiftsvd.io.location import Location, located
        from shiftsvd.io.sniff import meant_by, split_element
        from shiftsvd.io.spooling import spooled_download, spooled_pipe

        if is_address(value):
            location = located(value)
            if not isinstance(location, Location) or ctx is None:
                return str(location)
            return _copied(spooled_download(location, ctx.params.get("format")), location, value, ctx)
        element = split_element(Path(value))[1]
        if element is not None:
            value = os.fspath(value).removesuffix(f"::{element}")
        if self.exists and not os.path.lexists(value) and (meant := meant_by(Path(value))):
            self.fail(f"Path {value!r} does not exist. {meant}", parameter, ctx)
        path = os.fsdecode(super().convert(value, parameter, ctx))
        if element is not None:
            return f"{path}::{element}"
        if ctx is None or path == "-" or not Path(path).is_fifo():
            return path
        return _copied(spooled_pipe(Path(path)), Path(path), path, ctx)


def _copied(copy: AbstractContextManager[Path], original: Path, given: str, ctx: click.Context) -> str:
    try:
        file = ctx.with_resource(copy)
    except (ValueError, OSError, ImportError) as error:
        raise click.ClickException(plain(as_given(worded(error)))) from None
    if file is original:  # read on the server
        return given
    ctx.meta.setdefault(SPOOLED, {})[str(file)] = str(original)
    return str(file)


class Local(click.Path):
    """A path of this machine."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_address(value):
            self.fail(f"must be a path of this machine, got {public_address(value)}.", parameter, ctx)
        return super().convert(value, parameter, ctx)


class Model(Local):
    """A model file, whose folder users may pass in its place."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        inside = Path(value) / "model.safetensors"
        if not is_address(value) and inside.is_file():
            self.fail(f"{value} is a folder. Pass {inside}.", parameter, ctx)
        return super().convert(value, parameter, ctx)


# A matrix may be a folder (Zarr), and "-" is stdin. The readers check the content.
MATRIX: Final = Matrix(exists=True, allow_dash=True)
FILE: Final = Local(exists=True, dir_okay=False, path_type=Path)
MODEL: Final = Model(exists=True, dir_okay=False, path_type=Path)


# Callbacks of click that check values


def components(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | float | None:
    if value is None:
        return None
    number = _number(value)
    if 0 < number < 1:
        return number
    if number < 1 or not number.is_integer():
        raise click.BadParameter(
            f"must be a number of components or a share of the variance between 0 and 1, got {value!r}."
        )
    return int(number)


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return -1.0


def penalty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | str | None:
    if value is None or value == "auto":
        return value
    number = _number(value)
    if not 0 <= number < float("inf"):
        raise click.BadParameter(f'must be "auto" or a number of at least 0, got {value!r}.')
    return number


def nonnegative(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    for number in value if isinstance(value, tuple) else (value,):
        if number is not None and not 0 <= number < float("inf"):
            raise click.BadParameter(f"must be a number of at least 0, got {number:g}.")
    return value


def checked_by(place: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that validates a value by the function at `place`, imported unless it is the default."""

    def check(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        if value not in (None, (), parameter.default):
            try:
                resolve(place)(value)
            except ValueError as error:
                raise click.BadParameter(worded(error)) from None
        return value

    return check


def split_names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter(f"must be names separated by commas, without empty names, got {value!r}.")
    return names


def columns(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for one in value for row in csv.reader([one], skipinitialspace=True) for name in row)


# Options that need or exclude each other

NO_SHARE: Final = "needs a number of components, not a share of the variance."


def need_folder(name: str, value: Any) -> None:
    if value:
        raise click.UsageError(f"{option_of(name)} needs an output folder. Add one, such as -o out/.")


def wrong_k(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="'-k'")


def check_files(settings: "Settings") -> None:
    files, stack = settings.files, settings.stack
    if len(files) > 1 and stack is None:
        raise click.UsageError(
            f"{len(files):,} files need --stack rows (if each has different samples) or --stack columns (if each has "
            "different features, such as a chromosome)."
        )
    if settings.join is not None and (stack != "rows" or len(files) < 2):
        raise click.UsageError("--join needs several files and --stack rows.")
    if len(files) > 1 and "-" in files:
        raise click.UsageError("Standard input cannot be stacked with files. Write it to a file first.")
    if files[0] == "-" and settings.format is None:
        raise click.UsageError("Standard input needs a format. Add one, such as --format csv, mtx or npy.")


def check_uses(settings: "Settings") -> None:
    """Raise UsageError for options that --mixed and --supplementary contradict."""
    for option in ("mixed", "supplementary"):
        for name in ("stack", "orient"):
            if getattr(settings, option) and getattr(settings, name) == "columns":
                raise click.UsageError(f"--{option} needs one table with samples as rows. Remove --{name} columns.")
    if settings.mixed:
        usual = {"scale": None, "shift": "mean", "preprocess": (), "unobserved": False}
        for name, value in usual.items():
            if getattr(settings, name) != value:
                raise click.UsageError(f"--mixed centres and scales all columns by rules of its own. Remove --{name}.")
    others = {"ids": (settings.ids,)} | {other: getattr(settings, other) for other in _OF_COLUMNS}
    for name in settings.supplementary:
        for other in (other for other, used in others.items() if name in used):
            uses = f"{option_of(other)} and --supplementary"
            raise click.UsageError(f"Column {name!r} must have one use, but is in {uses}.")


def check_workers(settings: "Settings") -> None:
    if settings.scheduler is not None and settings.workers is not None:
        raise click.UsageError(
            "--workers and --scheduler exclude each other. Use --workers to start worker processes, or --scheduler to "
            "use those of a running scheduler."
        )
    if settings.files[0] == "-" and settings.on_cluster:
        raise click.UsageError("Worker processes cannot read standard input. Write the data to a file.")
    if settings.cache is not None and settings.on_cluster:
        raise click.UsageError("Worker processes keep no copies. Remove --cache, or --scheduler and --workers.")
    if settings.cache_size is not None and settings.cache is None:
        raise click.UsageError("--cache-size limits the copies of --cache. Add --cache FOLDER.")


def check_missing(settings: "Settings") -> None:
    if settings.unobserved and settings.missing == "error":
        raise click.UsageError("--unobserved needs --missing mean or --missing em, which replace missing values.")
    if settings.missing == "em" and isinstance(settings.k, float):
        raise wrong_k(f"--missing em {NO_SHARE} Pass an integer, such as -k 10.")
    if settings.missing != "error" and settings.on_cluster:
        raise click.UsageError("--missing cannot be used on worker processes. Remove --scheduler and --workers.")
    for name in ("penalty", "max_iter"):
        if settings.missing != "em" and getattr(settings, name) is not None:
            raise click.UsageError(f"{option_of(name)} needs --missing em, got --missing {settings.missing}.")


def device_named(name: str) -> str:
    from shiftsvd.backends.device import chosen

    try:
        return chosen(name)
    except ValueError as error:
        raise click.UsageError(f"--device: {error}") from None


def with_device(settings: "Settings") -> "Settings":
    """Resolve the name of the device; raise UsageError for options that a GPU does not support."""
    if settings.device is None:
        return settings
    from shiftsvd.backends.device import HOST

    device = device_named(settings.device)
    if device != HOST:
        usual = {"missing": "error", "scheduler": None, "workers": None, "preprocess": (), "checkpoint": None}
        given = [option_of(name) for name, value in usual.items() if getattr(settings, name) != value]
        refuse_with_device(settings.device, given)
    return replace(settings, device=device, cpu_if_full=settings.device == "auto")


def refuse_with_device(device: str, options: list[str]) -> None:
    if options:
        raise click.UsageError(
            f"--device {device} needs data in memory without missing values or transformations. Remove "
            f"{' and '.join(options)}."
        )


# Lines on stderr

# Options whose names differ from the settings of the library.
_ALIASES: Final = {
    "memory_limit": "--memory",
    "mask_var": "--mask",
    "n_components": "-k",
    "n_threads": "--threads",
    "random_state": "--seed",
    "rng": "--seed",
    "stream": "--scheduler and --workers",
}
_OF_COLUMNS: Final = ("drop", "columns", "one_hot")


def worded(message: BaseException) -> str:
    return message.worded(spelled) if isinstance(message, Worded) else str(message)


def joined(names: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def spelled(setting: Setting) -> str:
    """Spell a setting as an option of this verb, or as in Python if no option sets it."""
    value = setting.value
    option = _options().get(f"no {setting.name}" if value is False else setting.name)
    if option is None:
        return str(setting)
    if not setting.has_value or isinstance(value, bool):
        return option
    several = value if isinstance(value, list | tuple) else ["none" if value is None else value]
    names = [str(each) for each in several]
    if setting.name == "drop":
        option = _use_of(names) or option
    if setting.name in _OF_COLUMNS:
        names = [joined(names)]
    if any(each.name == setting.name and each.nargs > 1 for each in _all_options()):
        return " ".join([option, *map(quoted, names)])
    return " ".join(f"{option} {quoted(name)}" for name in names)


def quoted(word: str) -> str:
    """Quote a word for the shell, also if its last point could be read as the end of the sentence.

    Characters that control a terminal, such as newlines in names of files, are written as in bash and zsh: $'a\\nb'.
    """
    if plain(word) != word:
        return "$'" + "".join(map(_escaped, word)) + "'"
    if "'" in word and not set(word) & set('"$`\\!'):
        return f'"{word}"'
    return f"'{word}'" if word.endswith(".") and shlex.quote(word) == word else shlex.quote(word)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if character in "'\\":
        return f"\\{character}"
    is_unsafe = plain(character) != character
    return f"\\u{code:04x}" if is_unsafe and code >= 0x80 else plain(character)


def _options() -> dict[str, str]:
    """Map settings to options of all verbs; options of the running verb take precedence."""
    options = _all_options()
    if not options:
        return {}
    known = {str(each.name): max(each.opts, key=len) for each in options}
    negated = {f"no {each.name}": each.secondary_opts[0] for each in options if each.secondary_opts}
    return known | negated | _ALIASES


def _all_options() -> list[click.Option]:
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    root = context.find_root().command
    group = root if isinstance(root, click.Group) else click.Group()
    others = (group.get_command(context, name) for name in group.list_commands(context))
    verbs = [verb for verb in (*others, context.command) if verb is not None]
    return [each for verb in verbs for each in verb.params if isinstance(each, click.Option)]


def _use_of(names: Sequence[str]) -> str | None:
    """Return the option by which columns are excluded, unless --drop names them too."""
    given = click.get_current_context().params
    uses = {"--label-column": [given.get("label_column")], "--supplementary": given.get("supplementary", ())}
    free = not set(names) & {*given.get("drop", ())}
    return next((option for option, uses in uses.items() if free and {*names} <= {*uses}), None)


def typed() -> str:
    return without_secrets(str(click.get_current_context().meta.get(LINE, "shiftsvd")))


def as_given(text: str) -> str:
    """Replace paths of copies of pipes in a text by the paths of the pipes, and remove the secrets of addresses."""
    context = click.get_current_context(silent=True)
    for file, pipe in ({} if context is None else context.meta.get(SPOOLED, {})).items():
        text = text.replace(file, pipe)
    return without_secrets(text)


def print_message(text: str, quiet: bool = False) -> None:
    if not quiet:
        click.echo(plain(as_given(text)), err=True)
