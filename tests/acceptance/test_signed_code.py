"""Signed code through a whole Hourhand: who has no key can upload nothing that is run (row 163)."""

import subprocess
from pathlib import Path

from harness import HOURHAND, Up, clean_environment


def test_only_code_that_a_trusted_key_has_signed_is_uploaded_and_run(tmp_path: Path) -> None:
    script, key = tmp_path / "hello.sh", tmp_path / "release.pem"
    script.write_text("#!/bin/sh\necho trusted\n")
    made = subprocess.run(
        [*HOURHAND, "artifact", "make-key", str(key)], capture_output=True, text=True, timeout=60, check=True
    )
    settings = {
        "HOURHAND_KINDS_ARTIFACT_KEYS": made.stdout.strip(),
        "HOURHAND_KINDS_REQUIRE_SIGNED_ARTIFACTS": "true",
    }
    with Up(tmp_path / "up", environment=settings) as up:
        environment = clean_environment(HOURHAND_SERVER=up.url, HOURHAND_TOKEN=up.token)

        def ask(*words: str) -> subprocess.CompletedProcess[str]:
            command = [*HOURHAND, *words]
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

        def upload(*options: str) -> subprocess.CompletedProcess[str]:
            return ask("artifact", "upload", str(script), *options)

        unsigned = upload()
        assert (unsigned.returncode, unsigned.stdout) == (77, "")
        assert "is not signed" in unsigned.stderr
        signed = upload("--sign-with", str(key))
        assert signed.returncode == 0, signed.stderr
        renamed = upload("--name", "other.sh", "--sign-with", str(key))
        assert renamed.returncode == 0, "it is signed under the name that it is given"
        with up.client() as client:
            assert client.get_artifact("hello.sh").signed_by == client.get_artifact("other.sh").signed_by is not None
            job = client.create_job(name="x", kind="script", payload={"artifact": "hello.sh"}, max_retries=0)
            ended = client.wait_for_job(job.job_id, 60)
            assert ended.status == "succeeded", ended.error
            said = [line.text for line in client.log_lines(ended.run_id) if line.stream == "stdout"]
        at_once = ask(
            "job", "create", "y", "--script", str(script), "--sign-with", str(key), "--wait", "--follow", "--", "a"
        )
        assert at_once.returncode == 0, at_once.stderr
        assert "trusted" in at_once.stdout
    assert said == ["trusted"]


def test_signatures_that_are_required_of_nobody_keep_hourhand_from_starting(tmp_path: Path) -> None:
    settings = {"HOURHAND_KINDS_REQUIRE_SIGNED_ARTIFACTS": "true", "HOURHAND_HOME": str(tmp_path)}
    done = subprocess.run(
        [*HOURHAND, "config", "check"],
        env=clean_environment(**settings), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 78
    assert "kinds.require_signed_artifacts needs kinds.artifact_keys" in done.stderr + done.stdout
