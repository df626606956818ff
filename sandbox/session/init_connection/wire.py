"""Constants and layout of the frames between a session and PID 1.

A frame is type u8, length u32 LE, payload; a frame to PID 1 has a CRC-32 of these before its payload, and a new stream
to PID 1 begins with the container's key (:mod:`.init_command`). Every request's payload begins with its id, u32 LE; a
request about a shell or a terminal continues with its slot, u16 LE. Requests are encoded in :mod:`.init_requests`,
PID 1's messages decoded in :mod:`.init_messages`.
"""

from __future__ import annotations

import struct

PROTOCOL = 9
SLOTS = 32
"""Maximum number of shells and terminals of one session; the first is the shell that exists from the start."""
MAIN_SLOT = 0
CHILD_SLOT = 0xFFFF
"""Slot number that means the child process in an interrupt."""
MAX_FRAME_BYTES = 1 << 20
FILE_CHUNK_BYTES = 256 << 10
MAX_COMMAND_BYTES = MAX_FRAME_BYTES - 1024
"""Maximum length of a command, and of what is typed at once: 1 MiB less the rest of its frame, up to 1 KiB."""
MAX_GROUPS = 64
"""Maximum number of supplementary groups of a user."""
MAX_ROWS = 1000
"""Maximum number of rows, and of columns, of a terminal."""
NONCE_BYTES = 16
KEY_BYTES = 32
NEW_CLIENT = (1 << 64) - 1
"""Position that a new client sends: it has received nothing and wants nothing that was sent before."""
FRAME_HEADER = struct.Struct("<cI")
FRAME_CHECKSUM = struct.Struct("<I")
