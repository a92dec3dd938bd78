"""Find rows of a table that summarise others, such as totals and means, by their labels in several languages."""

import re
from collections.abc import Container, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shiftsvd.io.formats.cells import as_numpy, filled, pc, strings
from shiftsvd.io.formats.columns import as_texts, numbers_of

# Labels of rows that summarise others. Short ones are also names (South Dakota, nitrogen), and statistics are also
# categories in later columns (average): they count next to others, and once in the last row.
_SUMS = (
    r"(?:(?:grand|sub)[- ]?)?(?:totals?|sums?|summe|zwischensumme|gesamt(?:summe|ergebnis)?|ergebnis|insgesamt|totaal|"
    r"total g[eé]n[eé]ral|total general|sous-total|somme|somma|suma(?: total)?|totale(?: generale| complessivo)?|"
    r"og[oó][lł]em|[lł][aą]cznie|المجموع|الإجمالي|कुल(?: योग)?|योग|"
    r"soma|total geral|razem|suma ko[nń]cowa|celkem|spolu|totalt|i alt|yhteens[aä]|(?:genel )?toplam|итого|всего|"
    r"summa|összesen|σύνολο|ukupno|skupaj|разом|сумма|jumlah|tổng cộng|合計|合计|总计|總計|小計|小计|합계)"
)
_STATISTICS = (
    r"means?|averages?|mean ?\(sd\)|mittelwert|durchschnitt|moyenne|promedio|gemiddelde|medians?|mediane?|"
    r"mediana|m[eé]diane|minimum|maximum|m[ií]nimo|m[aá]ximo|minimo|massimo|standard deviation|stdev|"
    r"std\.? ?dev(?:iation|\.)?|standardabweichung|[eé]cart[- ]type|desv\. ?(?:est|t[ií]p)\.?|variances?|varianz|"
    r"desviaci[oó]n (?:est[aá]ndar|t[ií]pica)|dev(?:iazione|\.) ?(?:standard|st(?:and|d)?\.?)|n\s*=\s*\d+|"
    r"m[eé]dia geral|odch\. ?(?:std|stand)\.|odchylenie standardowe|std\. ?sapma|standart sapma|desvio[- ]padr[aã]o|"
    r"standaard(?:afwijking|deviatie)|ст\. ?откл\.|стандартное отклонение|標準偏差|标准差|표준편차|المتوسط|औसत|"
    r"[sś]rednia|pr[uů]m[eě]r|medelv[aä]rde|gennemsnit|gjennomsnitt|keskiarvo|ortalama|среднее|平均|평균"
)
_BRIEF = (
    r"\*+|%(?:\s.*)?|Σ|mittel|ø|mw|n|sd|s\.d\.|std\.?|se|sem|cv|min\.?|max\.?|m[ií]n\.?|m[aá]x\.?|count|stabw\.?|"
    r"m[eé]dia|anzahl"
)
_SUM: Final = re.compile(rf"\W*{_SUMS}\W*", re.IGNORECASE)
_STATISTIC: Final = re.compile(rf"\W*(?:{_STATISTICS})\W*", re.IGNORECASE)
_SHORT: Final = re.compile(rf"\W*(?:{_BRIEF})\W*", re.IGNORECASE)
_CANDIDATE: Final = rf"(^|\W)({_SUMS}|{_STATISTICS}|{_BRIEF})(\W|$)"
# Spreadsheets write "North Total" below the rows of North.
_OF_GROUP: Final = re.compile(rf"(?P<before>.*\S)?\s*\b{_SUMS}\b\s*(?P<after>\S.*)?", re.IGNORECASE)
SUMMED: Final = 1e-6  # relative rounding error of sums in single precision
_BLANK: Final = 100  # most rows of a block without a label that may be totals
_DETAIL: Final = re.compile(r"[\W\d]*|\(.*\)|n\s*=.*", re.IGNORECASE)  # in "Total 2026" and "Total (n=30)"


