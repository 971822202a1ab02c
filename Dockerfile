# The images of operator and lane, where there is Docker (images/build.py makes them without):
#   docker build --target operator --tag localhost/lanekeeper-operator:dev .
#   docker build --target worker --tag localhost/lanekeeper-worker:dev .
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# Static programs need nothing else in their image. --target keeps the flag away from build scripts and macros,
# which must stay dynamic.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    set -eu; target="$(rustc -vV | sed -n 's/^host: //p')"; \
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release --target "$target" \
      -p lanekeeper-operator -p lanekeeper-worker; \
    cp "target/$target/release/lanekeeper-operator" "target/$target/release/lanekeeper-worker" /
# For servers whose certificate a public authority has signed.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates

FROM scratch AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# A number, because `runAsNonRoot` refuses a user known by name only.
USER 65532:65532

FROM base AS operator
COPY --from=build /lanekeeper-operator /
EXPOSE 9798
ENTRYPOINT ["/lanekeeper-operator"]

FROM base AS worker
COPY --from=build /lanekeeper-worker /
EXPOSE 9797
ENTRYPOINT ["/lanekeeper-worker"]
