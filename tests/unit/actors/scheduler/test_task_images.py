"""If these fail, episodes wait in slots for images that are being built, or a task whose image is broken is attempted
again and again."""

from __future__ import annotations

from actors.scheduler.task_images import ImageCounts, TaskImages, TaskImageStates

TASKS = ("a", "b", "c")


def test_a_worker_that_has_reported_nothing_can_start_every_task():
    states = TaskImageStates()
    assert states.can_start("a", "w")
    assert states.count(TASKS) == ImageCounts(3, 3, 0)


def test_a_task_is_ready_where_its_image_is():
    states = TaskImageStates()
    states.record("w", TaskImages(frozenset("ab")))
    states.record("v", TaskImages(frozenset("a"), {"c": "step 1"}))
    assert [[states.can_start(task, worker) for task in TASKS] for worker in "wv"] == [
        [False, False, True],
        [False, True, False],
    ]
    assert [states.is_missing(task, "v") for task in TASKS] == [True, False, False], (
        "a failed one need not be waited for"
    )
    assert states.count(TASKS) == ImageCounts(3, 2, 0)


def test_a_task_has_failed_once_it_fails_on_every_worker():
    states = TaskImageStates()
    states.record("w", TaskImages(failed={"a": "step 1", "b": "step 2"}))
    assert states.failures() == {"a": "step 1", "b": "step 2"}
    states.record("v", TaskImages(failed={"a": "step 1"}))
    assert states.failures() == {"a": "step 1"}
    assert states.count(TASKS) == ImageCounts(3, 2, 1)
    states.forget_report("v")
    assert states.failures() == {}, "it may be able to make it now"
    states.remove_worker("v")
    assert states.failures() == {"a": "step 1", "b": "step 2"}
    states.remove_worker("w")
    assert states.failures() == {}


def test_no_task_has_failed_while_a_worker_that_asks_for_tasks_has_reported_nothing():
    states = TaskImageStates()
    states.record("w", TaskImages(failed={"a": "step 1"}))
    states.add_worker("v")
    assert states.failures() == {}
    assert states.count(TASKS) == ImageCounts(3, 3, 0)
    states.record("v", TaskImages(failed={"a": "step 1"}))
    states.add_worker("v")
    assert states.failures() == {"a": "step 1"}, "asking again changes nothing"
    states.forget_report("evaluation-worker")
    assert states.failures() == {"a": "step 1"}, "it starts no training task"
