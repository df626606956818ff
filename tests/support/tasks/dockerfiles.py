"""Lines of Dockerfiles that an engine's builder refuses, and lines that look like those.

The other stages of the file are ``early``, if theirs is not the first one, and ``late``.
"""

from __future__ import annotations

BROKEN_LINES = (
    ("FOO x", "FOO x: no instruction has the name FOO"),
    ("CPOY f /", "did you mean COPY?"),
    ("COPY f", "COPY f: it needs a source and a target"),
    ("COPY", "COPY: it needs a source and a target"),
    ('COPY --chown=1 ["f"]', "it needs a source and a target"),
    ("ADD f", "it needs a source and a target"),
    ("COPY --chmd=1 f /f", "did you mean chmod?"),
    ("RUN --mnt=a true", "RUN --mnt: no builder knows this option"),
    ("ENV --x a=b", "ENV --x: no builder knows this option"),
    ("HEALTHCHECK --every=1s CMD true", "HEALTHCHECK --every"),
    ("ENV", "ENV: it needs an argument"),
    ("ENV a", "it has a name without a value"),
    ("ENV a=b c", "'c' is not name=value"),
    ("LABEL a=b # why", "'#' is not name=value"),
    ("WORKDIR", "WORKDIR: it needs an argument"),
    ("RUN", "RUN: it needs an argument"),
    ("USER", "USER: it needs an argument"),
    ("SHELL bash -c", "it needs a list in JSON"),
    ("HEALTHCHECK true", "it needs CMD or NONE"),
    ("FROM a b", "it names an image, or an image AS a stage"),
    ("COPY --from=7 /a /b", "COPY --from=7: no stage above it"),
    ("COPY --from=0 /a /b", "COPY --from=0: no stage above it"),
    ("COPY --from=late /a /b", "COPY --from=late: no stage above it"),
)
"""Each with words that name it and say why."""
WHOLE_LINES = (
    "copy f /",
    'COPY ["f","/"]',
    "COPY --from=early /a /b",
    "COPY --from=0 /a /b",
    "COPY --from=busybox /a /b",
    "COPY <<E /a\nFOO\nE",
    "RUN <<E\nFOO\nE",
    "RUN a \\\n# why\n\n  FOO",
    "ENV a b c",
    "ENV a b=c",
    "ENV a=\"b c\" d='e f' g=h\\ i",
    "ENV a='b",
    "LABEL a=b",
    "ARG a b",
    "USER a b",
    "WORKDIR a b",
    "CMD",
    "ENTRYPOINT",
    'SHELL ["bash", "-c"]',
    "HEALTHCHECK NONE",
    "HEALTHCHECK --interval=1s CMD true",
    "RUN --mount=type=cache,target=/a --network=none -- true",
    "ONBUILD RUN true",
    "MAINTAINER a b",
)
