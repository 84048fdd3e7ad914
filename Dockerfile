# One image for the collector, the dashboard and the demo's services; compose.yaml says which one a container is.
# Another base (a mirror, a hardened image, another Python >= 3.11): docker build --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /source
COPY pyproject.toml README.md hatch_build.py ./
COPY instrumentation instrumentation
COPY collector collector
COPY analyzer analyzer
COPY dashboard dashboard
RUN python -m venv /opt/tailscope && /opt/tailscope/bin/pip install --no-cache-dir '.[all]'

FROM ${BASE_IMAGE}
RUN useradd --create-home --uid 10001 tailscope && mkdir /data && chown tailscope /data
COPY --from=build /opt/tailscope /opt/tailscope
ENV PATH=/opt/tailscope/bin:$PATH PYTHONUNBUFFERED=1
USER tailscope
WORKDIR /home/tailscope
VOLUME /data
EXPOSE 4317 4318 8501 8000 8100
ENTRYPOINT ["tailscope"]
# Refused until it is told who may come: give --ingest-token-file and --query-token-file (docs/security.md), or
# --allow-unauthenticated where the network keeps others out, as compose.yaml does.
CMD ["serve", "--data", "/data", "--host", "0.0.0.0"]
