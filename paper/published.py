"""The published numbers: every plotted point and every table cell of Basirat (2019), as printed."""

from dataclasses import dataclass
from typing import Any, Final

Place = tuple[str, str, int | str]  # experiment, series, position on the x axis
Values = dict[Place, float]  # what one run measures


@dataclass(frozen=True)
class Published:
    """One printed number; `half_unit` is half of its last printed digit (0 for plotted points: all digits)."""

    place: Place
    value: float
    half_unit: float = 0.0


SHIFTED, EXACT, PLAIN = (
    "S-RSVD",
    "S-RSVD, exact sample",
    "RSVD",
)  # Algorithm 1 as printed; its repair; no shift
EXPLICIT = "RSVD of the centred matrix"
SVD = "SVD"  # deterministic, of the centred matrix

# The plotted points: a column for each curve of a figure, a row for each position on the x axis.
_POINTS: Final[dict[tuple[str, ...], dict[Any, tuple[float, ...]]]] = {
    ("fig-a", SHIFTED, PLAIN): {
        1: (8.22704387130385, 14.358630406889038),
        2: (8.131393039362736, 9.636071404548272),
        3: (8.016755695600061, 9.082191191384167),
        4: (7.923705597236911, 8.850339522665823),
        5: (7.828101953480554, 9.577975663349719),
        10: (7.326654184002265, 7.5724349048787065),
        20: (6.251097197412579, 6.338675405968799),
        30: (5.193074751939208, 5.303208301235163),
        40: (4.101132326695938, 4.128050972158258),
        50: (3.0243988000795885, 3.0389259384176377),
        60: (2.2630846386145804, 2.2735689661599277),
        70: (1.5815823996627905, 1.5897759227859083),
        80: (0.9732444268685795, 0.9801874908151821),
        90: (0.4409804224778575, 0.4453492483439178),
    },
    ("fig-b", SHIFTED, PLAIN): {
        1000: (71.4485171766514, 78.03850122793364),
        2000: (73.49453380835662, 80.57495504280583),
        3000: (74.15975028355514, 89.91490502714504),
        4000: (74.85221486980839, 81.9055564379236),
        5000: (75.16547637478845, 89.13459199773038),
        7000: (75.54367178701746, 84.58760839961361),
        10000: (75.87600056334387, 88.16082999248255),
        15000: (76.20677027707752, 89.90041660505608),
        20000: (76.49794058022411, 95.83943271534072),
    },
    ("fig-c", SHIFTED, PLAIN): {
        "Uniform": (70.9727066912633, 88.78436797086918),
        "Normal": (855.8096731941326, 1039.3295354374552),
        "Zipf": (2134.25260619535, 2459.7144493445953),
        "Poisson": (854.8843992368012, 1045.3963120003946),
    },
    ("fig-d", SHIFTED, EXPLICIT): {
        "Uniform": (71.5149824196122, 71.48041234638316),
        "Normal": (863.2543530919766, 863.345200515253),
        "Zipf": (1989.8301637177353, 1968.193909071475),
        "Poisson": (861.3224353737171, 860.9032427038136),
    },
    ("fig-e", SHIFTED, PLAIN): {
        0: (71.31809930585888, 98.65144901586238),
        1: (70.83076312467998, 71.15026418515853),
        2: (70.27761914740873, 70.61986766065073),
        3: (70.18890364592957, 70.55413230089404),
        4: (69.81530304604695, 70.15943619392725),
        5: (69.91298789391546, 70.337018844345),
        10: (69.65911175471719, 70.14369280367373),
        20: (69.32992309328083, 69.71064800826655),
        30: (69.64508487832398, 70.13059675593622),
        40: (69.39384648077716, 69.86166061002311),
        50: (69.43326583466681, 69.876535100108),
        100: (69.48461156650795, 69.87456445172795),
        200: (69.37689031371065, 69.8096471733457),
    },
    ("fig-f", "Uniform", "Normal", "Zipf", "Poisson"): {
        0: (-27.333349710003503, -102.63177661229679, -239.42544596388234, -175.24587897190952),
        1: (-0.319501060478558, -3.147389474049419, -551.8677405074009, -2.288230291040122),
        2: (-0.3422485132419979, -3.932107702159783, -37.08394303035129, -3.008317607061713),
        3: (-0.36522865496446855, -3.9757769624708317, -116.78370350398632, -3.6423137715332814),
        4: (-0.34413314788029936, -4.642661505139927, -546.3583027964987, -4.528759577336814),
        5: (-0.42403095042953964, -4.806349322319534, -111.5165017019292, -4.440253487754035),
        10: (-0.4845810489565423, -5.039278153138866, -42.77065404711402, -5.373274059620712),
        20: (-0.3807249149857199, -6.00605867759873, -48.62856840818745, -5.322577917957915),
        30: (-0.4855118776122396, -4.8565526848095715, -247.01753774032568, -5.218599994522947),
        40: (-0.46781412924595145, -5.062091226355506, -143.60674276270515, -5.159822099602934),
        50: (-0.44326926544118805, -4.354403341247462, -56.4398721125599, -5.17988535199413),
        100: (-0.3899528852199978, -5.062091226355506, -64.35828332054189, -4.929459207756167),
        200: (-0.43275685963504884, -4.877435163736436, -63.54045191399541, -5.322591505297851),
    },
}
CURVES: Final = {
    (figure, name): {x: row[j] for x, row in table.items()}
    for (figure, *curves), table in _POINTS.items()
    for j, name in enumerate(curves)
}
MSE_SHIFTED, MSE_EXACT, MSE_PLAIN = f"MSE of {SHIFTED}", f"MSE of {EXACT}", f"MSE of {PLAIN}"
MSE_SVD, MSE_SVD_PLAIN = f"MSE of {SVD}", f"MSE of {SVD}, no shift"
P1, P2, WR_SHIFTED, WR_PLAIN = "p1", "p2", f"WR of {SHIFTED}", f"WR of {PLAIN}"
ALL = "all"  # the one column of digits and of faces

