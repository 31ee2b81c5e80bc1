"""What may start now and what must wait: never more than a limit, never faster than a rate, in the order given."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model.gates import SLICES, Candidate, Gate, Starts, Verdict, admit, next_start, slice_of
from hourhand.model.policy import Rate

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
NEVER_FULL = 10**6

rates = st.builds(Rate, st.integers(1, 20), st.sampled_from([0.001, 0.5, 1.0, 7.3, 60.0, 3600.0, 86_400.0]))
limits = st.none() | st.integers(0, 5)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def some(*gate_ids: tuple[int, ...]) -> list[Candidate]:
    return [Candidate(UUID(int=number), ids) for number, ids in enumerate(gate_ids)]


def by_number(*gates: Gate) -> dict[int, Gate]:
    return {gate.gate_id: gate for gate in gates}


def numbers(verdict: Verdict) -> list[int]:
    return [run_id.int for run_id in verdict.admitted]


candidates = st.lists(st.sets(st.integers(1, 4), max_size=3).map(lambda ids: tuple(sorted(ids))), max_size=30).map(
    lambda lists: some(*lists)
)
gate_sets = st.lists(st.tuples(limits, st.integers(0, 6), st.none() | rates), min_size=1, max_size=4).map(
    lambda rows: by_number(*(Gate(number, *row) for number, row in enumerate(rows, 1)))
)

# --- places -----------------------------------------------------------------------------------------------


def test_a_run_without_gates_is_let_through() -> None:
    assert numbers(admit(some((), ()), {}, {0: 10}, NOW)) == [0, 1]


def test_a_gate_that_nobody_knows_holds_nobody_up() -> None:
    assert numbers(admit(some((9,)), {}, {0: 10}, NOW)) == [0]


def test_what_does_not_fit_waits_on_the_gate_that_is_full() -> None:
    verdict = admit(some((1,), (1,), (1,)), by_number(Gate(1, capacity=3, held=1)), {0: 10}, NOW)
    assert numbers(verdict) == [0, 1]
    assert verdict.waiting == [(UUID(int=2), 1)]
    assert verdict.gates[1].held == 3


def test_a_limit_of_nothing_lets_nobody_through() -> None:
    verdict = admit(some((1,)), by_number(Gate(1, capacity=0)), {0: 10}, NOW)
    assert (verdict.admitted, verdict.waiting) == ([], [(UUID(int=0), 1)])


def test_a_run_that_one_of_its_gates_stops_takes_no_place_in_the_others() -> None:
    gates = by_number(Gate(1, capacity=1), Gate(2, capacity=1, held=1))
    verdict = admit(some((1, 2), (1,)), gates, {0: 10}, NOW)
    assert numbers(verdict) == [1]
    assert verdict.waiting == [(UUID(int=0), 2)]
    assert verdict.gates[1].held == 1


def test_beyond_the_places_only_those_that_must_wait_anyway_are_judged() -> None:
    verdict = admit(some((), (1,), ()), by_number(Gate(1, capacity=0)), {0: 1}, NOW)
    assert (numbers(verdict), verdict.waiting, verdict.later) == ([0], [(UUID(int=1), 1)], [])


def test_every_share_has_places_of_its_own() -> None:
    asking = [Candidate(UUID(int=number), (), share=number % 2) for number in range(6)]
    assert numbers(admit(asking, {}, {0: 1, 1: 2}, NOW)) == [0, 1, 3]


@given(candidates, gate_sets, st.integers(0, 20))
def test_no_gate_is_held_by_more_than_its_capacity(
    asking: list[Candidate], gates: Mapping[int, Gate], places: int
) -> None:
    verdict = admit(asking, gates, {0: places}, NOW)
    assert len(verdict.admitted) <= places
    through = set(verdict.admitted)
    for gate in gates.values():
        came = sum(candidate.run_id in through and gate.gate_id in candidate.gate_ids for candidate in asking)
        after = verdict.gates[gate.gate_id]
        assert after.held == gate.held + came
        assert not came or gate.capacity is None or after.held <= gate.capacity
        assert not came or gate.rate is None or sum(after.starts.counts) <= gate.rate.count


@given(candidates, gate_sets, st.integers(0, 20))
def test_each_candidate_is_in_one_place_of_the_verdict_at_most_and_in_the_order_given(
    asking: list[Candidate], gates: Mapping[int, Gate], places: int
) -> None:
    verdict = admit(asking, gates, {0: places}, NOW)
    judged = [*verdict.admitted, *(row[0] for row in verdict.waiting), *(row[0] for row in verdict.later)]
    assert len(judged) == len(set(judged))
    left = {candidate.run_id for candidate in asking} - set(judged)
    assert not left or len(verdict.admitted) == places
    for row in (judged[: len(verdict.admitted)], [r[0] for r in verdict.waiting], [r[0] for r in verdict.later]):
        assert row == sorted(row)


@given(candidates, gate_sets, st.integers(0, 20))
def test_nobody_waits_on_a_gate_that_has_room(asking: list[Candidate], gates: Mapping[int, Gate], places: int) -> None:
    verdict = admit(asking, gates, {0: places}, NOW)
    gates_of = {candidate.run_id: candidate.gate_ids for candidate in asking}
    for run_id, gate_id in verdict.waiting:
        assert gate_id in gates_of[run_id]
        assert not verdict.gates[gate_id].has_place(run_id)
    for run_id, gate_id, ready_at in verdict.later:
        assert gate_id in gates_of[run_id]
        assert ready_at > NOW


# --- rates ------------------------------------------------------------------------------------------------


def test_a_rate_lets_so_many_start_and_gives_the_others_a_later_time() -> None:
    verdict = admit(some((1,), (1,), (1,)), by_number(Gate(1, rate=Rate(2, 60))), {0: 10}, NOW)
    assert numbers(verdict) == [0, 1]
    [(run_id, gate_id, ready_at)] = verdict.later
    assert (run_id.int, gate_id) == (2, 1)
    assert later(60) <= ready_at <= later(62)


def test_those_a_rate_delays_are_given_times_one_after_the_other() -> None:
    verdict = admit(some(*[(1,)] * 7), by_number(Gate(1, rate=Rate(2, 60))), {0: 10}, NOW)
    waits = [round((ready_at - NOW).total_seconds()) for _, _, ready_at in verdict.later]
    assert waits == [61, 61, 122, 122, 183]


def test_a_rate_that_is_lowered_counts_what_has_started_and_soon_lets_the_next_one_start() -> None:
    wide = by_number(Gate(1, rate=Rate(10, 60)))
    verdict = admit(some(*[(1,)] * 10), wide, {0: 10}, NOW)
    narrow = replace(verdict.gates[1], rate=Rate(2, 60))
    [(_, _, ready_at)] = admit(some((1,)), by_number(narrow), {0: 10}, later(1)).later
    assert later(60) <= ready_at <= later(62)


@given(rates, st.lists(st.floats(0, 3), min_size=1, max_size=60), st.integers(1, 25))
@settings(max_examples=300)
def test_no_stretch_of_time_has_more_starts_than_the_rate_allows(rate: Rate, gaps: list[float], crowd: int) -> None:
    """However often and at whatever times runs ask; gaps are parts of the rate's own stretch."""
    gate = Gate(1, rate=rate)
    now, started = NOW, list[datetime]()
    for gap in gaps:
        now += timedelta(seconds=gap * rate.seconds)
        verdict = admit(some(*[(1,)] * crowd), by_number(gate), {0: NEVER_FULL}, now)
        gate = verdict.gates[1]
        started += [now] * len(verdict.admitted)
    stretch = timedelta(seconds=rate.seconds)
    for first, start in enumerate(started):
        assert sum(start <= other < start + stretch for other in started[first:]) <= rate.count


