"""The faults: one line of the source each, what stands there instead, and the tests that are to see it."""

from typing import NamedTuple


class Fault(NamedTuple):
    """What is wrong, in which file of the package, by which change, and the tests that are run, the likeliest first."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def fault(what: str, file: str, old: str, new: str, *tests: str) -> Fault:
    """A fault whose tests, unless others are named, are the folder of the same name."""
    return Fault(what, file, old, new, tests or (file.partition("/")[0],))


FAULTS = (
    # algebra
    fault(
        "the sign of a shift",
        "algebra/shifted.py",
        "return self.A.matmat(V) - self.S.matmat(V)",
        "return self.A.matmat(V) + self.S.matmat(V)",
    ),
    fault(
        "the sign of a shift of a shift",
        "algebra/low_rank.py",
        "return LowRank(shift.L, -shift.R).merge(self)",
        "return LowRank(shift.L, shift.R).merge(self)",
    ),
    fault(
        "the conjugate of a complex scale",
        "algebra/scaled.py",
        "return scaled(conj(self.cols), self.A.rmatmat(scaled(conj(self.rows), W)))",
        "return scaled(self.cols, self.A.rmatmat(scaled(conj(self.rows), W)))",
    ),
    fault(
        "the power of two that data were divided by",
        "algebra/units.py",
        "return Units(times_powers(A, 0, -e), e, ",
        "return Units(times_powers(A, 0, -e), 0, ",
    ),
    fault(
        "the projection beside leaders", "algebra/deflated.py", "for _ in range(2):", "for _ in range(0):", "solvers"
    ),
    fault(
        "the conjugate of a mean in an adjoint",
        "algebra/adjoint.py",
        "moments = generic.row_moments(self.A, weights)\n        return Moments(moments.count, moments.mean.conj(),",
        "moments = generic.row_moments(self.A, weights)\n        return Moments(moments.count, moments.mean,",
    ),
    # backends
    fault(
        "the weights of later blocks of rows",
        "backends/dense.py",
        "Y *= weights[rows[0] : rows[1], None]",
        "Y *= weights[: rows[1] - rows[0], None]",
        "backends",
        "algebra",
    ),
    fault(
        "the last block of a sum",
        "backends/blocked.py",
        "for values in parts:\n            total += values",
        "for values in list(parts)[:-1]:\n            total += values",
        "backends",
    ),
    fault(
        "the shift of later blocks of a file",
        "backends/disk.py",
        "LowRank(self.shift.L[lo:hi], self.shift.R)",
        "LowRank(self.shift.L[: hi - lo], self.shift.R)",
    ),
    fault(
        "the sign of a shift where nothing is stored",
        "backends/full_lines.py",
        "coo_array((-shift.at(i, j), (i, j))",
        "coo_array((shift.at(i, j), (i, j))",
        "algebra/test_full_lines.py",
        "backends",
    ),
    fault(
        "the journal of reads",
        "backends/reread.py",
        'return journal.once(f"{what} {self.fingerprint}", (*panels, *shift), read)',
        "return read()",
        "runs/test_checkpoint.py",
        "runs",
    ),
    fault(
        "the shift in the name of a kept read",
        "backends/reread.py",
        'return journal.once(f"{what} {self.fingerprint}", (*panels, *shift), read)',
        'return journal.once(f"{what} {self.fingerprint}", panels, read)',
        "runs/test_checkpoint.py",
        "runs",
    ),
    fault(
        "an index one past the last column",
        "backends/reread.py",
        "least < 0 or largest >= X.shape[1]",
        "least < 0 or largest > X.shape[1]",
        "io/test_damaged_streaming.py",
        "backends",
    ),
    # kernels
    fault(
        "what is not stored, in a mean",
        "kernels/twin.py",
        "correction = (sum_by(groups, w * off, n_groups) - absent * mean) / count",
        "correction = sum_by(groups, w * off, n_groups) / count",
    ),
    fault(
        "the conjugate in squares about a shift",
        "kernels/twin.py",
        "2 * (x.conj() * shift).real",
        "2 * (x * shift).real",
        "kernels",
        "backends",
    ),
    fault(
        "the mean term of a Gram product",
        "kernels/twin.py",
        "_one_group(np.asarray(L.conj().T @ Y))",
        "_one_group(np.asarray(L.conj().T @ Y) * 0)",
        "kernels",
        "backends",
    ),
    fault(
        "the order of parts that threads make",
        "kernels/threads.py",
        "yield waiting.popleft().result()",
        "yield waiting.pop().result()",
        "runs/test_determinism.py",
        "kernels",
    ),
    fault(
        "the panels that are folded as they come",
        "kernels/sums.py",
        "before = _folded(kernels, held.pop(), before)",
        "before = _folded(kernels, held.pop(), None)",
        "kernels",
        "backends",
    ),
    fault(
        "the tail of the columns of a tall panel (C++)",
        "kernels/cpp/panels.cpp",
        "if constexpr (C > 1) in_tiles",
        "if constexpr (C > 2) in_tiles",
    ),
    fault(
        "the odd entry of a row (C++)",
        "kernels/cpp/rows.cpp",
        "if (k < n) y.add(T(x[k]), V + std::size_t(j[k]) * W);\n  y.add(z);\n  return y;\n}\n\n// Z[j_k]",
        "y.add(z);\n  return y;\n}\n\n// Z[j_k]",
    ),
    # numerics
    fault(
        "what lies between the means of two parts",
        "numerics/moments.py",
        "self.M2 + other.M2 + between",
        "self.M2 + other.M2",
        "algebra/test_moments.py",
    ),
    fault("ddof", "numerics/moments.py", "np.asarray(self.count - ddof)", "np.asarray(self.count - 1)", "preparation"),
    fault(
        "<= for < where eigenvalues are counted",
        "numerics/bounds.py",
        "seen = int(np.count_nonzero(theta >= mu))",
        "seen = int(np.count_nonzero(theta > mu))",
    ),
    fault(
        "what lies between the means of two groups",
        "numerics/grouped.py",
        "out[2::2] = a[2::2] + b[2::2] + delta**2 * (a[0] * share)",
        "out[2::2] = a[2::2] + b[2::2]",
        "features",
        "algebra",
    ),
    # solvers
    fault(
        "the stopping rule, ten times too soon",
        "solvers/run.py",
        "if worst <= 1 or stuck or self._at_end():",
        "if worst <= 10 or stuck or self._at_end():",
    ),
    fault(
        "the probe before the end", "solvers/run.py", "return self.missed.lacks(", "return False and self.missed.lacks("
    ),
    fault(
        "rounding in the certificate",
        "solvers/ritz.py",
        "return max(residual_rounding(self.eps) * largest, self.measured)",
        "return self.measured",
    ),
    fault(
        "a value's own residual in its bound",
        "solvers/ritz.py",
        "(self.r + noise) ** 2, k, limit)\n        proven",
        "(0 * self.r + noise) ** 2, k, limit)\n        proven",
    ),
    fault(
        "the share of each probe of the probability",
        "solvers/missed.py",
        "self.probability * 0.5**self.n_probes",
        "self.probability",
    ),
    fault("the distance of a level", "solvers/probe.py", "return found + noise", "return top + noise"),
    fault(
        "the conjugate of the right vectors",
        "solvers/reading.py",
        "return Factors(U, self.S, self.V.conj().T,",
        "return Factors(U, self.S, self.V.T,",
    ),
    fault(
        "< for <= of a tolerance of 0",
        "solvers/certify.py",
        "late = np.flatnonzero(~(errors <= tol))",
        "late = np.flatnonzero(~(errors <= 100 * tol))",
    ),
    fault("an iteration too many", "solvers/randomized.py", 'range(q - (self.finish == "last"))', "range(q)"),
    fault("rounding of a formed Gram matrix", "solvers/gram.py", "G @ V, replace(rest, measured=noise)", "G @ V, rest"),
    fault("what entries err by", "solvers/known.py", "error / F.S, 0)\n", "0 * F.S, 0)\n", "transforms", "solvers"),
    fault(
        "the Frobenius norm of what is left",
        "solvers/remainder.py",
        "square = norm**2 - float(F.S @ F.S)",
        "square = norm**2 + float(F.S @ F.S)",
        "algebra/test_remainder.py",
    ),
    fault("zeros beyond the rank", "solvers/base.py", "np.where(there, S, 0).astype", "S.astype"),
    fault("the second orthogonalization", "solvers/krylov.py", "for lo in (near, 0):", "for lo in (near,):"),
    fault(
        "the seed",
        "sketch.py",
        "return np.random.default_rng(seed)",
        "return np.random.default_rng()",
        "numerics/test_sketch.py",
        "estimators",
    ),
    # preparation
    fault(
        "the root of the weights",
        "preparation/prepare.py",
        "np.sqrt(self.own.weights)",
        "self.own.weights",
        "estimators/test_pca_weights.py",
        "preparation",
    ),
    fault("the scale not divided by", "preparation/prepare.py", "1 / self.scale\n", "self.scale\n"),
    fault(
        "the weights in means of groups",
        "preparation/covariates.py",
        "/ (w @ L)[:, None]",
        "/ L.sum(axis=0)[:, None]",
    ),
    fault("the centre of covariates", "preparation/covariates.py", "return C - self.centre", "return C"),
    # estimators, streams, choices
    fault("centring of coordinates", "estimators/pcoa.py", "np.asarray(V - V.mean(axis=0))", "np.asarray(V)"),
    fault(
        "the values in coordinates of columns",
        "estimators/correspondence.py",
        "(_power(c, -0.5)[:, None] * V * S)",
        "(_power(c, -0.5)[:, None] * V)",
    ),
    fault("the scale in a reconstruction", "estimators/fitted.py", "back = back * self.scale_", "back = back * 1.0"),
    fault(
        "the weights of kept rows of a batch",
        "streaming/scatter.py",
        "np.sqrt(weights)[:, None] * R",
        "weights[:, None] * R",
        "estimators",
    ),
    fault("the counts of two batches", "streaming/stream.py", "count * more / (count + more)", "more", "estimators"),
    fault(
        "the deviations above permuted values",
        "choosing/resampling.py",
        "np.mean(draws) + n_deviations * np.std(draws, ddof=1)",
        "np.mean(draws)",
    ),
    # missing
    fault("the observed in a mean", "missing/gaps/base.py", ".mean * (total / count)", ".mean"),
    fault(
        "entries that are held out",
        "missing/completion.py",
        "model, *_ = descend(apart[0], begun,",
        "model, *_ = descend(gaps, begun,",
    ),
    fault(
        "the last entry of a row, hidden",
        "missing/gaps/base.py",
        "_earlier(rows) < in_row[rows] - 1",
        "_earlier(rows) < in_row[rows]",
    ),
    # transforms, features
    fault("the sign of a clipped residual", "transforms/residuals.py", "np.copysign(clip, x - mu)", "clip"),
    fault("1 in the weight of a term", "transforms/counting.py", "+ 1 if self.use_idf", "+ 0 if self.use_idf"),
    fault(
        "half a rank of ties",
        "transforms/ranks.py",
        "rank = below[zero] + (counts[zero] + 1) / 2",
        "rank = below[zero] + counts[zero] / 2",
    ),
    fault(
        "what is counted of a composition",
        "transforms/compositions.py",
        'np.maximum(sums[:, 1:], 1) if self.kind == "robust"',
        'len(fitted.columns) if self.kind == "robust"',
    ),
    fault(
        "batches in a ranking",
        "features/ranking.py",
        "batches = Batches.of(None, A.shape[0]) if batches is None else batches",
        "batches = Batches.of(None, A.shape[0])",
        "features",
        "scanpy/test_genes.py",
    ),
    fault("ddof in a bin", "features/dispersion.py", "np.sqrt(squares / (count - 1))", "np.sqrt(squares / count)"),
    # genetics
    fault(
        "alleles that are swapped",
        "genetics/projection.py",
        "G = np.where(part.swapped, 2 - G, G)",
        "G = np.asarray(G)",
    ),
    fault(
        "founders in counts", "genetics/calls.py", "counted = G if founders.all() else G[:, founders]", "counted = G"
    ),
    fault("mid-p", "genetics/hardy.py", "tied / 2 if mid_p", "tied if mid_p"),
    fault("heterozygotes in kinship", "genetics/kinship.py", "alike *= 2", "alike *= 1"),
    fault(
        "which one of a pair is pruned",
        "genetics/linkage.py",
        "kept[i if major[i] > major[j]",
        "kept[i if major[i] < major[j]",
    ),
    fault(
        "one degree of freedom", "genetics/tracy_widom.py", "markers = (m + 2) * sums**2", "markers = (m + 1) * sums**2"
    ),
    fault(
        "the freedom in a standard error",
        "genetics/least_squares.py",
        "1 - k / np.maximum(n_present, 1)",
        "1 - 0 * k / np.maximum(n_present, 1)",
    ),
    # io
    fault(
        "what is missing, in a mean of genotypes",
        "io/formats/genotypes.py",
        "means /= np.maximum(G.shape[1] - missing.sum(axis=1), 1)",
        "means /= G.shape[1]",
        "io/test_bed.py",
        "genetics",
    ),
    fault(
        "where a block of an array begins",
        "io/formats/npy.py",
        "offset=self.offset + lo * n * self.dtype.itemsize",
        "offset=self.offset",
        "io/test_streaming.py",
        "io",
    ),
    fault(
        "a decreasing indptr",
        "io/storage/chunked.py",
        "np.any(starts[1:] < starts[:-1])",
        "np.any(starts[1:] < 0)",
        "io/test_damaged_streaming.py",
        "io",
    ),
    fault(
        "a line more than there are cells",
        "io/formats/tenx_folder.py",
        "lines = islice(bounded_lines(path, stream, memory_limit), count + 1)",
        "lines = islice(bounded_lines(path, stream, memory_limit), count)",
        "io/test_tenx.py",
        "io",
    ),
    fault(
        "the memory limit of readers",
        "io/limits.py",
        "if limit is not None and n_bytes > limit:",
        "if limit is not None and n_bytes > 1e9 * limit:",
        "io/test_opening.py",
        "io",
    ),
    fault(
        "labels of files in another order",
        "io/stacking.py",
        "return np.array([place[name] for name in known.tolist()], np.intp)",
        "return np.arange(len(place))",
        "io/test_joined.py",
        "backends/test_stacked.py",
        "commands/test_stacked.py",
    ),
    fault(
        "entries that a header claims",
        "io/formats/market.py",
        "if entries * shortest > path.stat()",
        "if 0 * entries > path.stat()",
        "io/test_damaged_readers.py",
        "io",
    ),
    # runs
    fault(
        "the checksum of a record",
        "runs/checkpoints.py",
        "if content[:DIGEST] != self._digest(content[DIGEST:]):",
        "if len(content) < DIGEST:",
        "runs/test_checkpoint.py",
    ),
    fault(
        "the lock of an output",
        "runs/outputs.py",
        'locks.enter_context(held(path.with_name(f".{path.name}.lock"), path))',
        "pass",
        "runs/test_locks.py",
        "commands/test_outputs.py",
    ),
    fault(
        "the memory limit of a fit",
        "runs/memory.py",
        "if limit is not None and needed > limit:",
        "if limit is None and needed > 0:",
        "runs",
        "estimators",
    ),
    fault(
        "an output that another process has written by now",
        "runs/outputs.py",
        "refuse(self._parts, self._force)  # by now",
        "pass  # by now",
        "runs/test_locks.py",
        "commands/test_outputs.py",
    ),
    # model files, scanpy, xarray, plots, the command
    fault(
        "the checksum of a model",
        "model_file/__init__.py",
        'if metadata["sha256"] != digest(metadata, tensors):',
        'if not metadata["sha256"]:',
    ),
    fault(
        "the version of a model file",
        "model_file/container.py",
        'if metadata.get("version") != VERSION:',
        'if "version" not in metadata:',
    ),
    fault(
        "genes in another order",
        "scanpy/projection.py",
        "order = there[np.argsort(places[there])]",
        "order = there",
        "scanpy",
    ),
    fault(
        "genes that are absent",
        "scanpy/projection.py",
        "return np.asarray(cho_solve(cho_factor(G), W.T).T)",
        "return np.asarray(W)",
        "scanpy",
    ),
    fault(
        "the root of an area",
        "xarray/areas.py",
        "np.sqrt(np.cos(np.deg2rad(_latitude(da))).clip(0))",
        "np.cos(np.deg2rad(_latitude(da))).clip(0)",
    ),
    fault(
        "the weights in a reconstruction",
        "xarray/__init__.py",
        "/ eofs.weights + eofs.mean_field",
        "* eofs.weights + eofs.mean_field",
    ),
    fault(
        "the root of what is left", "plot/variance.py", "np.sqrt(np.maximum(1 - share, 0))", "np.maximum(1 - share, 0)"
    ),
    fault(
        "the exit code of an interrupt",
        "cli.py",
        "INTERRUPTED = 130",
        "INTERRUPTED = 1",
        "commands/test_outputs.py",
        "commands",
    ),
    fault(
        "--stack that is not said",
        "commands/checks.py",
        "if len(files) > 1 and stack is None:",
        "if len(files) > 2 and stack is None:",
        "commands/test_stacked.py",
        "commands",
    ),
    fault(
        "a tolerance in the table of a fit",
        "commands/results.py",
        "e is not None and e <= self.tol",
        "e is not None",
        "commands/test_fit.py",
        "commands",
    ),
    fault(
        "one degree of freedom of cells",
        "commands/cells.py",
        "return int(len(paths) > 0 and all(",
        "return int(len(paths) < 0 and all(",
        "commands/test_cells.py",
        "commands",
    ),
)
