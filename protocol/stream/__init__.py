"""Trajectories from workers to the buffer: ZeroMQ DEALER → ROUTER, credit, and an ACK after the durable append.

``await sender.send(trajectory, deadline_s)`` returns when the receiver's ``append`` has returned for it, which is when
it is durable.  Until then the sender keeps it, and sends it again whenever the receiver has missed anything.

No loss: a sender's life is divided into epochs.  A ``StreamPing`` carries the number of bytes sent before it in the
epoch on the same ordered socket.  A receiver that counted another number (a connection broke, the receiver is new)
answers ``StreamResync``, and the sender starts a new epoch with a ``StreamHello`` and sends everything unacknowledged
again.  A lost ACK shows as a ``StreamState`` that has answered everything sent while something still waits.  Sending
twice is harmless: the journal recognises the trajectory and acknowledges it again.

Bounded memory: credit is an absolute offset (bytes answered in this epoch plus the window), repeated in each ACK,
``StreamWelcome`` and ``StreamState``, so that a lost message cannot leak credit.  A sender holds data back until credit
covers it.

Authentication: senders need the keys of the run, or the right to enter the folder of its Unix socket
(:mod:`protocol.stream.keys`).  Peers that are turned
away, before the handshake or after, are counted and reported (:mod:`protocol.stream.connections`).

Shutdown: :meth:`TrajectorySender.drain` waits for all trajectories on their way, including cancelled sends, and returns
the unacknowledged ones.  Leaving ``async with`` cancels the tasks inside, sends ``StreamBye`` and closes the socket,
which has half a second to send it; unacknowledged trajectories raise :class:`SenderClosedError` in their ``send`` and
are listed in :attr:`TrajectorySender.unacknowledged`.
"""

from __future__ import annotations

from protocol.stream.errors import MessageRefusedError, NotAcknowledgedError, SenderClosedError, StreamError
from protocol.stream.keys import CurveClient, CurveServer, RunKeys, make_run_keys
from protocol.stream.message_handler import ReceivedTrajectory
from protocol.stream.notices import OnDisconnected, OnRefused, OnUnroutable
from protocol.stream.receiver import DEFAULT_BATCH_BYTES, AppendTrajectories, ReceiverStatistics, TrajectoryReceiver
from protocol.stream.sender import SenderStatistics, TrajectorySender

__all__ = [
    "DEFAULT_BATCH_BYTES",
    "AppendTrajectories",
    "CurveClient",
    "CurveServer",
    "MessageRefusedError",
    "NotAcknowledgedError",
    "OnDisconnected",
    "OnRefused",
    "OnUnroutable",
    "ReceivedTrajectory",
    "ReceiverStatistics",
    "RunKeys",
    "SenderClosedError",
    "SenderStatistics",
    "StreamError",
    "TrajectoryReceiver",
    "TrajectorySender",
    "make_run_keys",
]
