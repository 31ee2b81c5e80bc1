import pytest

from hourhand.job_kinds import samples
from hourhand.job_kinds.registry import KindSettings, kinds_for_running
from hourhand.model.outcome import Succeeded


@pytest.fixture
async def kind():
    kind = kinds_for_running(KindSettings(handler_modules=("hourhand.job_kinds.samples",)))["python"]
    await kind.open()
    yield kind
    await kind.close()


async def test_hello_logs_and_greets(kind, make_task):
    logged = make_task({"handler": "demo.hello", "name": "Ada"})
    assert (await kind.run(logged.task)).result["greeting"] == "Hello, Ada!"
    assert logged.of("log") == ["saying hello to Ada"]


async def test_flaky_fails_first_and_succeeds_later(kind, make_task):
    outcome = await kind.run(make_task({}, job_name="demo.flaky").task)
    assert outcome.error.startswith("ConnectionError: attempt 1")
    assert await kind.run(make_task({}, job_name="demo.flaky", attempt=2).task) == Succeeded({"attempts": 2})


async def test_crunch_prints_its_progress(kind, make_task):
    logged = make_task({"handler": "demo.crunch", "seconds": 0.1})
    assert (await kind.run(logged.task)).result["primes"] > 0
    assert logged.of("stdout")[0].startswith("10 %")


async def test_noop_leaves_a_witness_of_every_call(kind, make_task, monkeypatch, tmp_path):
    witness = tmp_path / "witness"
    monkeypatch.setenv("HOURHAND_BENCH_WITNESS", str(witness))
    monkeypatch.setattr(samples, "_witness", None)
    task, _ = make_task({"handler": "bench.noop"}, attempt=2)
    for _ in range(2):
        assert await kind.run(task) == Succeeded(None)
    lines = witness.read_text().splitlines()
    assert len(lines) == 2
    run_id, attempt, micros = lines[0].split()
    assert (run_id, attempt) == (str(task.run_id), "2")
    assert int(micros) > 1_700_000_000_000_000


async def test_noop_without_a_witness_does_nothing(kind, make_task, monkeypatch):
    monkeypatch.delenv("HOURHAND_BENCH_WITNESS", raising=False)
    monkeypatch.setattr(samples, "_witness", None)
    assert await kind.run(make_task({}, job_name="bench.noop").task) == Succeeded(None)


async def test_wait_leaves_a_witness_at_both_ends(kind, make_task, monkeypatch, tmp_path):
    witness = tmp_path / "witness"
    monkeypatch.setenv("HOURHAND_BENCH_WITNESS", str(witness))
    monkeypatch.setattr(samples, "_witness", None)
    task, _ = make_task({"handler": "bench.wait", "seconds": 0.0})
    assert await kind.run(task) == Succeeded(None)
    begun, ended = [line.split() for line in witness.read_text().splitlines()]
    assert begun[0] == ended[0] == str(task.run_id)
    assert (len(begun), ended[3]) == (3, "end")


async def test_an_ordinary_day_s_job_logs_as_much_as_asked_and_fails_when_told(make_task, monkeypatch):
    monkeypatch.delenv("HOURHAND_BENCH_WITNESS", raising=False)
    monkeypatch.setattr(samples, "_witness", None)
    kind = kinds_for_running(KindSettings(handler_modules=("hourhand.bench.day_job",)))["python"]
    await kind.open()
    try:
        logged = make_task({"handler": "bench.day", "log_bytes": 5120, "fails": True, "note": "x"})
        assert (await kind.run(logged.task)).error.startswith("RuntimeError: this job was told to fail")
        assert sum(len(line) + 1 for line in logged.of("log")) == 5120
    finally:
        await kind.close()
