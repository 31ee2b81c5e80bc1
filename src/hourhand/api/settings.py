"""What the API can be told."""

from dataclasses import dataclass
from typing import Final

TOKEN_CACHE_SECONDS_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class ApiSettings:
    host: str = "127.0.0.1"
    """Address the server binds. Anything but loopback is reachable by others."""
    port: int = 8420
    """Port the server binds."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names (without port) that a request's Host may carry; others are refused, which stops DNS rebinding."""
    public_url: str | None = None
    """Where people reach the server when it is behind a proxy ("https://jobs.example.com"); links are made from it."""
    body_bytes_max: int = 1 << 20
    """A larger body is refused while it is still being read."""
    batch_bytes_max: int = 64 << 20
    """The same for a batch of jobs; it is held in memory as a whole."""
    artifact_bytes_max: int = 256 << 20
    """The same for an upload of code; it is written to disk as it comes and never held in memory."""
    bodies_bytes_max: int = 128 << 20
    """All bodies in hand at one time; further requests are refused with 503 and asked to come back. What is made of a
    body takes several times its size."""
    batch_items_max: int = 100_000
    """Jobs per batch; they are stored in one transaction."""
    body_seconds_max: float = 30.0
    """How long a caller may take to send its body before the request is given up."""
    url_bytes_max: int = 8 << 10
    """Longer addresses are refused."""
    header_bytes_max: int = 32 << 10
    """More header bytes than this are refused."""
    token_cache_seconds: float = 3.0
    """How long a revoked token may still be taken for valid by this node; more than 5 counts as 5."""
    token_cache_max: int = 10_000
    """Tokens remembered at once; the least recently used go first."""
    login_failures_max: int = 5
    """Wrong login codes per address and minute; further tries wait."""
    connections_max: int = 4096
    """Connections that this node holds at once; further ones wait at the door. Those that send no request for half a
    minute are closed. Each is an open file: the limit of files is raised as far as the machine allows."""
    streams_max: int = 200
    """Live streams that this node carries at once; further ones are refused with 503 and asked to come back."""
