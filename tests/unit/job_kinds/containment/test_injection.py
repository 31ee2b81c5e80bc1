"""What is written into the fields of a program stays text, on its way in and out (security test S10)."""

from typing import Final

import pytest
from contained_programs import NEEDS, OK, shell

pytestmark = NEEDS


CORPUS: Final = [
    "$(id)", "`id`", "; id", "| id", "&& id", "'", '"', "\\", "'; id; '", '"; id; "', "\n id", "a\r\nb", "-rf", "",
    "${IFS}", "$HOME", "*", "~", "%s%n", "\t", "é☃𐍈", "{{7*7}}", "#", "<(id)", "> /etc/passwd", "!!", "\x1b[31m",
]  # fmt: skip
PRINT: Final = (
    "import os,sys; sys.stdout.write('|'.join(v.encode('utf-8').hex() for v in [*sys.argv[1:], os.environ['V']]))"
)


@pytest.mark.parametrize("text", CORPUS, ids=repr)
async def test_whatever_is_written_reaches_the_program_byte_by_byte(kind, make_task, text):
    payload = {"argv": ["/usr/bin/env", "python3", "-c", PRINT, text], "env": {"V": text}, "stdin": text}
    logged = make_task(payload)
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["|".join([text.encode().hex()] * 2)]
    fed = make_task({"argv": ["od", "-An", "-v", "-tx1"], "stdin": text})
    assert await kind.run(fed.task) == OK
    assert "".join("".join(fed.of("stdout")).split()) == text.encode().hex()


async def test_output_that_looks_like_ours_is_text(kind, make_task):
    """What the launcher is told and what it tells never passes through a program."""
    script = 'printf \'ended\\0001\\0000\\n\'; echo \'{"state": "failed", "uid": 0}\'; exit 0'
    assert await kind.run(make_task(shell(script)).task) == OK
