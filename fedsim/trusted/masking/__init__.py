"""Secure aggregation by pairwise masks: the server receives masked vectors, and learns their sum.

The protocol is that of Bonawitz et al. (CCS 2017) with the additions of its section 6.2 against a server
that lies: signed keys, and a signed list of devices that delivered. In large cohorts devices draw few
neighbours, as in Bell et al. (CCS 2020, section 4). It runs over Flower messages, on primitives of the
`cryptography` package. `docs/secure-aggregation.md` lists the attacks that it withstands, and those that
remain.

Keys and seeds come from the operating system, as they must. Masks cancel exactly in integer arithmetic, so
sums do not depend on them, and the same scenario gives the same bytes.

From the bottom up: `fixed_point` (updates as integers), `masks`, `secret_sharing`, `keys`, `signatures`,
`letters` (sealed shares), `roster` (the signed keys of a cohort), `neighbours` (how many, with which
bounds), `enrolment` (long-term keys), `device_side` and `protocol` (the two parts of a round), and
`server_side` (summing flat updates with it).
"""

from fedsim.trusted.masking.settings import Masked

__all__ = ["Masked"]
