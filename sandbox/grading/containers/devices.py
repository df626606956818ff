"""Restores ``/dev`` as the daemon created it.

Root may replace files on which shells and Python rely: ``/dev/fd`` is behind each ``<(…)``, and many scripts use
``/dev/null`` and ``/dev/stdin``.
"""

from __future__ import annotations

from sandbox.errors import SandboxLost
from sandbox.grading.containers.artifacts import UnfitArtifactError
from sandbox.session.child_process import collect_child_output
from sandbox.session.sandbox_session import SandboxSession
from sandbox.toolchain.in_container.layout import BUSYBOX, TOOLS

_LIMIT_S = 60.0
_REPAIR = """
chown 0:0 /dev && chmod 0755 /dev
for each in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
    name=/dev/${each%%:*}
    [ "$(readlink $name)" = ${each#*:} ] || { rm -rf $name; ln -s ${each#*:} $name; }
done
for each in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    name=/dev/${each%%:*}
    if [ ! -L $name ] && [ -c $name ] && [ "$(stat -c %t:%T $name)" = ${each#*:} ]; then
        chmod 0666 $name
    else
        echo $name
    fi
done
"""
"""Repairs links; devices cannot be repaired without CAP_MKNOD: prints names that are no longer their device."""


async def repair_devices(session: SandboxSession) -> None:
    """Repair ``/dev`` of a container in which no process of the agent runs.

    Raises UnfitArtifactError when the agent has removed a device, SandboxLost, SandboxDestroyed.
    """
    argv = (BUSYBOX, "sh", "-c", f"{{ {_REPAIR} }} 2>&-")
    try:
        end, output = await collect_child_output(session, argv, env={"PATH": TOOLS}, limit_s=_LIMIT_S)
    except OSError as error:
        raise SandboxLost(f"/dev could not be checked: {error}") from error
    if end is None:
        raise UnfitArtifactError(f"the agent's files in /dev were not removed within {_LIMIT_S:g} s")
    if output:
        raise UnfitArtifactError(f"{', '.join(output.decode().split())}: no longer the device of that name")
