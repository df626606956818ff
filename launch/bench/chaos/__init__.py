"""Kill processes of a whole run, and account for every trajectory that was acknowledged.

``benchmark`` has the arguments and the report; it stands on the other modules of this folder.
"""
