"""Connections that programs of a Daytona sandbox make to its own loopback, carried to a socket of this process.

Nobody outside can listen there, and nothing of this process is open to a network: a program of ours in the sandbox
(``main.c``) listens, and this process carries its connections by commands that it starts there, as it starts all others
(:mod:`sandbox.providers.daytona.handle`).

- One command at a time waits for what the connections send, and one hands over what they are sent.  Both name their
  place in the streams, so a command or a reply that is lost is repeated, and nothing is lost or taken twice.
- A program that was killed is started anew: its connections end, and new ones are carried.
- A program whose process here is gone ends by itself.  A sandbox that is lost ends the carrying; whoever runs a program
  there learns why.
- What comes from the sandbox is its agent's, who may have replaced the program: bounded, and what makes no sense ends
  the carrying and the program, so that a harness sees its connections end.
"""
