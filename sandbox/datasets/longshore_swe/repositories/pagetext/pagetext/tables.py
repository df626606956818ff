"""Tables of text."""


def _cell(value, missing):
    return missing if value is None else str(value)


def table(rows, header=None, align="", missing="-", gap=2):
    """Return the lines of a table, without blanks at their ends.

    ``align`` has ``l``, ``r`` or ``c`` for each column, ``l`` for those that it does not reach.  None is printed as
    ``missing``.  A short row has empty cells at its end.
    """
    texts = [[_cell(value, missing) for value in row] for row in ([header] if header else []) + list(rows)]
    if not texts:
        return []
    count = max(map(len, texts))
    texts = [row + [""] * (count - len(row)) for row in texts]
    widths = [max(len(row[column]) for row in texts) for column in range(count)]
    sides = (align + "l" * count)[:count]
    lines = [(" " * gap).join(_aligned(*each) for each in zip(row, widths, sides)).rstrip() for row in texts]
    if header:
        lines.insert(1, (" " * gap).join("-" * width for width in widths))
    return lines


def _aligned(text, width, side):
    if side == "r":
        return text.rjust(width)
    if side == "c":
        return text.center(width)
    return text.ljust(width)


def totals(rows, columns):
    """Return the sum of each of ``columns`` over all rows; a value of None, or none at all, counts as 0."""
    sums = {column: 0 for column in columns}
    for row in rows:
        for column in columns:
            if column < len(row) and row[column] is not None:
                sums[column] += row[column]
    return [sums[column] for column in columns]
