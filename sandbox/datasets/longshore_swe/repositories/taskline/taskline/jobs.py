"""Jobs and the queue that orders them."""

import heapq
import itertools


class Job:
    """A coroutine function to call, under a name that is unique in its queue."""

    def __init__(self, name, work, priority=0, needs=()):
        self.name = name
        self.work = work
        self.priority = priority
        """Higher ones come first."""
        self.needs = tuple(needs)
        """Names of the jobs that must have succeeded before."""


class JobQueue:
    """Gives out jobs by priority, and those of one priority in the order in which they came."""

    def __init__(self):
        self._heap = []
        self._numbers = itertools.count()
        self._names = set()

    def __len__(self):
        return len(self._heap)

    def add(self, job):
        """Add a job.  Raises ValueError for a name that was there before."""
        if job.name in self._names:
            raise ValueError(f"there is a job {job.name!r} already")
        self._names.add(job.name)
        heapq.heappush(self._heap, (-job.priority, next(self._numbers), job))

    def take(self, done=()):
        """Remove and return the first job all of whose needs are in ``done``; None if there is none."""
        waiting, found = [], None
        while self._heap:
            item = heapq.heappop(self._heap)
            if all(need in done for need in item[2].needs):
                found = item[2]
                break
            waiting.append(item)
        for item in waiting:
            heapq.heappush(self._heap, item)
        return found

    def drop_dependents(self, name):
        """Remove every job that needs ``name``, directly or through others, and return their names, sorted."""
        dropped = {name}
        while more := {job.name for _, _, job in self._heap if dropped & set(job.needs)} - dropped:
            dropped |= more
        self._heap = [item for item in self._heap if item[2].name not in dropped]
        heapq.heapify(self._heap)
        return sorted(dropped - {name})
