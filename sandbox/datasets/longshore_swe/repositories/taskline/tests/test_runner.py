import asyncio

from taskline.jobs import Job, JobQueue
from taskline.runner import Slots, run_all


def returns(value, log=None):
    async def work():
        await asyncio.sleep(0)
        if log is not None:
            log.append(value)
        return value

    return work


def fails(error):
    async def work():
        await asyncio.sleep(0)
        raise error

    return work


def run(*jobs, **options):
    queue = JobQueue()
    for job in jobs:
        queue.add(job)

    async def main():
        async with asyncio.timeout(2):
            return await run_all(queue, **options)

    return asyncio.run(main())


def test_every_job_gives_its_value():
    results = run(Job("a", returns(1)), Job("b", returns(2)), Job("c", returns(3)))
    assert results.values == {"a": 1, "b": 2, "c": 3}
    assert results.succeeded


def test_an_empty_queue_succeeds():
    assert run().succeeded


def test_needs_come_first():
    log = []
    run(Job("c", returns("c", log), 9, ["b"]), Job("b", returns("b", log), 5, ["a"]), Job("a", returns("a", log)))
    assert log == ["a", "b", "c"]


def test_a_failure_is_kept_and_others_go_on():
    error = ValueError("x")
    results = run(Job("a", fails(error)), Job("b", returns(2)))
    assert (results.failures, results.values) == ({"a": error}, {"b": 2})
    assert not results.succeeded


def test_what_needs_a_failed_job_is_dropped():
    results = run(Job("a", fails(OSError())), Job("c", returns(1), needs=["b"]), Job("b", returns(1), needs=["a"]))
    assert (results.dropped, results.values) == (["b", "c"], {})
    assert not results.succeeded


def test_no_more_than_the_workers_run():
    running, most = [], []

    async def work():
        running.append(1)
        most.append(len(running))
        await asyncio.sleep(0.001)
        running.pop()

    run(*(Job(str(number), work) for number in range(7)), workers=3)
    assert max(most) == 3


def test_on_done_ends_before_dependents_begin():
    log = []

    async def on_done(name):
        await asyncio.sleep(0.001)
        log.append(f"done {name}")

    run(Job("b", returns("b", log), needs=["a"]), Job("a", returns("a", log)), on_done=on_done)
    assert log == ["a", "done a", "b", "done b"]


def test_slots_are_free_again_after_failures():
    async def main():
        slots = Slots(1)
        for _ in range(3):
            try:
                async with asyncio.timeout(1), slots:
                    raise KeyError
            except KeyError:
                pass
        return slots.free, slots.most_held

    assert asyncio.run(main()) == (1, 1)


def test_more_failures_than_workers_block_nothing():
    jobs = [Job(str(number), fails(OSError())) for number in range(5)]
    results = run(*jobs, Job("good", returns(1)), workers=2)
    assert len(results.failures) == 5
    assert results.values == {"good": 1}
