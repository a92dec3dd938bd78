"""What an operator of one's own may define: few things, and what solvers plan by is one value."""

import dataclasses
import pickle

import numpy as np
import pytest
from scipy import sparse

import shiftsvd as ss
from shiftsvd.algebra import generic
from shiftsvd.algebra.low_rank import Deflated
from shiftsvd.algebra.operator import Costs
from shiftsvd.backends.files import DiskRows
from shiftsvd.operators import Operator
from shiftsvd.testing import check_operator
from tests.support.closeness import assert_close
from tests.support.containers import CONTAINERS, Held
from tests.support.matrices import values
from tests.support.operators import Minimal, panel

REQUIRED = {"matmat", "rmatmat"}
HOOKS = {
    "gram",
    "moments",
    "frobenius_norm",
    "with_shift",
    "row_products",
    "column_squares",
    "row_squares",
    "costs",
    "H",
}


def test_an_operator_has_two_required_members_and_nine_hooks() -> None:
    assert set(Operator.__abstractmethods__) == REQUIRED
    assert {name for name in dir(Operator) if not name.startswith("_")} == REQUIRED | HOOKS
    assert len(HOOKS) == 9


def test_no_hook_is_a_generic_function_too() -> None:
    assert not generic.FUNCTIONS.keys() & (REQUIRED | HOOKS)


@pytest.mark.parametrize("name", generic.FUNCTIONS)
def test_a_method_counts_only_where_the_class_is_registered(name: str) -> None:
    def answer(self, *args):
        return "its own"

    plain = type("Plain", (Minimal,), {name: answer})
    known = generic.registered(type("Known", (Minimal,), {name: answer}))
    heir = type("Heir", (known,), {name: lambda self, *args: "its heir's"})
    arguments = {
        "fused": (3,),
        "transposed": (3,),
        "placed": (panel(4, 2),),
        "matmat_in_double": (panel(4, 2),),
        "rmatmat_in_double": (panel(9, 2),),
        "lazy_basis": (panel(4, 2),),
        "mix": (ss.sketch.SRFT().mixer(4, 2, np.random.default_rng(0)),),
        "gram_seconds": (panel(4, 2),),
        "gram_with_double": (panel(4, 2), panel(4, 2)),
        "moments_and_gram": (panel(4, 2),),
        "row_blocks": (2,),
        "column_blocks": (2,),
        "squares_beyond": (panel(4, 2), panel(4, 2)),
        "exponents": (0,),
        "ldexp": (1, 1),
    }.get(name, ())
    D, function = values((9, 4)), getattr(generic, name)
    assert not isinstance(function(plain(D), *arguments), str)
    assert function(known(D), *arguments) == "its own"
    assert function(heir(D), *arguments) == "its heir's"


@pytest.mark.parametrize("name", ["Adjoint", "Shifted", "Scaled", "Product", "Above"])
def test_methods_that_answer_a_generic_function_have_its_docstring(name: str) -> None:
    kind = vars(getattr(ss.operators, name))
    answers = kind.keys() & generic.FUNCTIONS.keys()
    assert answers
    assert all(kind[each].__doc__ == generic.FUNCTIONS[each].__doc__ != None for each in answers)  # noqa: E711


class OneRead(Minimal):
    """An operator whose gram reads the data once, and that says so."""

    @property
    def costs(self) -> Costs:
        return Costs.of(self, gram_reads=1, stored=7)


def test_costs_of_what_is_known_follow_from_it() -> None:
    D = values((12, 5), np.float32)
    assert Minimal(D).costs == Costs.of(Minimal(D))
    assert (Minimal(D).costs.stored, Minimal(D).costs.gram_reads, Minimal(D).costs.panel_columns) == (60, 2, (16, 32))
    known = OneRead(D).costs
    assert (known.gram_reads, known.gram_pairs, known.panel_columns) == (1, 49 / 24, (8, 16))
    assert known.eps == known.gram_eps == np.finfo(np.float32).eps
    with pytest.raises(TypeError, match="unexpected"):
        Costs.of(Minimal(D), gram_read=1)


def test_derived_operators_pass_costs_on() -> None:
    A = OneRead(values((12, 5)))
    V = np.linalg.qr(panel(5, 2))[0]
    assert ss.operators.Scaled(A, np.ones(12)).costs.gram_reads == Deflated(A, V).costs.gram_reads == 1
    assert A.H.costs.gram_reads == (A - Minimal(values((12, 5)))).costs.gram_reads == 2
    for B in (A.H, ss.operators.Scaled(A.H, np.ones(5)), Deflated(A, V), A - Minimal(values((12, 5)))):
        assert B.costs.stored == 7
        assert B.costs is B.costs
        assert B.costs == pickle.loads(pickle.dumps(B.costs))
        with pytest.raises(dataclasses.FrozenInstanceError):
            B.costs.stored = 8  # type: ignore[misc]
    rows, cols = np.full(12, 2.0**9), np.full(5, 2.0**-30)
    both = ss.operators.Scaled(ss.operators.Scaled(A, rows), None, cols).costs.strain
    assert both == ss.operators.Scaled(A, rows).costs.strain + ss.operators.Scaled(A, None, cols).costs.strain >= 38


