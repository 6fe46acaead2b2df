"""Audits from Python: `fedsim.audit`; the command calls the same code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attacks.disaggregation import ProblemError, Recovery
from attacks.disaggregation.disaggregate import solver_named
from attacks.disaggregation.solvers import unmet_need
from fedsim.core.errors import UserError
from fedsim.core.files import check_writable, writing
from scenarios.api_results import Findings, html_table
from scenarios.audit.audit import Audit
from scenarios.audit.audit import audit as audit_log
from scenarios.audit.files import client_rows, is_free, save_audit
from scenarios.audit.given import Given
from scenarios.audit.kinds import Rows
from scenarios.audit.page import draw_on
from scenarios.audit.score import score
from scenarios.audit.words import conclusion
from scenarios.console import progress_bars
from scenarios.tables import Row
from scenarios.threads import one_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class AuditResult(Findings):
    """An audit: its folder and its findings."""

    folder: Path
    findings: Audit

    @property
    def report(self) -> Path:
        """The page of the audit."""
        return self.folder / "report.html"

    @property
    def verdict(self) -> str:
        """`exposed`, `not separated` or `inconclusive`."""
        return self.findings.verdict

    @property
    def recovery(self) -> Recovery:
        """What the attack recovered: a column, an outcome and an update per client."""
        return self.findings.recovery

    def summary(self) -> dict[str, Any]:
        """Every figure of the audit, which `result.json` has, too."""
        return self.findings.summary()

    def rows(self) -> Sequence[Row]:
        """A row per client, as in `clients.csv`."""
        return client_rows(self.recovery)

    def draw(self, axes: Axes) -> None:
        """Recovered participation, clients across and rounds down; grey where nothing was recovered."""
        draw_on(axes, self.recovery)

    def _repr_html_(self) -> str:
        return html_table(self.rows(), title=conclusion(self.findings), page=self.report, most=10)


def audit(
    folder: str | Path | None = None,
    *,
    aggregates: str | Path | None = None,
    models: str | Path | None = None,
    server: str | None = None,
    rows: Rows | None = None,
    skip: Sequence[str] = (),
    modulus: int | None = None,
    counts: str | Path | None = None,
    out: str | Path | None = None,
    clients: int | None = None,
    counts_sd: float = 0.0,
    cohort_sizes: str | Path | None = None,
    layers: str | Path | None = None,
    participation: str | Path | None = None,
    superlink: str | Path | None = None,
    run: int | None = None,
    flare: str | Path | None = None,
    solver: str = "auto",
    seed: int = 0,
    alternatives: bool = True,
    progress: bool = True,
) -> AuditResult:
    """Audit the logs of a real system, as `fedsim audit` does: which clients do its sums and counts reveal?

    The arguments are the options of the command. `folder` is that of a tap; otherwise `aggregates` or
    `models` name the log. Results go to `out`, by default `folder/audit`.
    """
    given = Given(
        folder=_path(folder),
        aggregates=_path(aggregates),
        models=_path(models),
        server=server,
        rows=rows,
        skip=tuple(skip),
        modulus=modulus,
        counts=_path(counts),
        counts_sd=counts_sd,
        cohort_sizes=_path(cohort_sizes),
        layers=_path(layers),
        participation=_path(participation),
        superlink=_path(superlink),
        run=run,
        flare=_path(flare),
    )
    place = given.folder / "audit" if out is None and given.folder is not None else _path(out)
    if place is None:
        raise UserError("--out: expected a new folder for the results")
    if not is_free(place):
        raise UserError(f"{place} exists: choose another --out")
    _check_solver(solver, has_counts=given.has_counts)
    with writing(place):
        check_writable(place)
    log = given.read()
    with one_thread(), progress_bars(shown=progress) as bar:
        found = audit_log(
            log,
            num_clients=clients,
            solver=solver,
            seed=seed,
            alternatives=alternatives,
            solving=bar("solving"),
            trying=bar("trying"),
        )
    # Only now: the attack is over.
    truth = None if given.tap is None else given.tap.truth()
    if truth is not None:
        found = replace(found, score=score(found, truth, log.rounds))
    save_audit(found, place)
    return AuditResult(place, found)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _check_solver(solver: str, *, has_counts: bool) -> None:
    try:
        need = unmet_need(solver_named(solver), has_counts=has_counts)
    except ProblemError as error:
        raise UserError(f"--{error}") from error
    if need is not None:
        raise UserError(f"--solver: {need}")
