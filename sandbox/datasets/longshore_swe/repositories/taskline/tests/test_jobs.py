import pytest

from taskline.jobs import Job, JobQueue


def queue(*jobs):
    made = JobQueue()
    for job in jobs:
        made.add(job)
    return made


def job(name, priority=0, needs=()):
    return Job(name, None, priority, needs)


def names(made, done=()):
    found = []
    while (taken := made.take(done)) is not None:
        found.append(taken.name)
    return found


def test_higher_priorities_come_first():
    assert names(queue(job("low", 1), job("high", 9), job("middle", 5))) == ["high", "middle", "low"]


def test_equal_ones_come_in_their_order():
    assert names(queue(*(job(name) for name in "dacb"))) == ["d", "a", "c", "b"]


def test_a_job_waits_for_all_that_it_needs():
    made = queue(job("last", 9, ["a", "b"]), job("a"), job("b"))
    assert names(made) == ["a", "b"]
    assert len(made) == 1
    assert names(made, {"a"}) == []
    assert names(made, {"a", "b"}) == ["last"]


def test_what_waits_keeps_its_place():
    made = queue(job("x", 5, ["a"]), job("y", 5, ["a"]), job("a"))
    assert made.take().name == "a"
    assert names(made, {"a"}) == ["x", "y"]


def test_a_name_is_used_once():
    made = queue(job("a"))
    with pytest.raises(ValueError, match="already"):
        made.add(job("a"))
    made.take()
    with pytest.raises(ValueError, match="already"):
        made.add(job("a"))


def test_dependents_are_dropped_through_others():
    made = queue(job("b", needs=["a"]), job("c", needs=["b"]), job("d", needs=["c", "z"]), job("e"))
    assert made.drop_dependents("a") == ["b", "c", "d"]
    assert names(made) == ["e"]
