"""Files of a run through a whole Hourhand: from the job to the disk of whoever asks."""

import hashlib
import subprocess
from pathlib import Path

from harness import HOURHAND, Up, clean_environment

LEAVES = """
mkdir "$HOURHAND_OUTPUT_DIR/deep"
printf 'all well' > "$HOURHAND_OUTPUT_DIR/report.txt"
head -c 5000000 /dev/zero > "$HOURHAND_OUTPUT_DIR/deep/large.bin"
ln -s /etc/passwd "$HOURHAND_OUTPUT_DIR/passwd"
"""


def test_files_of_a_command_are_listed_and_downloaded(running: Up, tmp_path: Path) -> None:
    client = running.client()
    job = client.create_job(name="leaves files", kind="command", payload={"argv": ["sh", "-c", LEAVES]})
    run = client.wait_for_job(job.job_id, 60)
    assert run.status == "succeeded", run.error

    found = client.run_files(run.run_id)
    assert [(file.name, file.size) for file in found.files] == [("deep/large.bin", 5_000_000), ("report.txt", 8)]
    assert found.files[1].digest == f"sha256:{hashlib.sha256(b'all well').hexdigest()}"
    assert "'passwd' is not kept: it is a symbolic link" in [line.text for line in client.run_logs(run.run_id).lines]

    environment = clean_environment(HOURHAND_SERVER=running.url, HOURHAND_TOKEN=running.token)
    done = subprocess.run(
        [*HOURHAND, "run", "download", str(run.run_id), "--to", str(tmp_path / "got")],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / "report.txt").read_text() == "all well"
    assert (tmp_path / "got" / "deep" / "large.bin").stat().st_size == 5_000_000
    part = running.http().get(f"/api/v1/runs/{run.run_id}/files/report.txt", headers={"Range": "bytes=4-"})
    assert (part.status_code, part.content) == (206, b"well")
