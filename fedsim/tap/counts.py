"""The counts that a tap publishes: how often each client took part in every window of rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Counts the rounds of every client in the window that is open, and closes it in time.

    A monitor can make windows longer from the open one on, or end the publication.
    """

    window_start: int = 0
    """The round after the last closed window."""
    known: list[str] = field(default_factory=list)
    """Clients that took part before that round, in order of first appearance."""
    open_window: dict[str, int] = field(default_factory=dict)
    """How often each client took part since."""
    published: list[int] = field(default_factory=list)
    """The rounds after which counts were published."""
    length: int = 0
    """Rounds of the open window; 0: no more counts are published."""
    coarsened: int = -1
    """Where the window begins that became longer last."""

    @property
    def clients(self) -> set[str]:
        """Clients that took part so far."""
        return {*self.known, *self.open_window}

    @property
    def closes_at(self) -> int | None:
        """The round after which the next counts are published; None if there are none to come."""
        return self.window_start + self.length if self.length else None

    @property
    def coarse(self) -> bool:
        """Whether windows became longer."""
        return self.coarsened >= 0

    def stops_until(self, rounds: int) -> tuple[int, ...]:
        """The rounds after which counts were published, or will be, if nothing changes."""
        if self.closes_at is None:
            return tuple(self.published)
        return (*self.published, *range(self.closes_at, rounds + 1, self.length))

    def coarsen(self) -> None:
        """Make windows twice as long from the open one on; the same window is not made longer twice."""
        if self.coarsened != self.window_start:
            self.length *= 2
            self.coarsened = self.window_start

    def withhold(self) -> None:
        """Publish no more counts."""
        self.length = 0

    def add(self, clients: Iterable[str]) -> None:
        """Count a round."""
        for client in clients:
            self.open_window[client] = self.open_window.get(client, 0) + 1

    def close(self, stop: int) -> list[tuple[str, int, int, int]]:
        """Close the window before round `stop`: (client, start, stop, count) of every known client.

        Zeros are among them: a server knows who did not reply.
        """
        start, before = self.window_start, set(self.known)
        new = [client for client in self.open_window if client not in before]
        # A client that appears later took part in no round before.
        lines = [(client, 0, start, 0) for client in new] if start else []
        self.known += new
        lines += [(client, start, stop, self.open_window.get(client, 0)) for client in self.known]
        self.open_window, self.window_start = {}, stop
        self.published.append(stop)
        return lines
