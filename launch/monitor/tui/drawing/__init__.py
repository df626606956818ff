"""Pure functions that draw numbers, tokens, curves and terminal screens as text."""
