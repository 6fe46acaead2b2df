# fedsim in a container. Build it in the folder of the sources:
#
#     docker build -t fedsim .
#     docker run --rm -v fedsim-runs:/work/runs fedsim run quickstart
#
# Linux (x86_64). The image has the versions of the lock, those of the developers' tools included.

FROM python:3.11-slim AS build

# Where pip finds the CPU build of torch. Without it, PyPI's build is installed, with several GB of CUDA packages:
#     docker build --build-arg PIP_EXTRA_INDEX_URL=… -t fedsim .
ARG PIP_EXTRA_INDEX_URL=

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY locks locks
COPY fedsim fedsim
COPY analytics analytics
COPY attacks attacks
COPY scenarios scenarios

RUN python -m venv /opt/fedsim \
    && pip="/opt/fedsim/bin/python -m pip --no-cache-dir" \
    && locked="$pip install --no-deps --require-hashes --requirement" \
    && $locked locks/packages.txt \
    && { $locked locks/torch-cpu.txt || $locked locks/torch.txt; } \
    && $pip install --no-deps --no-build-isolation . \
    && $pip check

FROM python:3.11-slim

# One thread per process is fastest for small matrices, and results are the same on every machine.
ENV PATH=/opt/fedsim/bin:$PATH \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    PYTHONUNBUFFERED=1 \
    FLWR_TELEMETRY_ENABLED=0

RUN useradd --create-home --uid 1000 fedsim \
    && mkdir -p /work/runs \
    && chown -R fedsim:fedsim /work

COPY --from=build /opt/fedsim /opt/fedsim

USER fedsim
WORKDIR /work
VOLUME ["/work/runs"]
ENTRYPOINT ["fedsim"]
CMD ["--help"]
