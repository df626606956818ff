"""Pure functions that draw numbers, tokens, curves and terminal screens as text. Nothing here knows the app, a widget
or a file that is written."""
