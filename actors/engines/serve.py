"""``python -m actors.engines.serve <sglang arguments>``: an SGLang server, on CUDA or, through the seam, on a CPU.

The seam is installed at top level because the server's spawned children import this module again.
"""

from __future__ import annotations

import importlib
import sys

from actors.engines import cpu_seam

if cpu_seam.install():
    cpu_seam.hash_fast()


def main(arguments: list[str]) -> None:
    http_server = importlib.import_module("sglang.srt.entrypoints.http_server")
    server_args = importlib.import_module("sglang.srt.server_args")
    http_server.launch_server(server_args.prepare_server_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