def test_building_an_operator_reads_nothing() -> None:
    source = Held(sparse.csr_array(values((40, 6), np.float32, density=0.3)), 8)
    A = DiskRows(source, n_threads=1)
    shift = ss.LowRank(np.ones(40), np.arange(6.0))
    built = [
        A.H,
        A - shift,
        (A - shift).H,
        ss.operators.Scaled(A - shift, np.ones(40)),
        Deflated(A - shift, np.eye(6)[:, :2]),
    ]
    assert all(built)
    assert source.n_reads == 0
    assert A.costs.stored == source.stored
    assert source.n_reads == 0
    assert (A - shift).costs.eps == np.finfo(np.float64).eps
    assert source.n_reads == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CONTAINERS)
def test_adjoints_and_differences_need_no_import_of_their_own(name: str) -> None:
    D = values((9, 4), CONTAINERS[name].dtype)
    A = ss.as_operator(CONTAINERS[name].make(D))
    found = (A.H - A.H) @ np.eye(9)
    assert_close(found, np.zeros((4, 9)), 100 * A.costs.eps * np.linalg.norm(D))


class Turned(Minimal):
    """Rows in the opposite order: what it gives is a view of what it is given."""

    def matmat(self, V: np.ndarray) -> np.ndarray:
        return V[::-1]

    rmatmat = matmat


class Same(Minimal):
    """The identity, which gives back what it is given."""

    def matmat(self, V: np.ndarray) -> np.ndarray:
        return V

    rmatmat = matmat


class Kept(Minimal):
    """Gives arrays that must not be written to, as JAX does."""

    def matmat(self, V: np.ndarray) -> np.ndarray:
        return read_only(self.D @ V)

    def rmatmat(self, W: np.ndarray) -> np.ndarray:
        return read_only(self.D.conj().T @ W)


def read_only(Y: np.ndarray) -> np.ndarray:
    Y.flags.writeable = False
    return Y


SOLVERS = [
    ss.Exact(),
    ss.Gram(),
    ss.BlockLanczos(tol=1e-10),
    ss.BlockLanczos(tol=0, block_size=4),
    ss.RandomizedSVD(n_iter=8, certify=True),
    ss.ShiftedRandomizedSVD(n_iter=8),
]


@pytest.mark.filterwarnings("ignore:.*may have been missed")  # of values that are all the same
@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("kind", [Turned, Same, Kept])
@pytest.mark.parametrize("n", [30, 200])
def test_what_an_operator_returns_is_not_written_to(kind: type, n: int, solver) -> None:
    D = np.diag(0.5 ** np.arange(n)) if kind is Kept else np.eye(n)[:: -1 if kind is Turned else 1]
    for A in (kind(D), kind(D).H):
        F = ss.svd(A, 3, solver=solver, rng=0)
        np.testing.assert_allclose(F.S, np.linalg.svd(D, compute_uv=False)[:3], rtol=1e-9)
        assert_close(F.Vh @ F.Vh.conj().T, np.eye(3), 1e-12)
        assert_close(A @ F.Vh.conj().T, F.U * F.S, 1e-4)


@pytest.mark.parametrize("own", [lambda self: 3.5, None, "euros"])
def test_a_class_whose_costs_are_something_else_is_refused_where_it_is_written(own) -> None:
    with pytest.raises(
        TypeError, match=r"^Mine.costs must be a property that returns shiftsvd.operators.Costs.*Rename"
    ):
        type("Mine", (Minimal,), {"costs": own})


def test_costs_that_are_no_costs_and_a_gram_that_ignores_weights_are_told_by_the_check() -> None:
    priced = type("Priced", (Minimal,), {"costs": property(lambda self: {"price": 3})})
    with pytest.raises(AssertionError, match=r"^costs must be a Costs, .* got dict$"):
        check_operator(priced(values((9, 4))))

    def gram(self, V, weights=None):
        return self.D.conj().T @ (self.D @ V)

    with pytest.raises(AssertionError, match=r"^gram must multiply the rows by weights"):
        check_operator(type("Deaf", (Minimal,), {"gram": gram})(values((9, 4))))


class Plainly(Minimal):
    """Has a gram of V alone, as the documentation writes it."""

    def gram(self, V: np.ndarray) -> np.ndarray:
        return self.D.conj().T @ (self.D @ V)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_a_gram_without_weights_serves_every_solver_and_scaled_rows(solver) -> None:
    D = np.linspace(1, 3, 40)[:, None] * values((40, 12))
    check_operator(Plainly(D))
    roots = np.linspace(0.5, 2, 40)
    for A, E in ((Plainly(D), D), (ss.operators.Scaled(Plainly(D), roots), roots[:, None] * D)):
        F = ss.svd(A, 3, solver=solver, rng=0)
        np.testing.assert_allclose(F.S, np.linalg.svd(E, compute_uv=False)[:3], rtol=1e-3)
    assert_close(Plainly(D).gram(np.eye(12), roots), D.T @ (roots[:, None] * D), 1e-10)


def test_weights_of_scaled_rows_are_those_of_each_call() -> None:
    D, roots = values((9, 4)), np.linspace(0.5, 2, 9)
    A = ss.operators.Scaled(ss.as_operator(D), roots)
    for weights in (np.ones(9), np.linspace(1, 2, 9)):
        weights.flags.writeable = False  # such weights are kept
        assert_close(A.gram(np.eye(4), weights), D.T @ ((weights * roots**2)[:, None] * D), 1e-10)


def test_a_gram_of_any_arguments_is_left_as_it_is() -> None:
    def gram(self, *args):
        return args

    assert type("Any", (Minimal,), {"gram": gram}).gram is gram
