"""Draws the parts of the terminal UI: numbers, tokens, curves, timelines and recorded terminals, as text with colours.

All functions are pure: views call them with data and a width, and tests compare what they return.
"""
