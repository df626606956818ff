"""Renders a trajectory or a group as one file: the monitor's page, its player and the API responses that it needs.

The file needs no monitor and no network; its policy runs only the scripts whose hashes it names.  Output of sandboxes
is embedded as data, which the page draws as text.  The size is bounded: tokens are left out first, and the page says
so.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import orjson

from launch.monitor.api_types import GroupDetail, TrajectoryDetail
from launch.monitor.archive.recordings import read_sanitized_recording
from launch.monitor.archive.token_facts import LocatedTrajectory, ReadContext
from launch.monitor.archive.token_pages import read_token_page
from launch.monitor.archive.trajectory_details import read_trajectory_detail
from launch.pages.html_document import csp_source, html_head, inline_script
from launch.pages.packages import package_text
from launch.pages.script_bundle import bundle_scripts
from launch.pages.static_files import static_text
from protocol.run_directory.page_pictures import pictures_path, read_picture
from protocol.run_directory.recording_reader import recording_path
from protocol.run_directory.trajectory_export import UnreadableTrajectoryError

TOKENS = 2_000
"""Tokens of one response, as static/page/views/tokens.js requests them."""
MAX_BYTES = 48 << 20
EmbeddedAnswers: TypeAlias = dict[str, object]

_STYLES = ("styles/tokens.css", "styles/page.css", "styles/views.css", "styles/chart.css", "styles/terminal.css")


def render_trajectory_page(run: str, context: ReadContext, where: LocatedTrajectory) -> bytes:
    """Render the page of a trajectory.  Raises UnreadableTrajectoryError."""
    answers: EmbeddedAnswers = {}
    _add_trajectories(answers, run, context, [where])
    return _page(where.row.id, f"/run/{run}/trajectories/{where.row.id}", answers)


def render_group_page(run: str, context: ReadContext, group: GroupDetail, members: list[LocatedTrajectory]) -> bytes:
    """Render the page of a group and of each readable member."""
    answers: EmbeddedAnswers = {f"/api/runs/{run}/groups/{group.row.group}": group}
    damaged = {each.row.id for each in group.members if each.problem}
    readable = [where for where in members if where.row.id not in damaged]
    _add_trajectories(answers, run, context, readable)
    return _page(f"group {group.row.group}", f"/run/{run}/groups/{group.row.group}", answers)


def _add_trajectories(
    answers: EmbeddedAnswers, run: str, context: ReadContext, members: list[LocatedTrajectory]
) -> None:
    """Add details of all, then recordings, then pictures, then tokens, up to the maximum size."""
    details = {where.row.id: (where, read_trajectory_detail(context, where)) for where in members}
    of = f"/api/runs/{run}"
    left = MAX_BYTES
    for name, (_, found) in details.items():
        left -= _put(answers, f"{of}/trajectories/{name}", found)
    for _, found in details.values():
        if found.recording is not None and found.recording.bytes <= left:
            left -= _put(
                answers, f"{of}/recordings/{found.recording.name}", _cast(context.run_dir, found.recording.name)
            )
    for where, found in details.values():
        for number, picture in _pictures(context, found):
            if len(picture) > left:
                break
            left -= _put(answers, f"{of}/trajectories/{where.row.id}/pictures/{number}", picture)
    for where, found in details.values():
        for address, page in _token_pages(context, where, found):
            if left <= 0:
                return
            left -= _put(answers, f"{of}/trajectories/{where.row.id}/{address}", page)


def _token_pages(
    context: ReadContext, where: LocatedTrajectory, found: TrajectoryDetail
) -> Iterator[tuple[str, object]]:
    for number, segment in enumerate(found.segments):
        for start in range(0, segment.length, TOKENS):
            try:
                page = read_token_page(context, where, number, start, TOKENS)
            except UnreadableTrajectoryError:
                return
            yield f"tokens?segment={number}&start={start}&limit={TOKENS}", page


def _pictures(context: ReadContext, found: TrajectoryDetail) -> Iterator[tuple[int, str]]:
    """Yield the number of each picture and its data URL."""
    path = pictures_path(context.run_dir, found.row.recording)
    for number in (each for segment in found.segments for turn in segment.turns for each in turn.pictures):
        if (data := read_picture(path, number)) is not None:
            yield number, f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"


def _put(answers: EmbeddedAnswers, address: str, answer: object) -> int:
    """Add a response and return its size."""
    data = orjson.dumps(answer, option=orjson.OPT_NON_STR_KEYS)
    answers[address] = orjson.Fragment(data)
    return len(data)


def _cast(run_dir: Path, name: str) -> str:
    path = recording_path(run_dir, name)
    return "" if path is None else b"".join(read_sanitized_recording(path)).decode()


def _page(title: str, at: str, answers: Mapping[str, object]) -> bytes:
    """Return the file; ``at`` is the view that opens first."""
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
