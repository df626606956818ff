"""Charts as data, drawn once and put down twice: as SVG in the page, and as a PNG."""
