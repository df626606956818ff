"""If these fail, a test script reads what it expects because the agent named it, and nobody is told."""

from __future__ import annotations

import pytest

from sandbox.grading.isolation.directed_commands import find_directed_commands


@pytest.mark.parametrize(
    "command",
    [
        "cat $(cat /app/where)",
        'cat "$(< /app/where)" | grep -q 42',
        "cat `head -1 /app/where`",
        'where=$(cat /app/where | tr -d " ")\ncat "$where"',
        "where=$(cat /app/where); grep -q 42 /app/$where",
        'read -r where < /app/where\nhead -n 1 "$where"',
        'for each in $(cat /app/list); do sha256sum "$each"; done',
        "sqlite3 /app/a.db < /app/query.sql",
        'while IFS= read -r f; do cmp -s "$f" /tests/e; done < /app/list',
        'cat /app/list | tr -d x | while read -r f; do cat "$f"; done',
        'while read -r f; do cat "$f"; done < <(sort /app/list)',
        'mapfile -t all < /app/list; cat "${all[0]}"',
        'f=$(cat /app/list); cat < "$f"',
        'f=$(cat /app/list); while read -r line; do echo "$line"; done < "$f"',
        'f=$(cat /app/list); [ "$(< "$f")" = 42 ]',
        'same() { cmp -s "$1" /tests/e; }; same "$(cat /app/where)"',
        'where() { cat /app/where; }; head -n 1 "$(where)"',
        'cmp -s "$(readlink /app/now)" /tests/e',
        "wc -c --files0-from=/app/list",
        "xargs sha256sum < /app/list",
        'sqlite3 /app/a.db "$(cat /app/query.sql)"',
        "cat /app/query.sql | sqlite3 /app/a.db",
        "psql -d app -f /app/query.sql",
        'sqlite3 /app/a.db ".read /app/query.sql"',
    ],
)
def test_a_command_that_reads_what_the_agent_names_is_found(command: str):
    (found,) = find_directed_commands(f"#!/bin/bash\n{command}\n", {})
    assert (found.file, found.kind) == ("the test script", "directed")
    (found,) = find_directed_commands("bash /tests/a.sh", {"a.sh": command})
    assert (found.file, found.line) == ("a.sh", 1 + command.count("\n"))


@pytest.mark.parametrize(
    "command",
    [
        'got=$(cat /app/answer.txt); [ "$got" = 42 ] && echo "PASSED $got"',
        'wanted=$(cat /tests/wanted)\ncat "$wanted"',
        'for each in $(cat "$TEST_DIR/list"); do cat "$each"; done',
        'n=$(cat /app/n)\nhead -n "$n" /app/out.txt',
        'word=$(cat /app/word); grep -q "$word" /app/out.txt',
        'find /app -name x | while read -r file; do cat "$file"; done',
        "sqlite3 /app/a.db <<EOF\nSELECT 1;\nEOF",
        "sqlite3 /app/a.db < /tests/query.sql; sqlite3 /app/a.db 'SELECT a FROM b WHERE c < 3'",
        'while read -r f; do cat "$f"; done < /tests/list; read -r g < "$TEST_DIR/list"; cat "$g"',
        'list=/tests/list; while read -r f; do cat "$f"; done < "$list"',
        'while read -r f; do cat "/app/$f"; done <<X\na\nb\nX',
        'same() { cmp -s "$1" "$2"; }; same /app/a /tests/a; got=$(cat /app/a | xargs)',
        'f=$(ls /app/out | head -1); cat "/app/out/$f"',
        "if (",
    ],
)
def test_a_command_that_reads_what_the_tests_name_is_none(command: str):
    assert not [*find_directed_commands(f"#!/bin/bash\n{command}\n", {})]


@pytest.mark.parametrize("text", ["cat $(cat /app/a)\n" * 10_000, "echo \ud800\n"])
def test_no_text_holds_or_ends_the_reader(text: str):
    assert not [*find_directed_commands(text, {})]
