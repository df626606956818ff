"""Judges whether a curve grows: a pure rule about samples of one figure of one process.

A figure grows if, after the warm-up, its robust trend rises by more than its bound, rises in each third of what is
judged, and leaves the band in which it swung before the second third.  The trend is the Theil–Sen estimator: the median
of the slopes between all pairs of samples (P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau",
1968), which a burst, a collection of garbage or an episode more in flight does not move.  What is still filling rises
ever more slowly and passes; what leaks goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MIB = 1 << 20
WARM_UP_SHARE = 1 / 3
"""Share of the time that is not judged: imports, first batches, connections, caches that fill."""
MIN_SAMPLES = 12
"""Number of judged samples below which nothing is said about a curve."""
_THIRDS = 3
_STEADY_SHARE = 0.25
"""Least rise of a third, as a share of what it would be at a constant rate."""
_BAND_QUANTILE = 0.99
"""Share of the samples that lie in the band; the others are bursts."""
_MAX_POINTS = 600
"""Number of samples, medians of neighbours, between which slopes are computed."""
_HOUR_S = 3600.0

Samples = NDArray[np.float64]


class Figure(StrEnum):
    """A figure of a process, of the sandboxes' engine, or of the work that is done."""

    ANONYMOUS = "anonymous memory"
    """The memory that the process itself has allocated, whether it is resident or swapped out.  Files that it maps and
    shared memory are not in it."""
    RESIDENT = "resident memory"
    """It is recorded, and not judged: when other processes need memory, the system takes back pages of mapped files and
    swaps others out, so that it falls, and rises later."""
    PROPORTIONAL = "proportional memory"
    """Resident memory, shared pages divided by those who map them: when another process ends that maps the same
    libraries, that of all others rises.  It is recorded, and not judged."""
    DESCRIPTORS = "descriptors"
    THREADS = "threads"
    CHILDREN = "children"
    PROCESSES = "processes"
    """Number of processes of the run and its servers, short-lived ones included."""
    CONTAINERS = "containers"
    NETWORKS = "networks"
    VOLUMES = "volumes"
    STATE = "state on disk"
    """Bytes of the servers' state folders, which describe what is open."""
    FILES = "files"
    """Bytes of the run's directory: it keeps what was done, so that it grows with it, and is not judged."""
    WORK = "work"
    """Number of steps, trajectories, sessions, episodes or requests so far; not judged."""

    @property
    def is_bytes(self) -> bool:
        return self in (Figure.ANONYMOUS, Figure.RESIDENT, Figure.PROPORTIONAL, Figure.STATE, Figure.FILES)

    @property
    def is_work(self) -> bool:
        """Whether it grows with what was done."""
        return self in (Figure.FILES, Figure.WORK)

    @property
    def is_judged(self) -> bool:
        """Whether its growth is a finding."""
        return not (self.is_work or self in (Figure.RESIDENT, Figure.PROPORTIONAL))

    def bound(self, level: float) -> float:
        """Return the rise over what is judged that is no growth, for a figure of this level.

        Memory: 8 MiB, or 3 % of the level if that is more: allocators keep what one batch more, one longer episode or
        a larger garbage takes, in arenas of 1 MiB (Python) to some MiB (glibc, per thread), and give it back late.
        Counts: less than 2, because a number that rises by 1 may be one connection more that is kept open.  State on
        disk: 1 MiB, less than one file of a lease may have before it is rewritten.
        """
        if self is Figure.STATE:
            return MIB
        return max(8 * MIB, 0.03 * level) if self.is_bytes else 1.5


@dataclass(frozen=True, slots=True)
class Curve:
    """Samples of one figure of one part."""

    part: str
    figure: Figure
    times_s: Sequence[float]
    """Seconds since the soak began, ascending."""
    values: Sequence[float]
    """Bytes, or a number."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The trend of a curve after the warm-up."""

    part: str
    figure: Figure
    judged_s: float
    """Seconds that were judged; 0 if there were too few samples."""
    level: float
    """Median."""
    peak: float
    per_hour: float
    """Slope of the trend."""
    bound: float
    """Rise that is no growth."""
    grows: bool

    @property
    def rise(self) -> float:
        """Rise of the trend over the judged time."""
        return self.per_hour * self.judged_s / _HOUR_S


def theil_sen_slope(times: Samples, values: Samples) -> float:
    """Return the median slope between all pairs of samples, 0 without a pair."""
    first, second = np.triu_indices(len(times), k=1)
    spans = times[second] - times[first]
    pairs = spans > 0
    if not pairs.any():
        return 0.0
    return float(np.median((values[second] - values[first])[pairs] / spans[pairs]))


def judge_curve(curve: Curve, warm_up_s: float) -> Growth:
    """Judge the samples that were taken ``warm_up_s`` or later after the soak began."""
    times, values = np.asarray(curve.times_s, np.float64), np.asarray(curve.values, np.float64)
    judged = times >= warm_up_s
    warm_up, times, values = values[~judged], times[judged], values[judged]
    if len(times) < MIN_SAMPLES:
        return Growth(curve.part, curve.figure, 0.0, *_level_and_peak(values), 0.0, 0.0, grows=False)
    level, peak = _level_and_peak(values)
    bound, span = curve.figure.bound(level), float(times[-1] - times[0])
    thinned_times, thinned = _thin(times), _thin(values)
    slope = theil_sen_slope(thinned_times, thinned)
    grows = (
        curve.figure.is_judged
        and slope * span > bound
        and _rises_in_each_third(thinned_times, thinned, slope)
        and _leaves_its_band(warm_up, values)
    )
    return Growth(curve.part, curve.figure, span, level, peak, slope * _HOUR_S, bound, grows=grows)


def _rises_in_each_third(times: Samples, values: Samples, slope: float) -> bool:
    thirds = [*zip(np.array_split(times, _THIRDS), np.array_split(values, _THIRDS), strict=True)]
    medians = [(float(np.median(at)), float(np.median(had))) for at, had in thirds]
    return all(
        later[1] - earlier[1] >= _STEADY_SHARE * slope * (later[0] - earlier[0]) for earlier, later in pairwise(medians)
    )


def _leaves_its_band(warm_up: Samples, values: Samples) -> bool:
    """Return whether the last third lies above all that there was in the warm-up and in the first third."""
    first, _, last = np.array_split(values, _THIRDS)
    return bool(np.median(last) > np.quantile(np.concatenate((warm_up, first)), _BAND_QUANTILE))


def _level_and_peak(values: Samples) -> tuple[float, float]:
    return (float(np.median(values)), float(np.max(values))) if len(values) else (0.0, 0.0)


def _thin(samples: Samples) -> Samples:
    """Return at most :data:`_MAX_POINTS` samples, each the median of as many neighbours."""
    if len(samples) <= _MAX_POINTS:
        return samples
    return np.array([np.median(part) for part in np.array_split(samples, _MAX_POINTS)])
