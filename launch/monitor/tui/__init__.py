"""The monitor in a terminal: the same run, from the same store as the page, without HTTP.

``app`` follows the run and shows one page at a time: ``pages`` puts a ``View`` between the head and the keys.  A view
(``overview``, ``listing`` with ``trajectories``, ``groups`` and ``log``, ``group``, ``trajectory``, ``wall``) asks the
follower in a thread whenever there is news, one question at a time, so that nothing here waits for a file.  What is
drawn is made by pure functions (``panels``, ``plot``, ``words``, ``paint``, ``colouring``, ``reel``).  All of it ends
with the app: by q, Ctrl-C or SIGTERM.
"""
