# syntax=docker/dockerfile:1

FROM rust:1.95-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake libsasl2-dev libcurl4-openssl-dev libssl-dev pkg-config \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked \
 && cp target/release/blobfeed /usr/local/bin/blobfeed

FROM debian:bookworm-slim
# Kerberos (GSSAPI) is a plug-in of libsasl2; the other SASL mechanisms are librdkafka's own.
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates libsasl2-2 libsasl2-modules-gssapi-mit libssl3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /var/lib/blobfeed --create-home blobfeed
COPY --from=build /usr/local/bin/blobfeed /usr/local/bin/blobfeed
USER blobfeed
WORKDIR /var/lib/blobfeed
EXPOSE 9464
# Bash opens the connection itself: the image holds no http client.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9464 && printf 'GET /livez HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && read -r -t 4 _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["blobfeed"]
CMD ["run", "/etc/blobfeed/plan.toml"]
