"""A real browser in a sandbox: Debian's Chromium, which an agent without a shell sees as text and uses by actions.

``installation`` puts it into a folder that is mounted into the sandboxes of a run, so that any image will do.  It is
driven over the DevTools protocol (``devtools``) through the terminal of its process: no port is open.  ``browser``
holds the process of one episode and its tabs (``tab``, ``tab_state``); ``actions`` are clicks and typing;
``accessibility`` and ``observation`` make the text that the agent is shown.  Every call has a deadline.
"""
