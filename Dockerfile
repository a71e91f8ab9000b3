# The command alone, for the endpoint: see docs/endpoint.md.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /chainsieve
COPY . .
RUN cargo build --release --locked -p chainsieve-cli

FROM debian:bookworm-slim
RUN useradd --system --create-home --home-dir /data chainsieve
COPY --from=build /chainsieve/target/release/chainsieve /usr/local/bin/chainsieve
USER chainsieve
WORKDIR /data
VOLUME /data
EXPOSE 8546
ENTRYPOINT ["chainsieve"]
