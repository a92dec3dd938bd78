"""What a fit says of its missing entries, and of the completion that stands for them."""

from dataclasses import dataclass, replace
from typing import Any

from shiftsvd.result import Info

MAX_ITER = 300  # steps of a completion


@dataclass(frozen=True)
class Account:
    """What is known of the missing entries of a fit, and of the completion that stands for them."""

    n_missing: int | None = None
    heldout_r2: float | None = None
    completed: bool | None = None
    n_iter: int = 1

    def told(self, info: Info) -> Info:
        """An account of a fit with what it read in place of its matrix; nothing converged if that did not."""
        converged = False if self.completed is False else info.converged
        known = replace(info, n_missing=self.n_missing, heldout_r2=self.heldout_r2, completed=self.completed)
        return replace(known, converged=converged)


def check_unused(missing: str, penalty: Any, max_iter: Any) -> None:
    """Refuse settings of a completion where there is none."""
    given = {"penalty": penalty} if not isinstance(penalty, str) or penalty != "auto" else {}
    given |= {} if max_iter == MAX_ITER else {"max_iter": max_iter}
    if missing != "em" and given:
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f'penalty and max_iter are for missing="em", got {settings} with missing={missing!r}')
