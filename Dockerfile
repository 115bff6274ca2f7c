# legwork with what its sandbox and its tools need: docker build --tag legwork .
#
# The binary is built here, static; `--build-arg PROFILE=release` builds it in a third of the time, and larger.
FROM rust:1.95-alpine3.22 AS build
# hadolint ignore=DL3018
RUN apk add --no-cache gcc musl-dev
WORKDIR /source
COPY Cargo.toml Cargo.lock build.rs ./
COPY src src
COPY benches benches
COPY tests/main.rs tests/main.rs
ARG PROFILE=dist
ARG LEGWORK_COMMIT=
RUN cargo build --locked --profile "$PROFILE" --bin legwork && cp "target/$PROFILE/legwork" /legwork

FROM debian:13-slim
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bash bubblewrap ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 legwork
COPY --from=build /legwork /usr/local/bin/legwork
USER 1000
WORKDIR /workspace
ENTRYPOINT ["legwork"]
