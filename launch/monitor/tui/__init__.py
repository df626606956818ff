"""The monitor in a terminal: the same data as the page, without HTTP.

``app`` follows the run and shows one of ``screens`` at a time, which puts a view between the header and the keys.  The
``views`` read from the follower in a thread whenever there is news, one request at a time, so that the UI never waits
for a file.  Pure functions in ``drawing`` turn data into text.  The app ends by q, Ctrl-C or SIGTERM.
"""
