# One static binary and nothing else: no shell, no libc, no root.
# scripts/image puts the build context together: it needs the binary, and six
# empty directories, which a version control system doesn't keep.
FROM scratch
COPY gateway /gateway
# A new named volume takes its owner from the directory it is mounted on, so
# that the gateway can write to it without ever being root.
COPY --chown=1000:1000 data/ /data/
USER 1000:1000
EXPOSE 9000
HEALTHCHECK --interval=5s --timeout=6s --start-period=10s --retries=3 CMD ["/gateway", "health"]
ENTRYPOINT ["/gateway"]
CMD ["server", "/data/disk{1...6}"]
