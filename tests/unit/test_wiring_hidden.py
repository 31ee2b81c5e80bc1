from pathlib import Path

from hourhand.config import load_config
from hourhand.wiring_hidden import hidden_from_programs


def hidden(tmp_path: Path, file: str = "", **environ: str) -> list[Path]:
    (tmp_path / "etc").mkdir(exist_ok=True)
    (tmp_path / "etc" / "hourhand.toml").write_text(file)
    given = {"HOURHAND_HOME": str(tmp_path / "home"), "HOURHAND_CONFIG": str(tmp_path / "etc" / "hourhand.toml")}
    return hidden_from_programs(load_config(environ={**given, **environ}))


def test_programs_see_neither_the_home_nor_the_configuration_wherever_it_lies(tmp_path: Path) -> None:
    assert hidden(tmp_path) == [tmp_path / "home", tmp_path / "etc" / "hourhand.toml"]


def test_files_that_hold_a_secret_are_hidden(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://x:hush@db/x")
    assert secret in hidden(tmp_path, HOURHAND_DATABASE_URL_FILE=str(secret))
    assert tmp_path / "key" in hidden(tmp_path, f'[secrets]\nkey_file = "{tmp_path}/key"\n')


def test_a_folder_of_blobs_is_hidden_and_other_storage_is_none(tmp_path: Path) -> None:
    assert tmp_path / "my blobs" in hidden(tmp_path, f'[blobs]\nurl = "file://{tmp_path}/my%20blobs"\n')
    assert len(hidden(tmp_path, '[blobs]\nurl = "s3://bucket/x"\n')) == 2


def test_a_folder_of_sockets_is_hidden_if_it_is_for_us_alone(tmp_path: Path) -> None:
    for mode, is_hidden in ((0o700, True), (0o755, False)):
        sockets = tmp_path / f"sockets-{mode:o}"
        sockets.mkdir()
        sockets.chmod(mode)
        url = f"postgresql://x:y@/x?host={sockets}&port=5432"
        assert (sockets in hidden(tmp_path, HOURHAND_DATABASE_URL=url)) is is_hidden
    assert len(hidden(tmp_path, HOURHAND_DATABASE_URL="postgresql://x:y@db-1,db-2/x")) == 2


def test_what_lies_in_the_home_is_hidden_with_it(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("hush")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    url = f"file://{tmp_path}/link/blobs"
    assert hidden(tmp_path, f'[blobs]\nurl = "{url}"\n')[0] == tmp_path / "home"
    assert len(hidden(tmp_path, f'[blobs]\nurl = "{url}"\n')) == 2
