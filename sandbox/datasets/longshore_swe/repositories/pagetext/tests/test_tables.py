from pagetext.tables import table, totals


def test_columns_are_as_wide_as_their_widest_cell():
    assert table([["a", "bbb"], ["cc", "d"]]) == ["a   bbb", "cc  d"]


def test_a_header_is_underlined():
    assert table([["a", 1]], header=["name", "n"]) == ["name  n", "----  -", "a     1"]


def test_columns_are_aligned():
    rows = [["a", "b", "c"], ["aaa", "bbb", "ccc"]]
    assert table(rows, align="rc") == ["  a   b   c", "aaa  bbb  ccc"]


def test_what_is_missing_is_shown():
    assert table([[None, 0], ["a", None]]) == ["-  0", "a  -"]
    assert table([[None, "x"]], missing="none") == ["none  x"]


def test_short_rows_end_with_empty_cells():
    assert table([["a"], ["b", "c"]]) == ["a", "b  c"]


def test_no_rows_make_no_lines():
    assert table([]) == []
    assert table([], header=["a"]) == ["a", "-"]


def test_the_gap_is_as_wide_as_asked():
    assert table([["a", "b"]], gap=4) == ["a    b"]


def test_totals_leave_out_what_is_missing():
    assert totals([[1, 2], [None, 3], [4]], [0, 1]) == [5, 5]
    assert totals([], [1]) == [0]
