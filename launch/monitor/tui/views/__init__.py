"""The widgets that show a run in the terminal.

``base``, ``header`` and ``listing`` are shared; every other module is one view.  A view never imports the app or a
screen.
"""
