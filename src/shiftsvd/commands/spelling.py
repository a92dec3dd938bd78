"""Messages of the library as the command says them: with its options in place of arguments of functions."""

import ast
import csv
import io
import re
import shlex
from collections.abc import Sequence
from typing import Final

import click

from shiftsvd.commands.options import as_given

# What is called otherwise here.
ALIASES: Final = {"memory_limit": "--memory", "n_threads": "--threads", "mask_var": "--mask", "rng": "--seed"}
# What is more than a name and a value, or stands alone.
PHRASES: Final = {
    "stream=True": "--scheduler and --workers",
    "mask_var=None": "--mask none",
    "the memory limit": "--memory",
    "by key": "by --key",
    "the key of": "the --key of",
    "the key must": "--key must",
    "give the format": "give --format",
    "leave out join": "leave out --join",
    "batch must have one label": "--batch must have one label",
    "batch must have a label": "--batch must have a label",
    "(ids)": "(--ids COLUMN)",
    "ignore shiftsvd.transforms.ValuesWarning": "give --trust-values",
    "leave preprocess out": "leave --preprocess out",
    "info.value_errors": "value_errors",
    "info.missed_below": "missed_below",
    ", or a larger missed_tol": "",
}
# Arguments that messages name without a value: the memory limit anywhere, others before what is said of them.
ANYWHERE: Final = re.compile(r"(?<![\w'\"=.-])(memory_limit|feature_types|max_iter|mask_var|n_threads)\b")
BARE: Final = re.compile(
    r"(?<![\w'\"=.-])(k|tol|penalty|key|orient|stack|join|format|sep|decimal|thousands|encoding|comment|"
    r"unobserved|preprocess|covariates|groups|chromosomes|hwe|hwe_midp|indep_pairwise|indep_order|unrelated|"
    r"exclude_long_range|match|project|shift|scale|solver)(?= (?:must|needs?|takes?|is for|are for|says) )"
)
FLAVOR: Final = re.compile(r"(?<!-)\bflavor (?=\w+ (?:takes|ranks) )")
# Transformations by the names of their classes.
CLASSES: Final = {
    "PearsonResiduals": "pearson",
    "DevianceResiduals": "deviance",
    "LogNormalize": "log-normalize",
    "FreemanTukey": "freeman-tukey",
    **{name: name.lower() for name in ("PMI", "TfIdf", "BM25", "CLR", "Ranks", "Sqrt", "Anscombe", "Binarize")},
}
CLASS: Final = re.compile(rf"(?<![\w.'\"])({'|'.join(CLASSES)})(?:\(\))?(?= (?:takes|needs|must) |[,;]|$)")
SAID: Final = re.compile(r"\b([a-z_]+)=(\[[^\]]*\]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|True\b)")
NAMED: Final = re.compile(r"\b([a-z_]+)=(?=[ ,;.]|$)")
SEVERAL: Final = ("drop", "columns", "one_hot")


def spelled(text: str) -> str:
    text = as_given(text)
    for phrase, said in PHRASES.items():
        text = text.replace(phrase, said)
    known = _options()
    text = NAMED.sub(lambda found: known.get(found[1], found[0]), text)
    text = SAID.sub(lambda found: _with_value(found, known), text)
    text = CLASS.sub(lambda found: f"--preprocess {CLASSES[found[1]]}", FLAVOR.sub("--flavor ", text))
    for pattern in (ANYWHERE, BARE):
        text = pattern.sub(lambda found: known.get(found[1], found[1]), text)
    return text


def joined(names: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def _options() -> dict[str, str]:
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    root = context.find_root().command
    named = root.list_commands(context) if isinstance(root, click.Group) else ()
    others = [found for name in named if (found := root.get_command(context, name)) is not None]  # type: ignore[attr-defined]
    options = [each for command in (*others, context.command) for each in command.params]
    known = {str(each.name).rstrip("_"): max(each.opts, key=len) for each in options if isinstance(each, click.Option)}
    return known | {name: option for name, option in ALIASES.items() if option in known.values()}


def _label() -> str | None:
    given = click.get_current_context().params
    label = given.get("label_column")
    return None if label in given.get("drop", ()) else label


def _with_value(said: re.Match[str], known: dict[str, str]) -> str:
    name, option = said[1], known.get(said[1])
    if option is None:
        return said[0]
    if said[2] == "True":
        return option
    try:
        value = ast.literal_eval(said[2])
    except (ValueError, SyntaxError):
        return said[0]  # text of a file that looks like one
    names = value if isinstance(value, list) else [value]
    option = "--label-column" if name == "drop" and names == [_label()] else option
    typed = shlex.quote(joined(names) if name in SEVERAL else str(names[0]))
    return f"{option} {typed}" if any(map(str.isalnum, typed)) or typed[0] in "'\"" else f"{option} '{typed}'"
