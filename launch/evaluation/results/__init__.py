"""The folder of an evaluation: specification, attempts and settings, and the summary, tables and page made of them."""