@given(rates, st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), max_size=12))
@settings(max_examples=300)
def test_a_run_that_comes_at_the_time_it_was_given_is_let_through(rate: Rate, asked: list[tuple[float, int]]) -> None:
    gate, now = Gate(1, rate=rate), NOW
    for gap, crowd in asked:
        now += timedelta(seconds=gap * rate.seconds)
        gate = admit(some(*[(1,)] * crowd), by_number(gate), {0: NEVER_FULL}, now).gates[1]
    ready_at = next_start(rate, gate.starts, now)
    assert ready_at >= now
    assert numbers(admit(some((1,)), by_number(gate), {0: 1}, ready_at)) == [0]
    if ready_at > now:
        just_before = ready_at - timedelta(microseconds=1)
        assert admit(some((1,)), by_number(gate), {0: 1}, just_before).admitted == []


@given(rates, st.integers(0, 60), st.integers(1, 60))
@settings(max_examples=300)
def test_a_crowd_that_comes_back_at_the_times_it_was_given_is_not_sent_away_again(
    rate: Rate, before: int, crowd: int
) -> None:
    gate = admit(some(*[(1,)] * before), by_number(Gate(1, rate=rate)), {0: NEVER_FULL}, NOW).gates[1]
    verdict = admit(some(*[(1,)] * crowd), by_number(gate), {0: NEVER_FULL}, later(rate.seconds / 3))
    gate = verdict.gates[1]
    for run_id, _, ready_at in verdict.later:
        again = admit([Candidate(run_id, (1,))], by_number(gate), {0: 1}, ready_at)
        assert again.admitted == [run_id]
        gate = again.gates[1]


