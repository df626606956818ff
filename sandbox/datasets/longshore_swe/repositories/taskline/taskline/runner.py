"""Runs the jobs of a queue, a limited number of them at a time."""

import asyncio


class Slots:
    """A number of places of which each can be held by one job."""

    def __init__(self, count):
        self.free = count
        self.most_held = 0
        self._count = count
        self._freed = asyncio.Event()

    async def __aenter__(self):
        while not self.free:
            self._freed.clear()
            await self._freed.wait()
        self.free -= 1
        self.most_held = max(self.most_held, self._count - self.free)

    async def __aexit__(self, *_):
        self.free += 1
        self._freed.set()


class Results:
    """What became of the jobs, by name."""

    def __init__(self):
        self.values = {}
        self.failures = {}
        self.dropped = []

    @property
    def succeeded(self):
        return not self.failures and not self.dropped


async def run_all(queue, workers=2, on_done=None):
    """Run every job of the queue, and return the results.

    A job that fails stops none but those that need it.  ``on_done`` is a coroutine function that gets the name of each
    job that succeeded, before jobs that need it begin.
    """
    results, slots = Results(), Slots(workers)
    running = set()

    async def run(job):
        async with slots:
            try:
                value = await job.work()
            except Exception as error:
                results.failures[job.name] = error
                results.dropped += queue.drop_dependents(job.name)
                return
            if on_done is not None:
                await on_done(job.name)
            results.values[job.name] = value

    while True:
        while (job := queue.take(results.values)) is not None:
            running.add(asyncio.ensure_future(run(job)))
        if not running:
            break
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    results.dropped.sort()
    return results
