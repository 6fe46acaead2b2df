"""The published counts: how often each client took part, window by window.

The telemetry side of a federation publishes nothing else. An attacker reads these counts and the aggregates.
The counts are a table, not a matrix: windows may differ from client to client, and answers may be missing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsim.core.files import written_whole

COUNTS_HEADER = ("client", "start", "stop", "count")
SD_COLUMN = "sd"
"""The fifth column of a table whose counts have errors: their standard deviations."""
LAW_COLUMN = "law"
"""The sixth column of a table with Laplace errors: `laplace`, or `normal` for any others."""
LAWS = ("normal", "laplace")

_MOST_STANDARD_DEVIATIONS = 1000
"""Distance of a count from the possible ones that no error explains: the stated deviation must be wrong."""


SMALLEST_SD = 1e-6
"""Smallest standard deviation that is not 0. No noise on counts is smaller, and its square is a number."""
_ID_DIGITS = 18
"""Longest id that is read as a number."""


class ReportError(ValueError):
    """An invalid table of counts; `row` is the index of the wrong row, if a single row is wrong."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class ParticipationReport:
    """Row i: `clients[client[i]]` took part `count[i]` times in the rounds `start[i] .. stop[i]-1`.

    `clients` (K,) holds the ids, each once, in order of first appearance; a client may have no row.
    `client`, `start`, `stop` (n,) are int64 and `count` (n,) is float64, where NaN means that the
    device did not answer. `noise_sd` is the standard deviation of the error in the counts as the
    release policy states it, one for all or one per row (`sd` is always (n,)). 0 means that a count is
    exact: an integer between 0 and the length of its window. `laplace`, for all or per row (`is_laplace` is
    always (n,)), marks errors with the discrete Laplace distribution of differential privacy. All others
    count as normal.
    """

    clients: NDArray[np.generic]
    client: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    count: NDArray[np.float64]
    noise_sd: float | NDArray[np.float64] = 0.0
    laplace: bool | NDArray[np.bool_] = False

    @property
    def is_laplace(self) -> NDArray[np.bool_]:
        """(n,) whether each count's error has a Laplace distribution."""
        return np.broadcast_to(np.asarray(self.laplace, dtype=np.bool_), self.count.shape)

    @property
    def sd(self) -> NDArray[np.float64]:
        """(n,) the standard deviation of each count's error."""
        return np.broadcast_to(np.asarray(self.noise_sd, dtype=np.float64), self.count.shape)

    def __post_init__(self) -> None:
        if len(np.unique(self.clients)) != len(self.clients):
            raise ReportError("clients: expected every id only once")
        if not len(self.client) == len(self.start) == len(self.stop) == len(self.count):
            raise ReportError("client, start, stop and count must have the same length")
        if np.ndim(self.noise_sd) and np.shape(self.noise_sd) != self.count.shape:
            raise ReportError(f"noise_sd: shape {np.shape(self.noise_sd)}, expected one, or one per count")
        if np.ndim(self.laplace) and np.shape(self.laplace) != self.count.shape:
            raise ReportError(f"laplace: shape {np.shape(self.laplace)}, expected one, or one per count")
        for bad, problem in self._row_checks():
            if bad.any():
                row = int(np.argmax(bad))
                raise ReportError(f"{self.describe_row(row)}: {problem}", row)

    def _row_checks(self) -> Iterable[tuple[NDArray[np.bool_], str]]:
        answered = ~np.isnan(self.count)
        yield (self.client < 0) | (self.client >= len(self.clients)), "no such client"
        yield self.start < 0, "a window cannot start before round 0"
        yield self.stop <= self.start, "a window must stop after it starts"
        yield np.isinf(self.count), "a count must be finite (empty means: no answer)"
        yield ~(self.sd >= 0) | np.isinf(self.sd), "noise_sd is not a standard deviation (0 or more)"
        yield self.is_laplace & ~(self.sd > 0), "a Laplace error has a standard deviation above 0"
        tiny = (self.sd > 0) & (self.sd < SMALLEST_SD)
        yield tiny, f"a standard deviation below {SMALLEST_SD:g} is no error: write 0 for an exact count"
        exact = answered & (self.sd == 0)
        yield exact & (self.count != np.round(self.count)), "an exact count is a whole number"
        yield exact & (self.count < 0), "a count cannot be negative"
        yield exact & (self.count > self.stop - self.start), "more participations than rounds"
        beyond = np.maximum(self.count - (self.stop - self.start), -self.count)
        yield (
            answered & (self.sd > 0) & (beyond / _MOST_STANDARD_DEVIATIONS > self.sd),
            f"more than {_MOST_STANDARD_DEVIATIONS} standard deviations from any possible count",
        )

    def describe_row(self, row: int) -> str:
        """The row in words, for messages."""
        index = int(self.client[row])
        name = self.clients[index] if 0 <= index < len(self.clients) else index
        return f"client {name}, rounds {self.start[row]}..{self.stop[row] - 1}, count {self.count[row]:g}"

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[tuple[int | str, int, int, float | None]],
        *,
        noise_sd: float | NDArray[np.float64] = 0.0,
        laplace: bool | NDArray[np.bool_] = False,
    ) -> ParticipationReport:
        """From `(client id, start, stop, count or None)`; clients are numbered by first appearance."""
        table = list(rows)
        position: dict[int | str, int] = {}
        for client, *_ in table:
            position.setdefault(client, len(position))
        return cls(
            clients=_ids(position),
            client=np.array([position[client] for client, *_ in table], dtype=np.int64),
            start=np.array([start for _, start, _, _ in table], dtype=np.int64),
            stop=np.array([stop for _, _, stop, _ in table], dtype=np.int64),
            count=np.array([np.nan if c is None else c for *_, c in table], dtype=np.float64),
            noise_sd=noise_sd,
            laplace=laplace,
        )

    def write_csv(self, path: str | Path) -> None:
        """One line per row, with ids instead of positions; a missing answer is an empty field.

        A column `sd` follows if any count has an error, and a column `law` if any error is Laplace.
        """
        columns = 6 if self.is_laplace.any() else 5 if (self.sd > 0).any() else 4
        with (
            written_whole(Path(path)) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            writer.writerow((*COUNTS_HEADER, SD_COLUMN, LAW_COLUMN)[:columns])
            for client, start, stop, count, sd, laplace in zip(
                self.client, self.start, self.stop, self.count, self.sd, self.is_laplace, strict=True
            ):
                row = (self.clients[client], start, stop, "" if np.isnan(count) else f"{count:.17g}")
                writer.writerow((*row, f"{sd:.17g}", LAWS[int(laplace)])[:columns])

    @classmethod
    def read_csv(cls, path: Path, *, noise_sd: float = 0.0, rounds: int | None = None) -> ParticipationReport:
        """Read a file that `write_csv` has written. Errors name the number of the wrong line.

        `noise_sd` applies to files that do not state an error themselves. If the number of `rounds` is given,
        a window that ends later is an error.
        """
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin with a byte order mark
            reader = csv.reader(file)
            header = tuple(map(str.strip, next(reader, ())))
            if header not in [(*COUNTS_HEADER, SD_COLUMN, LAW_COLUMN)[:columns] for columns in (4, 5, 6)]:
                raise ReportError(
                    f"{path}, line 1: expected the header {','.join(COUNTS_HEADER)}"
                    f"[,{SD_COLUMN}[,{LAW_COLUMN}]] but got {','.join(header):.60}"
                )
            # Without this, blanks around an id would turn one client into two.
            numbered = [(reader.line_num, list(map(str.strip, fields))) for fields in reader if fields]
        lines = [_parse(fields, header, where=f"{path}, line {number}") for number, fields in numbered]
        rows = [line[:4] for line in lines]
        # Ids become numbers only if that keeps them distinct: 007 and 7 are two clients.
        if all(_is_number(str(client)) for client, *_ in rows):
            rows = [(int(client), start, stop, count) for client, start, stop, count in rows]
        sd = np.array([line[4] for line in lines], dtype=np.float64)
        laplace = np.array([line[5] == "laplace" for line in lines], dtype=np.bool_)
        try:
            stated = noise_sd if header == COUNTS_HEADER else sd
            report = cls.from_rows(rows, noise_sd=stated, laplace=laplace)
            if rounds is not None and (report.stop > rounds).any():
                row = int(np.argmax(report.stop > rounds))
                raise ReportError(f"{report.describe_row(row)}: there are only {rounds} rounds of sums", row)
            _check_once(report)
            return report
        except ReportError as error:
            where = path if error.row is None else f"{path}, line {numbered[error.row][0]}"
            raise ReportError(f"{where}: {error}", error.row) from error


def _check_once(report: ParticipationReport) -> None:
    """A `ReportError` about a client with two counts for the same rounds."""
    seen: set[tuple[object, int, int]] = set()
    places = zip(report.client.tolist(), report.start.tolist(), report.stop.tolist(), strict=True)
    for row, place in enumerate(places):
        if place in seen:
            raise ReportError(
                f"{report.describe_row(row)}: an earlier line has a count for these rounds", row
            )
        seen.add(place)


def _is_number(client: str) -> bool:
    """Whether an id is a number of 64 bits, written as Python would write it."""
    return client.isdecimal() and len(client) <= _ID_DIGITS and str(int(client)) == client


def _ids(clients: Iterable[int | str]) -> NDArray[np.generic]:
    """Ids as an array without loss; NumPy would round integers beyond 64 bits."""
    ids = list(clients)
    numbers = all(isinstance(client, int) and abs(client) < 2**63 for client in ids)
    return np.array(ids if numbers else [str(client) for client in ids])


def _parse(
    fields: list[str], header: tuple[str, ...], *, where: str
) -> tuple[int | str, int, int, float | None, float, str]:
    try:
        if len(fields) != len(header):
            raise ValueError("a field is missing, or there is one too many")
        if not fields[0]:
            raise ValueError("a client without an id")
        client, start, stop, count, sd, law = (*fields, *("0", LAWS[0])[len(fields) - 4 :])
        if max(abs(int(start)), abs(int(stop))) > 2**53:
            raise ValueError("a round number above 2**53")
        parsed = client, int(start), int(stop), float(count) if count else None, float(sd), law
    except ValueError as error:
        raise ReportError(f"{where}: expected {','.join(header)} but got {','.join(fields):.120}") from error
    if law not in LAWS:
        raise ReportError(f"{where}: {LAW_COLUMN} is {law[:40]!r}, expected {' or '.join(LAWS)}")
    return parsed


def windowed_counts(participation: ArrayLike, window: int) -> ParticipationReport:
    """Exact counts of a participation matrix (rounds × clients, 0/1) over equal windows.

    Windows start at round 0; the last one is shorter when `window` does not divide the rounds.
    """
    P = np.asarray(participation)
    if P.ndim != 2:
        raise ReportError(f"participation: expected rounds × clients, got shape {P.shape}")
    if window < 1:
        raise ReportError(f"window: {window} is not a number of rounds (1 or more)")
    rounds, clients = P.shape
    start = np.arange(0, rounds, window)
    totals = np.add.reduceat(P.astype(np.int64), start, axis=0) if rounds else np.zeros((0, clients))
    return ParticipationReport(
        clients=np.arange(clients),
        client=np.repeat(np.arange(clients), len(start)),
        start=np.tile(start, clients),
        stop=np.tile(np.minimum(start + window, rounds), clients),
        count=totals.T.reshape(-1).astype(np.float64),
    )