# Table 1, a column at a time: the six rows as printed, and the half units of the two MSEs.
TABLE: Final[dict[tuple[str, int | str], tuple[float, float, float]]] = {
    ("digits", ALL): (415.7, 430.6, 0.66),
    ("faces", ALL): (15.3e7, 16.1e7, 0.82),
    ("words", 1000): (195e-5, 200e-5, 0.71),
    ("words", 10_000): (235e-5, 236e-5, 0.73),
    ("words", 100_000): (763e-5, 765e-5, 0.77),
    ("words", 300_000): (994e-5, 998e-5, 0.70),
}
HALF_UNITS: Final = {"digits": 0.05, "faces": 0.05e7, "words": 0.5e-5}

# Each begins on a new line and may go on over the next.
_ERRATA: Final = """
- The digits are 1797 images, not 1979: the file that the paper names has 1797.
- The axis of figure (f) is said to be S-RSVD minus S-RSVD; it is S-RSVD minus RSVD.
- Figure (f), Normal: the points at q = 40 and q = 100 are the same sixteen digits, -5.062091226355506.
- MSE-SUM is said to sum k = 1 to 100; the numbers are sums over the fourteen k of figure (a).
- Line 6 of Algorithm 1 subtracts mu 1_K^T; the sample of the shifted matrix is X Omega - mu (1_n^T Omega).
  Line 6 as printed changes the result no more than leaving it out does.
- "No loss in accuracy" holds for the mean as shift to about 0.03 % (1 % on Zipf data): one of the K sampled
  directions goes to the mean. For another vector of the column space the error can be many times larger at q = 0.
- The error bound is that of the rank-K factorization; after truncation to rank k, sigma_(k+1) has to be added.
- Figure (f), Zipf, "fluctuates for small q and becomes flat": each point is a fresh data set, and the fluctuation
  is that of the data; it does not depend on q.
- The text calls -64 at q = 200 the best case on Zipf data; its own points at q = 2, 10, 20 and 50 are nearer to 0.
- The word columns are defined as n(w_j, w_i) / n(w_j), whose MSE must fall with n; the published MSE rises, as that
  of n(w_j, w_i) / n(w_i) does.
"""
ERRATA: Final = tuple(" ".join(item.split()) for item in _ERRATA.split("\n- ")[1:])


def published() -> list[Published]:
    points = [Published((*curve, x), value) for curve, line in CURVES.items() for x, value in line.items()]
    return points + [cell for column in TABLE for cell in _column(*column)]


def _column(experiment: str, x: int | str) -> list[Published]:
    shifted, plain, win_rate = TABLE[experiment, x]
    unit = HALF_UNITS[experiment]
    rows = {
        MSE_SHIFTED: (shifted, unit),
        MSE_PLAIN: (plain, unit),
        P1: (0.0, 0.005),
        P2: (0.0, 0.005),
        WR_SHIFTED: (win_rate, 0.005),
        WR_PLAIN: (round(1 - win_rate, 2), 0.005),
    }
    return [Published((experiment, row, x), value, half_unit) for row, (value, half_unit) in rows.items()]
