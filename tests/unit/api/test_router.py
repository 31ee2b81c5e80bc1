"""Which endpoint answers which address."""

import pytest

from hourhand.api.answers import Answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.refusals import MethodNotAllowed, RouteNotFound
from hourhand.api.router import Router


async def handler(call: Call) -> Answer:
    return Answer(b"")


def endpoint(method: str, path: str) -> Endpoint:
    return Endpoint(method, path, handler, "tests", "one of the tests'")


ROUTER = Router(
    [
        endpoint("GET", "/"),
        endpoint("GET", "/jobs"),
        endpoint("POST", "/jobs"),
        endpoint("POST", "/jobs/batch"),
        endpoint("GET", "/jobs/{job_id}"),
        endpoint("DELETE", "/jobs/{job_id}"),
        endpoint("GET", "/jobs/{job_id}/runs/{run_id}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "found", "parameters"),
    [
        ("GET", "/", "/", {}),
        ("GET", "/jobs", "/jobs", {}),
        ("POST", "/jobs/", "/jobs", {}),
        ("POST", "/jobs/batch", "/jobs/batch", {}),
        ("GET", "/jobs/7", "/jobs/{job_id}", {"job_id": "7"}),
        ("DELETE", "/jobs/7/", "/jobs/{job_id}", {"job_id": "7"}),
        ("GET", "/jobs/a b/runs/é", "/jobs/{job_id}/runs/{run_id}", {"job_id": "a b", "run_id": "é"}),
    ],
)
def test_an_address_leads_to_its_endpoint(method: str, path: str, found: str, parameters: dict[str, str]) -> None:
    where, given = ROUTER.find(method, path)
    assert (where.method, where.path, dict(given)) == (method, found, parameters)


@pytest.mark.parametrize("path", ["/job", "/jobs/7/runs", "/jobs//runs/8", "/jobs/7/runs/8/9", "//jobs", "/JOBS"])
def test_an_address_that_nobody_has_is_not_found(path: str) -> None:
    with pytest.raises(RouteNotFound):
        ROUTER.find("GET", path)


def test_a_method_that_is_not_possible_is_told_those_that_are() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        ROUTER.find("PUT", "/jobs/7")
    assert refused.value.allowed == ["DELETE", "GET"]
    assert ROUTER.methods_at("/jobs") == ["GET", "POST"]


def test_a_path_that_is_there_as_it_stands_goes_before_one_with_a_parameter() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        ROUTER.find("GET", "/jobs/batch")
    assert refused.value.allowed == ["POST"]


def test_no_two_endpoints_share_an_address() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Router([endpoint("GET", "/jobs"), endpoint("GET", "/jobs")])
