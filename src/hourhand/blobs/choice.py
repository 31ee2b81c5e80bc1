"""Which storage a URL stands for."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from hourhand.blobs.folder import FolderBlobs
from hourhand.blobs.settings import BlobSettings
from hourhand.ports.blobs import Blobs


def blobs_for(settings: BlobSettings, home: Path) -> Blobs:
    """The storage that the settings name; nothing is asked of it yet."""
    if settings.url is None:
        return FolderBlobs(home / "blobs")
    parts = urlsplit(settings.url)
    if parts.scheme == "file":
        return FolderBlobs(Path(unquote(parts.path)))
    from hourhand.blobs.objects import ObjectBlobs  # a large library that only object storage needs

    return ObjectBlobs(settings)
