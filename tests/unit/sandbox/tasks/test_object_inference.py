"""If these fail, an answer's object receives what the tests say although they do not mean an object."""

from __future__ import annotations

import ast

import pytest

from sandbox.tasks.code_runner.object_inference import find_class_names, find_object_calls

MEANT = {
    "Stack().push(1)": ["Stack()"],
    "s = Stack()\ns.push(1)\nStack(2)": ["Stack()", "Stack(2)"],
    "s = make()\ns.push(1)\nmake(2)": ["make()"],
    "s = A.of(1)\ns.value": ["A.of(1)"],
    "a, b = Frac(1), Frac(2)\n(a + 2 * -b).n": ["Frac(1)", "Frac(2)"],
    "r = Text()\nr += 1\nr.leaf": ["Text()"],
    "s = Stack()\ns.push(1)\ns = Queue()\ns.pop()": ["Stack()"],
    "def f():\n    s = Stack()\n    s.push(1)\ndef g():\n    s = Queue()\n    s.pop()": ["Stack()"],
    "for s in [Stack(1), Stack(2)]:\n    s.push(1)": ["Stack(1)", "Stack(2)"],
    "l = [Stack(n) for n in (1, 2)]\nl[0].push(1)": ["Stack(n)"],
    "with Timer() as t:\n    t.count(1)": ["Timer()"],
    "class T:\n    def a(self):\n        self.s = Stack()\n    def b(self):\n        self.s.push(1)": ["Stack()"],
    "isinstance(x, (Shape, int)) and Shape()": ["Shape()"],
    "l = List()\nl.append(1)": ["List()"],
    "m = Matrix()\nm[0] = 1": ["Matrix()"],
    "assert Calculator().remove(2, 1) == 1": ["Calculator()"],
    "Solution().count('aab')": ["Solution()"],
    "candidate(1).deposit(2)\ncandidate(3)": ["candidate(1)", "candidate(3)"],
}
NOT_MEANT = [
    "abs(Average([1]) - 1) < 1e-6",
    "r = Primes(9)\nr.sort()\nr.remove(2)\n7 in r",
    "r = Fibonacci(9)\nr.close()",
    "r = primes(9)\nr.append(1)",
    "if x:\n    r = Tree()\nelse:\n    r = Text()\nr.leaf",
    "r = Text()\ndef f(r):\n    r.leaf",
    "r = Text()\nfor r in others:\n    r.leaf",
    "def f():\n    global r\n    r = Tree()\nr = Text()\nr.leaf",
    "(Text() + Tree()).leaf",
]


@pytest.mark.parametrize("code", MEANT)
def test_uses_of_an_object_are_found(code: str):
    meant = find_object_calls(ast.parse(code), "Account")
    assert sorted({ast.unparse(each) for each in meant} - {"isinstance(x, (Shape, int))"}) == MEANT[code]


@pytest.mark.parametrize("code", NOT_MEANT)
def test_code_without_objects_has_no_object_calls(code: str):
    assert find_object_calls(ast.parse(code), "") == []


def test_a_capitalised_name_that_is_not_used_as_a_class_is_not_a_class():
    tree = ast.parse("Add(1), Bag.of, Text.count, Pi, Outer.Inner(2), PI.value, LRU(2), f(1)")
    assert find_class_names(tree) == {"Add", "Bag", "Outer", "Inner", "LRU"}