def is_total(cells: Iterable[str]) -> bool:
    """Return True for a row whose first text is a word such as Total, Summe or Mean."""
    label = next((cell for cell in cells if cell.strip()), "").strip()
    return _STATISTIC.fullmatch(label) is not None or _is_sum(label, ())


def _is_sum(label: str, groups: Container[str]) -> bool:
    if _SUM.fullmatch(label):
        return True
    found = _OF_GROUP.fullmatch(label)
    return found is not None and all(_DETAIL.fullmatch(text) or text in groups for text in _beside(label))


def _beside(label: str) -> list[str]:
    """Return the texts around the word for a total, such as "North" in "North Total"."""
    found = _OF_GROUP.fullmatch(label)
    return [] if found is None else [text for text in found.groups() if text]


def _is_sign(label: str) -> bool:  # such as the * and ** of SAP
    return not any(map(str.isalnum, label))


def rows_of_totals(
    labels: Any, seen: set[str], *, possible: dict[int, str], is_first: bool = True, is_end: bool = False
) -> dict[int, str]:
    """Return the places and texts of labels such as Total in a column of texts; `is_end` if the last row is the end.

    Adds all labels that may be those of totals to `seen`, and labels such as "North Total", "*" and "" to `possible`.
    """
    if numbers_of(labels) is labels:
        return {}
    texts = filled(as_texts(labels), strings([""]))
    there = np.flatnonzero(as_numpy(pc.match_substring_regex(texts, _CANDIDATE, ignore_case=True))).tolist()
    if 0 < texts.null_count <= _BLANK:
        possible.update(dict.fromkeys(np.flatnonzero(as_numpy(texts.is_null())).tolist(), ""))
    if not there:
        return {}
    groups, found = set(texts.unique().to_pylist()), dict(zip(there, texts.take(there).to_pylist(), strict=True))
    totals = {i for i, label in found.items() if _is_sum(label, groups)}
    others = {i: found[i] for i in sorted(found.keys() - totals)}
    possible.update({i: label for i, label in others.items() if _OF_GROUP.fullmatch(label) or _is_sign(label)})
    statistics, brief = _places(_STATISTIC, others), _places(_SHORT, others)
    if is_first:
        totals |= statistics
    of_groups = {text for i in totals for text in _beside(found[i])}  # "N" is no statistic if there is "N Total"
    brief = {i for i in (brief | statistics) - totals if found[i] not in of_groups}
    if is_end and _is_new(len(texts) - 1, found, brief, seen):
        totals.add(len(texts) - 1)
    seen.update(found.values())
    return {i: found[i] for i in sorted(_with_neighbours(totals, sorted(brief)))}


def _places(pattern: re.Pattern[str], labels: dict[int, str]) -> set[int]:
    return {i for i, label in labels.items() if pattern.fullmatch(label)}


def _is_new(last: int, found: dict[int, str], brief: set[int], seen: set[str]) -> bool:
    if last not in brief or found[last] in seen or list(found.values()).count(found[last]) > 1:
        return False
    return not _is_sign(found[last]) or last - 1 in brief  # a lone * may mark a sample


def _with_neighbours(totals: set[int], brief: list[int]) -> set[int]:
    for i in (*brief, *reversed(brief)):
        if {i - 1, i + 1} & totals:
            totals.add(i)
    return totals


def holds_sums(row: npt.NDArray[np.float64], sums: npt.NDArray[np.float64]) -> bool:
    """Return True if at least two numbers of a row, and half of those that are not zero, are these sums."""
    equal = (row != 0) & (np.abs(row - sums) <= 1e-9 * np.abs(row))
    return bool(np.sum(equal) > 1 and 2 * np.sum(equal) >= np.sum(row != 0))


def last_place(cell: str) -> float:
    """Return the value of one unit in the last place of a number, such as 0.01 for 12.34."""
    found = re.search(r"[.,](\d+)\D*$", cell)
    return 10.0 ** -len(found[1]) if found else 1.0
