"""What live executors offer, as the API last heard it."""

from typing import Any

from hourhand.operations.offers import Offers


def executor(*needs: str, queues: tuple[str, ...] = ("default",), **more: Any) -> dict[str, Any]:
    return {"queues": list(queues), "offers": {"inline": list(needs)}, **more}


def test_what_some_executor_of_the_queue_offers_is_not_lacking() -> None:
    offers = Offers()
    offers.learn([executor("python:a"), executor("python:b", queues=("reports",)), executor("http", queues=("*",))])
    assert not offers.lack("default", "python:a")
    assert not offers.lack("reports", "python:b")
    assert not offers.lack("reports", "http")
    assert offers.lack("default", "python:b")
    assert offers.lack("default", "python:c")


def test_where_nobody_is_there_nothing_is_said_to_be_lacking() -> None:
    offers = Offers()
    assert not offers.lack("default", "python:a")
    offers.learn([executor("python:a")])
    offers.learn([])
    assert not offers.lack("default", "python:b")


def test_what_was_heard_last_counts_and_strange_facts_are_as_if_not_said() -> None:
    offers = Offers()
    offers.learn([executor("python:a")])
    alike = [executor("python:b", load=number) for number in range(3)]
    offers.learn([*alike, {}, {"queues": 7, "offers": "all"}])
    assert offers.lack("default", "python:a")
    assert not offers.lack("default", "python:b")