@given(rates, st.integers(0, 10**7))
def test_the_edge_of_a_slice_belongs_to_it(rate: Rate, offset: int) -> None:
    now = NOW + timedelta(microseconds=offset)
    full = Starts(slice_of(rate, now), (rate.count,))
    edge = next_start(rate, full, now)
    assert slice_of(rate, edge) >= slice_of(rate, now) + SLICES + 1
    assert slice_of(rate, edge - timedelta(microseconds=1)) < slice_of(rate, now) + SLICES + 1


def test_a_clock_that_was_ahead_lets_nobody_start_too_early() -> None:
    rate = Rate(1, 60)
    gate = admit(some((1,)), by_number(Gate(1, rate=rate)), {0: 1}, later(5)).gates[1]
    [(_, _, ready_at)] = admit(some((1,)), by_number(gate), {0: 1}, NOW).later
    assert ready_at >= later(65)


def test_what_is_long_past_does_not_count() -> None:
    starts = Starts(slice_of(Rate(5, 1), NOW), (5,)).at(slice_of(Rate(5, 1), later(10**9)))
    assert (sum(starts.counts), len(starts.counts)) == (0, SLICES + 1)


def test_a_place_that_was_promised_to_one_is_not_given_to_another() -> None:
    gate = Gate(1, capacity=2, held=1, promised=frozenset({UUID(int=1)}))
    verdict = admit(some((1,), (1,), (1,)), by_number(gate), {0: 10}, NOW)
    assert numbers(verdict) == [1]
    assert [run_id.int for run_id, _ in verdict.waiting] == [0, 2]
    assert verdict.gates[1].promised == frozenset()


def test_what_is_left_besides_promised_places_is_anybodys() -> None:
    gate = Gate(1, capacity=3, held=1, promised=frozenset({UUID(int=7)}))
    assert numbers(admit(some((1,), (1,)), by_number(gate), {0: 10}, NOW)) == [0]


def test_a_promise_does_not_let_anybody_into_a_gate_that_is_full() -> None:
    gate = Gate(1, capacity=1, held=1, promised=frozenset({UUID(int=0)}))
    assert admit(some((1,)), by_number(gate), {0: 10}, NOW).admitted == []


def test_a_promised_place_that_its_run_cannot_use_is_free_again() -> None:
    gates = by_number(Gate(1, capacity=1, promised=frozenset({UUID(int=0)})), Gate(2, capacity=0))
    assert numbers(admit(some((1, 2), (1,)), gates, {0: 10}, NOW)) == [1]
