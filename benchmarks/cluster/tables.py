"""Tables of what was measured on clusters, in Markdown."""

FITS = {"stopped": "stopped early", "converged": "tol {tol:g}"}


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fits(records: list[dict]) -> str:
    """Our fits, one a line."""
    head = ["size", "workers", "fit", "sweeps", "seconds", "a sweep", "error", "converged", "peak of each worker"]
    head += ["scheduler and client: after 1 sweep, at most", "sent by workers in a sweep", "on the network device"]
    return table(head, [_fit(r) for r in records])


def _fit(r: dict) -> list[str]:
    """A line of the table of fits."""
    peaks = ", ".join(f"{peak / 1e9:.2f}" for peak in r["worker_peaks"])
    lost = f", {r['lost_workers']} ended" * bool(r["lost_workers"])
    return [
        f"{r['gigabytes']:g} GB, {r['chunks']} chunks",
        str(r["workers"]),
        FITS[r["name"]].format(**r),
        str(r["sweeps"]),
        f"{r['seconds']:.0f}",
        f"{r['sweep_seconds']:.2f} s",
        f"{r['error']:.1e}",
        "yes" if r["converged"] else "no",
        f"{peaks} of {r['limit'] / 1e9:g} GB{lost}",
        f"{r['first_memory'] / 1e6:.0f}, {r['most_memory'] / 1e6:.0f} MB",
        f"{r['bytes_between_workers'] / 1e6:.1f} MB",
        f"{r['bytes_in_all'] / 1e6:.1f} MB",
    ]


def peers(records: list[dict]) -> str:
    """Others, one a line."""
    head = ["size", "workers", "package", "seconds", "error", "peak of each worker", "client and scheduler: more by"]
    return table(head, [_peer(r) for r in records])


def _peer(r: dict) -> list[str]:
    """A line of the table of peers."""
    begin = [f"{r['gigabytes']:g} GB", f"{r['workers']} of {r['memory']}", r["name"]]
    if "failed" in r:
        said = r["failed"].replace("|", "/").partition(". ")[0]
        return [*begin, f"no result: {said}", "", "", ""]
    notes = " of the uncentred matrix" * (not r["centred"]) + "; dense chunks" * r["dense"]
    peaks = ", ".join(f"{peak / 1e9:.2f}" for peak in r["worker_peaks"])
    lost = f", {r['lost_workers']} ended" * bool(r["lost_workers"])
    return [
        *begin,
        f"{r['seconds']:.0f}",
        f"{r['error']:.1e}{notes}",
        f"{peaks} GB{lost}",
        f"{r['client_growth'] / 1e6:.0f} MB",
    ]


def sweeps(records: list[dict]) -> str:
    """Simulated sweeps beside the model."""
    head = ["workers", "worker-saturation", "blocks", "a block", "slowest", "simulated", "model", "model / simulated"]
    head += ["sent, simulated", "model", "model / simulated"]
    return table(head, [_sweep(r) for r in records])


def _sweep(r: dict) -> list[str]:
    """A line of the table of sweeps; bytes as of panels in full size."""
    sent, expected = r["sent"] * r["shrunk"] / 1e9, r["model_sent"] * r["shrunk"] / 1e9
    return [
        str(r["workers"]),
        str(r["saturation"]),
        f"{r['blocks']:,}",
        f"{r['block_seconds']:.2f} s",
        r["slowest"],
        f"{r['seconds']:.1f} s",
        f"{r['model_seconds']:.1f} s",
        f"{r['model_seconds'] / r['seconds']:.2f}",
        f"{sent:.1f} GB",
        f"{expected:.1f} GB",
        f"{expected / sent:.2f}",
    ]


def scaling(records: list[dict]) -> str:
    """Fits of the same chunks on one worker and on two."""
    head = ["size", "fit", "seconds a sweep, 1 worker", "2 workers", "ratio", "same bits"]
    pairs = [(a, b) for a in records for b in records if (a["workers"], b["workers"]) == (1, 2) and _alike(a, b)]
    return table(head, [_pair(a, b) for a, b in pairs])


def _alike(a: dict, b: dict) -> bool:
    """Whether only the workers differ."""
    return all(a[name] == b[name] for name in ("gigabytes", "k", "name"))


def _pair(a: dict, b: dict) -> list[str]:
    """A line of the table of scaling."""
    return [
        f"{a['gigabytes']:g} GB, {a['chunks']} chunks",
        FITS[a["name"]].format(**a),
        f"{a['sweep_seconds']:.2f}",
        f"{b['sweep_seconds']:.2f}",
        f"{a['sweep_seconds'] / b['sweep_seconds']:.2f}",
        "yes" if a["digest"] == b["digest"] else "no",
    ]
