"""Trajectories from workers to the buffer: ZeroMQ DEALER → ROUTER, credit, and an ACK after the durable append.

``await sender.send(trajectory, deadline_s)`` returns when the receiver's ``append`` has returned for it, which is when
it is durable.  Until then the sender keeps it, and sends it again whenever the receiver misses anything.

How nothing is lost: a sender's life is cut into epochs.  A ``Ping`` says how many bytes of the epoch went before it on
the same ordered socket; a receiver that counted another number (a connection broke, the receiver is new) answers
``Resync``, and the sender starts a new epoch with a ``Hello`` and sends again what is not acknowledged.  A lost ACK
shows as a ``State`` that has answered everything sent while something still waits.  Sending twice is harmless: the
journal knows the trajectory, and the second is acknowledged as well.

How nothing grows: credit is an absolute offset (bytes answered in this epoch plus the window), repeated in each ACK,
``Welcome`` and ``State``, so a lost message cannot leak any.  A sender holds data back until credit covers it.

Who may send: beyond loopback the keys of the run (:mod:`protocol.stream.keys`).  Whoever is turned away, before the
handshake or after, is counted and named (:mod:`protocol.stream.connections`).

How it ends: :meth:`TrajectorySender.drain` waits for what is on its way, sends that were cancelled included, and says
what is not acknowledged.  Leaving ``async with`` cancels the tasks inside, says ``Bye`` and closes the socket, which
has half a second to send that; what was not acknowledged raises :class:`SenderClosed` in its ``send`` and is
named by :attr:`TrajectorySender.unacknowledged`.
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
