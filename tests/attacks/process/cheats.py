"""Attacks that cheat: each looks for the truth where an attack should not be able to find it.

A cheat is a request like any other. It answers with the participation matrix that it found, if any.
"""

import gc
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attacks.process.requests import Disaggregate, Request

TRUTH = "truth/participation.npy"


@dataclass(frozen=True, eq=False)
class Cheat(Request):
    """A cheat that is given what an honest attack is given."""

    honest: Disaggregate
    shape: tuple[int, int]

    def look(self, sums, rng):
        """A participation matrix, or None."""
        raise NotImplementedError

    def answer(self, session, files, watch):
        sums = self.honest.sums.array(files[0])
        try:
            found = self.look(sums, np.random.default_rng(self.honest.seed))
        except OSError as error:
            return {}, {"refused": type(error).__name__}
        return ({} if found is None else {"participation": np.array(found, dtype=np.uint8)}), {}


class FromTheGenerator(Cheat):
    """The entropy of the attack's generator was the scenario's seed, from which the schedule is drawn."""

    def look(self, sums, rng):
        entropy = rng.bit_generator.seed_seq.entropy
        drawn = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(4,)))
        return drawn.random(self.shape) < 0.3


class FromTheCohortSizes(Cheat):
    """Small seeds can be tried, and the published sizes of cohorts tell which one is right."""

    def look(self, sums, rng):
        sizes = self.honest.view.transcript.cohort_sizes
        for seed in range(2000):
            drawn = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4,)))
            P = drawn.random(self.shape) < 0.3
            if (P.sum(axis=1) == sizes).all():
                return P
        return None


class FromTheFileName(Cheat):
    """A mapped array knew the path of its file, and the truth stands beside it."""

    def look(self, sums, rng):
        name = getattr(sums, "filename", None)
        return None if name is None else np.load(Path(name).parents[1] / TRUTH)


class FromTheMappedFiles(Cheat):
    """The operating system knows which file is mapped."""

    def look(self, sums, rng):
        maps = Path("/proc/self/maps").read_text()
        folders = {Path(m).parents[1] for m in re.findall(r"(/\S+/aggregates\.npy)", maps)}
        return np.load(folders.pop() / TRUTH) if folders else None


class FromTheFrames(Cheat):
    """The caller's caller may hold the world."""

    def look(self, sums, rng):
        frame = sys._getframe()
        while frame is not None:
            for value in frame.f_locals.values():
                found = self.in_(value)
                if found is not None:
                    return found
            frame = frame.f_back
        return None

    def in_(self, value):
        """The participation that a truth, or anything that has one, holds."""
        found = getattr(value, "participation", None)
        return found if getattr(found, "shape", None) == self.shape else None


class FromTheHeap(FromTheFrames):
    """The garbage collector knows every object of the process."""

    def look(self, sums, rng):
        found = (self.in_(value) for value in gc.get_objects() if type(value).__module__ != __name__)
        return next((P for P in found if P is not None), None)


class FromTheParentsMemory(Cheat):
    """Another process's memory can be opened by the same user."""

    def look(self, sums, rng):
        parent = next(
            int(line.split()[1])
            for line in Path(f"/proc/{os.getppid()}/status").read_text().splitlines()
            if line.startswith("PPid")
        )
        with Path(f"/proc/{parent}/mem").open("rb"):
            return np.ones(self.shape)


CHEATS = [
    FromTheGenerator,
    FromTheCohortSizes,
    FromTheFileName,
    FromTheMappedFiles,
    FromTheFrames,
    FromTheHeap,
    FromTheParentsMemory,
]
