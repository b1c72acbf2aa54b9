# An image like the one of `make dist`, built by a builder of containers: `docker build -t headgate .`
# The release in the module files is what builds it; another one is fetched if need be.
ARG GO_VERSION=1.26.11

FROM golang:${GO_VERSION}-bookworm AS build
WORKDIR /src
COPY . .
ENV CGO_ENABLED=0 GOTOOLCHAIN=auto GOFLAGS=-trimpath
RUN mkdir -p /out/etc /out/tmp /out/usr/bin /out/var/lib/headgate && chmod 1777 /out/tmp && chmod 0777 /out/var/lib/headgate
RUN printf 'headgate:x:65532:65532:headgate:/var/lib/headgate:/sbin/nologin\n' >/out/etc/passwd && printf 'headgate:x:65532:\n' >/out/etc/group
RUN cd server && go build -buildvcs=auto -ldflags='-s -w' -o /out/usr/bin/headgate ./cmd/headgate

# Nothing else: no shell, no package manager. It needs no file system that can be written to but its volume, and no rights.
FROM scratch
COPY --from=build /out/ /
USER 65532:65532
WORKDIR /var/lib/headgate
VOLUME /var/lib/headgate
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/headgate"]
CMD ["serve", "--config", "/etc/headgate/headgate.yaml"]
