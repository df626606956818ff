"""If these fail, nobody learns which step of a Dockerfile fails, or a prefetch looks as if it hung."""

from __future__ import annotations

from sandbox.images.engine_log import EngineLog, ImageProgress


def test_an_error_names_the_step_and_has_its_output_alone():
    log = EngineLog(trouble="no helper")
    said = [
        "Step 1/3 : FROM base\n", " ---> 3c26efe7aa54\n", "Step 2/3 : RUN echo one\n", " ---> Running in 2d84\n",
        "one\n",
        "Removing intermediate container 2d84\n", " ---> 529\n", "Step 3/3 : RUN make   &&     make test\n", "\n",
        " ---> Running in 29d9\n", "\x1b[91mno rule\x1b[0m\n", "Removing intermediate container 29d9\n",
    ]  # fmt: skip
    for line in said:
        log.feed({"stream": line})
    assert log.describe_error("returned 2") == "step 3/3: RUN make && make test\nreturned 2\nno rule\nno helper"


def test_an_error_before_the_first_step_is_the_engines_own_words():
    assert EngineLog().describe_error("no such host") == "no such host"


def test_progress_has_the_step_and_the_bytes_of_all_layers():
    seen: list[ImageProgress] = []
    log = EngineLog(seen.append)
    log.feed({"stream": "STEP 1/2: FROM base"})  # as Podman writes it
    for layer, current in (("a", 5), ("b", 7), ("a", 10)):
        log.feed({"status": "Downloading", "id": layer, "progressDetail": {"current": current, "total": 10}})
    log.feed({"status": "Pull complete", "id": "a", "progressDetail": {}})
    log.feed({"status": "Downloading", "id": "b", "progressDetail": None})
    assert seen[0] == ImageProgress("step 1/2: FROM base", 0)
    assert [each.fetched_bytes for each in seen[1:]] == [5, 12, 17, 10]
