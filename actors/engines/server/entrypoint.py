"""``python -m actors.engines.server.entrypoint [--stacks=PREFIX] <sglang arguments>``: an SGLang server.

It runs on CUDA or, with the CPU patches, on a CPU.  Its API key is in its environment, which only its owner can read; a
command line is visible to everybody.

The server's spawned children import this module again, so at top level the CPU patches are installed, process groups
are restricted to loopback (:mod:`protocol.processes.rendezvous`), and each process offers its stacks in
``PREFIX-PID.stacks`` (:mod:`protocol.processes.stack_dumps`).
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from actors.engines.server import cpu_patches
from protocol.processes.rendezvous import guard_process_groups
from protocol.processes.stack_dumps import register_stack_dump

STACKS_OPTION = "--stacks="

if len(sys.argv) > 1 and sys.argv[1].startswith(STACKS_OPTION):
    prefix = Path(sys.argv[1].removeprefix(STACKS_OPTION))
    register_stack_dump(
        prefix.with_name(f"{prefix.name}-{os.getpid()}.stacks"), f"{prefix.name}, process {os.getpid()}"
    )

guard_process_groups()
if cpu_patches.install_cpu_patches():
    cpu_patches.patch_weight_checksum()


def main(arguments: list[str]) -> None:
    """Run the server until it ends."""
    from actors.engines.server.process import API_KEY_VARIABLE

    http_server = importlib.import_module("sglang.srt.entrypoints.http_server")
    server_args = importlib.import_module("sglang.srt.server_args")
    http_server.launch_server(
        server_args.prepare_server_args([*arguments, "--api-key", os.environ.pop(API_KEY_VARIABLE)])
    )


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if not word.startswith(STACKS_OPTION)])
