"""What can be set about the storage of blobs."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BlobSettings:
    url: str | None = None
    """Where large results, files of runs, uploaded code and old logs are kept: `file:///folder` or `s3://bucket/prefix`.
    None: the folder `blobs` in the home. Nodes on several machines need a place that all of them reach."""
    endpoint: str | None = None
    """The address of an S3-compatible server (`https://host:port`); None: Amazon's own."""
    region: str | None = None
    """The region of the bucket; None: that of `AWS_REGION`, else us-east-1."""
    access_key_id: str | None = None
    """None: `AWS_ACCESS_KEY_ID`, a profile of the machine or its role."""
    secret_access_key: str | None = field(default=None, repr=False)
    """Belongs to the access key; None as above. Better in a file that only this user reads."""
    insecure_http: bool = False
    """True lets an endpoint be plain HTTP on another machine: whoever listens in reads every blob."""
    timeout_seconds: float = 30.0
    """How long one request to object storage, of at most 8 MiB, may take with all its repetitions."""
