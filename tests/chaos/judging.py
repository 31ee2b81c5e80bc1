"""How the tests of the checker ask what it thinks of a story."""

from tests.chaos.invariants import check_all
from tests.chaos.sample_history import Story


def assert_accepted(story: Story, *numbers: int) -> None:
    """No promise is broken, and these were put to the test."""
    found = check_all(story.history())
    assert {number: findings.violations for number, findings in found.items() if findings.violations} == {}
    assert {number: found[number].status for number in numbers} == dict.fromkeys(numbers, "ok")


def assert_caught(story: Story, *numbers: int) -> None:
    """Exactly these promises are broken."""
    found = check_all(story.history())
    broken = {number: findings.violations for number, findings in found.items() if findings.violations}
    assert set(broken) == set(numbers), broken
