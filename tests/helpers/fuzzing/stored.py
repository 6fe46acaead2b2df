"""Valid files of what servers store: models, recordings of taps, and who took part."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np

from tests.helpers.fuzzing.kind import Files, Kind, saved
from tests.helpers.superlink_database import write_database


def models_of_rounds(rng: np.random.Generator) -> Files:
    """Checkpoints in every format, one per round."""
    import torch

    models = [rng.normal(size=(3, 4)).astype(np.float32) for _ in range(8)]
    header = json.dumps({"weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}}).encode()
    tensors = io.BytesIO()
    torch.save({"weight": torch.from_numpy(models[2])}, tensors)
    return {
        "models/0.npz": saved(np.savez, weight=models[0]),
        "models/1.safetensors": len(header).to_bytes(8, "little") + header + models[1].tobytes(),
        "models/2.pt": tensors.getvalue(),
    } | {f"models/{n}.npz": saved(np.savez, weight=models[n]) for n in range(3, 8)}


def record_taps(folder: Path) -> None:
    """What a tap writes that records sums, and one that records models."""
    from flwr.serverapp.strategy import FedAvg

    from fedsim import Tap
    from tests.helpers.foreign_app import foreign_grid, initial_arrays

    for rows in ("sum", "model"):
        tap = Tap(FedAvg(fraction_train=0.5), out=folder / rows, window=4, record=rows)
        random.seed(3)  # Flower samples with the global generator
        tap.start(foreign_grid(4), initial_arrays(), num_rounds=12)


def participation_kinds(
    folder: Path, tables: Files, P: np.ndarray, command: tuple[str, ...]
) -> tuple[Kind, ...]:
    """What is known of P (rounds, clients), in the files of other systems."""
    write_database(folder / "state.db", P, rounds=range(3))
    table = "round,client,took_part\n" + "".join(
        f"{r},c{k},{int(P[r, k])}\n" for r in range(3) for k in range(P.shape[1])
    )
    metrics = "".join(
        json.dumps({"round": r, "sites": [{"name": f"c{k}", "metrics": []} for k in np.flatnonzero(P[r])]})
        + "\n"
        for r in range(3)
    )
    tasks = "".join(
        f"[E:{t}][R:x][T:2026-01-01 10:00:00][S:?][J:job][A:train#{t}]received task from server\n"
        for t in range(int(P[:, 0].sum()))
    )
    flare = {"flare/server/round_metrics.jsonl": metrics.encode(), "flare/c0/job/audit.log": tasks.encode()}
    return (
        Kind(
            "participations",
            tables | {"known.csv": table.encode()},
            ("known.csv",),
            (*command, "--participation", "known.csv"),
        ),
        Kind(
            "SuperLink database",
            tables | {"state.db": (folder / "state.db").read_bytes()},
            ("state.db",),
            (*command, "--superlink", "state.db"),
        ),
        Kind("FLARE files", tables | flare, tuple(flare), (*command, "--flare", "flare")),
    )
