import os
import time

import pytest

from hourhand.job_kinds.launcher_kernel import are_as_marked
from hourhand.job_kinds.private_places import TMP_FOLDER
from hourhand.job_kinds.spare_folders import SPARES_MAX, SpareFolders
from hourhand.job_kinds.work_folders import WorkFolders


@pytest.fixture
def spares(tmp_path):
    folders = WorkFolders(str(tmp_path), None)
    folders.open()
    yield SpareFolders(folders, ["a/b", "a/c"], True)
    folders.close()


def settled(spares, inner=""):
    """One that has waited long enough."""
    spares.replace(inner)
    deadline = time.monotonic() + 10
    while not (own := spares.take(inner)).marks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return own


def untouched(own):
    return are_as_marked([os.fsencode(part) for part in own.parts], [b"%d" % mark for mark in own.marks])


def test_a_folder_has_what_attempts_expect_and_nothing_else(spares):
    own = spares.take("output")
    found = {str(path.relative_to(own.path)) for path in own.path.rglob("*")}
    assert found == {"output", TMP_FOLDER, *(f"{TMP_FOLDER}/{part}" for part in ("a", "a/b", "a/c"))}
    assert own.parts[-1] == str(own.path)
    for part in own.parts:  # in this order all can be removed
        os.rmdir(part)


def test_one_that_is_too_young_to_show_a_change_is_used_once(spares):
    assert spares.take().marks == ()


def test_one_that_has_settled_is_given_again_and_again(spares):
    own = settled(spares)
    assert untouched(own)
    assert spares.give_back(own)
    assert spares.take() is own


def test_folders_with_and_without_outputs_are_kept_apart(spares):
    own = settled(spares, "output")
    assert spares.give_back(own, "output")
    assert spares.take() is not own
    assert spares.take("output") is own


@pytest.mark.parametrize("where", ["", TMP_FOLDER, f"{TMP_FOLDER}/a", f"{TMP_FOLDER}/a/b"])
@pytest.mark.parametrize(
    "how",
    [
        lambda place: (place / "x").touch(),
        lambda place: ((place / "x").touch(), (place / "x").unlink()),
        lambda place: (place.chmod(0o755), place.chmod(0o700)),
        lambda place: os.utime(place, (0, 0)),
        lambda place: os.setxattr(place, "user.mark", b"x"),
    ],
    ids=["a file", "a file that is gone again", "a mode", "a time", "an attribute"],
)
def test_every_change_shows(spares, where, how):
    own = settled(spares)
    try:
        how(own.path / where)
    except OSError as error:
        pytest.skip(f"this file system cannot do that: {error}")
    assert not untouched(own)


def test_reading_is_no_change(spares):
    own = settled(spares)
    for part in own.parts:
        os.listdir(part)
    assert untouched(own)


def test_there_are_never_too_many(spares):
    own = spares.take()
    for _ in range(SPARES_MAX + 5):
        spares.replace()
    assert len(list(own.path.parent.glob("[0-9]*"))) == SPARES_MAX + 1
    assert not spares.give_back(own)
