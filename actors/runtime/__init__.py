"""The seam to Ray: the only package that starts, calls, places and kills actors. It knows no class that runs in one; everything else in actors/ and launch/ reaches Ray through it."""
