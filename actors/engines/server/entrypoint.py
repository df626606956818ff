"""``python -m actors.engines.server.entrypoint [--stacks=PREFIX] <sglang arguments>``: an SGLang server, on CUDA or, through the
seam, on a CPU.  Its key is in its environment, which nobody reads but its owner; a command line is for all to see.

At top level, because the server's spawned children import this module again: the seam is installed, groups meet on
loopback alone (:mod:`protocol.processes.rendezvous`), and each process' stacks are offered (:mod:`protocol.processes.stack_dumps`, in
``PREFIX-PID.stacks``).
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from actors.engines.server import cpu_patches
from protocol.processes.rendezvous import restrict_tcp_stores_to_address
from protocol.processes.stack_dumps import register_stack_dump

STACKS_OPTION = "--stacks="

if len(sys.argv) > 1 and sys.argv[1].startswith(STACKS_OPTION):
    prefix = Path(sys.argv[1].removeprefix(STACKS_OPTION))
    register_stack_dump(
        prefix.with_name(f"{prefix.name}-{os.getpid()}.stacks"), f"{prefix.name}, process {os.getpid()}"
    )

restrict_tcp_stores_to_address()
if cpu_patches.install_cpu_patches():
    cpu_patches.patch_weight_checksum()


def main(arguments: list[str]) -> None:
    from actors.engines.server.process import API_KEY_VARIABLE

    http_server = importlib.import_module("sglang.srt.entrypoints.http_server")
    server_args = importlib.import_module("sglang.srt.server_args")
    http_server.launch_server(
        server_args.prepare_server_args([*arguments, "--api-key", os.environ.pop(API_KEY_VARIABLE)])
    )


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if not word.startswith(STACKS_OPTION)])
