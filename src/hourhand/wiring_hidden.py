"""What of an installation no program may see that a job starts, whatever the modes of these files are."""

import os
import stat
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from hourhand.config import Config
from hourhand.database.servers import servers_of
from hourhand.runtime.keyring import keyring_of


def hidden_from_programs(config: Config) -> list[Path]:
    """The home, and what belongs to it but lies elsewhere: configuration, keys, blobs, the socket of the database."""
    places = [config.home, *config.files, keyring_of(config).path]
    if config.blobs.url is not None and (parts := urlsplit(config.blobs.url)).scheme == "file":
        places.append(Path(unquote(parts.path)))
    places += _private_sockets(config.database.url)
    real = [Path(os.path.realpath(place)) for place in dict.fromkeys(places)]
    return [place for place in dict.fromkeys(real) if not _is_below(place, real)]


def _private_sockets(url: str | None) -> list[Path]:
    """Folders of sockets that are for us alone: that of our own server, which may be too far down in the home. One that
    others use too is left to them; what is in it asks for a password, or who they are."""
    found = []
    for server in servers_of(url or ""):
        for host in parse_qs(urlsplit(server).query).get("host", ()):
            facts = os.stat(host) if host.startswith("/") and os.path.isdir(host) else None
            if facts is not None and facts.st_uid == os.geteuid() and not stat.S_IMODE(facts.st_mode) & 0o077:
                found.append(Path(host))
    return found


def _is_below(place: Path, others: list[Path]) -> bool:
    """What lies in another one is hidden with it, and could not be found any more to be hidden itself."""
    return any(other in place.parents for other in others)
