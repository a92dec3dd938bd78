"""Memory, threads, messages, errors and outputs of a run."""

from shiftsvd.backends.validation import named
from shiftsvd.errors import Refused, Setting, few, is_address, plural, refuse
from shiftsvd.events import passes_so_far
from shiftsvd.kernels import default_threads, ordered, threads
from shiftsvd.names import MAX_ITER, BiasName, MissingName, SklearnSolverName, SolverName, VarNamesName
from shiftsvd.numerics.digests import told
from shiftsvd.runs.memory import Resources, affordable, all_within, limit_of, parse_bytes, spare
from shiftsvd.runs.messages import Notice, columns_called, notice, warn
from shiftsvd.runs.outputs import Outputs
