"""A trajectory or a group as one file: the page itself, its player and the answers that it would ask for.

It opens without a monitor and without a network, under a policy that runs only the scripts whose hashes it names.  What
sandboxes printed is data in it, which the page draws as text.  A file is bounded: what goes beyond is left out, tokens
first, and the page says so where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import orjson

from launch.monitor.api_types import GroupDetail, TrajectoryDetail
from launch.monitor.archive.recordings import read_sanitized_recording
from launch.monitor.archive.token_pages import read_token_page
from launch.monitor.archive.trajectory_details import read_trajectory_detail
from launch.monitor.archive.trajectory_reader import LocatedTrajectory, ReadContext, UnreadableTrajectoryError
from launch.pages.html_document import csp_source, html_head, inline_script
from launch.pages.packages import package_text
from launch.pages.script_bundle import bundle_scripts
from launch.pages.static_files import static_text
from protocol.run_directory.recording_reader import recording_path

TOKENS = 2_000
"""The tokens of one answer: what static/page/tokens.js asks for at once."""
MAX_BYTES = 48 << 20
EmbeddedAnswers: TypeAlias = dict[str, object]

_STYLES = ("tokens.css", "page/page.css", "page/views.css", "page/chart.css", "page/terminal.css")


def render_trajectory_page(run: str, known: ReadContext, where: LocatedTrajectory) -> bytes:
    """A page that shows this one.  Raises UnreadableError."""
    answers: EmbeddedAnswers = {}
    _add_trajectories(answers, run, known, [where])
    return _page(where.row.id, f"/run/{run}/trajectories/{where.row.id}", answers)


def render_group_page(run: str, known: ReadContext, group: GroupDetail, members: list[LocatedTrajectory]) -> bytes:
    """A page that shows the group and each of its members that can be read."""
    answers: EmbeddedAnswers = {f"/api/runs/{run}/groups/{group.row.group}": group}
    damaged = {each.row.id for each in group.members if each.problem}
    readable = [where for where in members if where.row.id not in damaged]
    _add_trajectories(answers, run, known, readable)
    return _page(f"group {group.row.group}", f"/run/{run}/groups/{group.row.group}", answers)


def _add_trajectories(answers: EmbeddedAnswers, run: str, known: ReadContext, members: list[LocatedTrajectory]) -> None:
    """Details of all, then recordings, then tokens, as far as the file's bound goes."""
    details = {where.row.id: (where, read_trajectory_detail(known, where)) for where in members}
    of = f"/api/runs/{run}"
    left = MAX_BYTES
    for name, (_, found) in details.items():
        left -= _put(answers, f"{of}/trajectories/{name}", found)
    for _, found in details.values():
        if found.recording is not None and found.recording.bytes <= left:
            left -= _put(answers, f"{of}/recordings/{found.recording.name}", _cast(known.run_dir, found.recording.name))
    for where, found in details.values():
        for address, page in _token_pages(known, where, found):
            if left <= 0:
                return
            left -= _put(answers, f"{of}/trajectories/{where.row.id}/{address}", page)


def _token_pages(known: ReadContext, where: LocatedTrajectory, found: TrajectoryDetail) -> Iterator[tuple[str, object]]:
    for number, segment in enumerate(found.segments):
        for start in range(0, segment.length, TOKENS):
            try:
                page = read_token_page(known, where, number, start, TOKENS)
            except UnreadableTrajectoryError:
                return
            yield f"tokens?segment={number}&start={start}&limit={TOKENS}", page


def _put(answers: EmbeddedAnswers, address: str, answer: object) -> int:
    """Its size."""
    data = orjson.dumps(answer, option=orjson.OPT_NON_STR_KEYS)
    answers[address] = orjson.Fragment(data)
    return len(data)


def _cast(run_dir: Path, name: str) -> str:
    path = recording_path(run_dir, name)
    return "" if path is None else b"".join(read_sanitized_recording(path)).decode()


def _page(title: str, at: str, answers: Mapping[str, object]) -> bytes:
    """``at``: the view that opens first."""
    data = orjson.dumps({"at": at, "answers": answers}, option=orjson.OPT_NON_STR_KEYS).replace(b"<", b"\\u003c")
    styles = "\n".join([package_text("player.css"), *(static_text(name) for name in _STYLES)])
    player, page = inline_script(package_text("player.js")), inline_script(bundle_scripts("page/app.js"))
    directives = (
        f"script-src {csp_source(player)} {csp_source(page)} 'wasm-unsafe-eval'",
        "base-uri 'none'",
        "form-action 'none'",
    )
    head = html_head(f"{title} · longshore", styles, directives, script=player)
    head += '<body>\n<script type="application/json" id="data">'
    return head.encode() + data + f'</script>\n<script type="module">{page}</script>\n</body>\n</html>\n'.encode()
