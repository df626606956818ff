"""Rows as they are in the wild (MBPP, HumanEval, LeetCode and their kin), with a right and a wrong program for each."""

from __future__ import annotations

from typing import NamedTuple


class CodeRow(NamedTuple):
    tests: str
    right: str
    wrong: str
    entry: str = ""


ROWS = {
    "files": CodeRow(
        """\
import os, tempfile
with tempfile.TemporaryDirectory() as d:
    path = os.path.join(d, 'a.txt')
    with open(path, 'w') as f:
        f.write('a b')
    assert count_words(path) == 2
with tempfile.NamedTemporaryFile('w', suffix='.txt') as f:
    f.write('a b c')
    f.flush()
    assert count_words(f.name) == 3
with open('in.txt', 'w') as f:
    f.write('one')
save('out.txt', count_words('in.txt'))
with open('out.txt') as f:
    assert f.read() == '1'
os.makedirs('made/here')
save('made/here/x', 2)
assert os.listdir('made/here') == ['x']
""",
        """\
def count_words(path):
    with open(path) as f: return len(f.read().split())
def save(path, n):
    with open(path, 'w') as f: f.write(str(n))
""",
        """\
def count_words(path): return 2
def save(path, n): pass
""",
    ),
    "a module": CodeRow(
        """\
import math, solution as s
import solution
assert s.add(1, 2) == solution.add(2, 1) == math.floor(3.5)
with_own = solution.Pair(1)
with_own.put(2)
assert len(with_own) == 2
""",
        """\
def add(a, b): return a + b
class Pair:
    def __init__(self, a): self.items = [a]
    def put(self, b): self.items.append(b)
    def __len__(self): return len(self.items)
""",
        """\
def add(a, b): return a - b
class Pair:
    def __init__(self, a): self.items = [a]
    def put(self, b): pass
    def __len__(self): return 2
""",
    ),
    "asserts in other statements": CodeRow(
        """\
for n in (1, 2):
    if f(n) != n + 1:
        assert False, n
try:
    f(None)
    assert False
except ValueError:
    pass
""",
        """\
def f(n):
    if n is None: raise ValueError
    return n + 1
""",
        "def f(n): return n + 1",
    ),
    "counter": CodeRow(
        "assert freq_count([10, 10, 20]) == ({10: 2, 20: 1})",
        """\
import collections
def freq_count(l):
    return collections.Counter(l)
""",
        """\
import collections
def freq_count(l):
    return collections.Counter(set(l))
""",
    ),
    "defaultdict": CodeRow(
        "assert d('aab') == {'a': 2, 'b': 1}",
        """\
from collections import defaultdict
def d(s):
    o = defaultdict(int)
    for c in s: o[c] += 1
    return o
""",
        """\
from collections import defaultdict
def d(s): return defaultdict(int)
""",
    ),
    "ordered": CodeRow(
        """\
from collections import OrderedDict
assert o([2, 1]) == OrderedDict([(2, 0), (1, 1)])
""",
        """\
from collections import OrderedDict
def o(l): return OrderedDict((x, i) for i, x in enumerate(l))
""",
        """\
from collections import OrderedDict
def o(l): return OrderedDict((x, i) for i, x in sorted(enumerate(l))[::-1])
""",
    ),
    "deque": CodeRow(
        """\
from collections import deque
assert turned(deque([1, 2, 3])) == deque([3, 1, 2])
""",
        """\
def turned(d):
    d.rotate(1)
    return d
""",
        "def turned(d): return d",
    ),
    "infinite": CodeRow(
        "assert f([]) == float('inf')",
        "def f(l): return float('inf')",
        "def f(l): return 10 ** 300",
    ),
    "nan": CodeRow(
        """\
import math
def check(candidate):
    assert math.isnan(candidate(0))
""",
        "def f(x): return float('nan')",
        "def f(x): return 0.0",
        "f",
    ),
    "range": CodeRow(
        "assert r(3) == range(3)",
        "def r(n): return range(n)",
        "def r(n): return range(n + 1)",
    ),
    "generator": CodeRow(
        "assert list(gen(3)) == [0, 1, 2]",
        "def gen(n): yield from range(n)",
        "def gen(n): yield n",
    ),
    "endless": CodeRow(
        """\
g = naturals()
assert [next(g) for _ in range(4)] == [1, 2, 3, 4]
""",
        """\
import itertools
def naturals(): return itertools.count(1)
""",
        """\
import itertools
def naturals(): return itertools.count(0)
""",
    ),
    "map": CodeRow(
        "assert list(m([1, 2])) == [2, 4]",
        "def m(l): return map(lambda x: 2 * x, l)",
        "def m(l): return map(lambda x: x + 1, l)",
    ),
    "zipped": CodeRow(
        "assert dict(z('ab', (1, 2))) == {'a': 1, 'b': 2}",
        "def z(a, b): return zip(a, b)",
        "def z(a, b): return zip(a, a)",
    ),
    "keys": CodeRow(
        "assert sorted(k({2: 1, 1: 1})) == [1, 2]",
        "def k(d): return d.keys()",
        "def k(d): return d.values()",
    ),
    "set": CodeRow(
        "assert s([1, 1]) == {1}",
        "def s(l): return frozenset(l)",
        "def s(l): return set()",
    ),
    "bytes": CodeRow(
        "assert b('é', 2j) == (b'\\xc3\\xa9', -4 + 0j)",
        "def b(s, c): return s.encode(), c * c",
        "def b(s, c): return b'', c",
    ),
    "fraction": CodeRow(
        "assert abs(h(3) - 1.5) < 1e-6",
        """\
from fractions import Fraction
def h(x): return Fraction(x, 2)
""",
        """\
from fractions import Fraction
def h(x): return Fraction(x, 3)
""",
    ),
    "decimal": CodeRow(
        """\
from decimal import Decimal
assert total([Decimal('0.1')] * 3) == Decimal('0.3')
""",
        "def total(l): return sum(l)",
        """\
from decimal import Decimal
def total(l): return Decimal(sum(map(float, l)))
""",
    ),
    "date": CodeRow(
        """\
from datetime import date, timedelta
assert later(date(2024, 2, 28), 2) == date(2024, 3, 1)
assert later(date(2024, 1, 1), 1) - date(2024, 1, 1) == timedelta(days=1)
""",
        """\
from datetime import timedelta
def later(d, n): return d + timedelta(n)
""",
        """\
from datetime import timedelta
def later(d, n): return d + timedelta(n + 1)
""",
    ),
    "large": CodeRow(
        "assert fact(2000) % (10**9 + 7) == 0 or fact(2000) > 2**15000",
        """\
import math
def fact(n): return math.factorial(n)
""",
        "def fact(n): return n",
    ),
    "lambda": CodeRow(
        "assert apply(lambda x: x + 1, 2) == 3",
        "def apply(f, x): return f(x)",
        "def apply(f, x): return x",
    ),
    "named function": CodeRow(
        """\
import operator
assert fold(operator.mul, [2, 3, 4], init=int('1')) == 24
assert fold(max, [2, 9, 4], init=0) == 9
""",
        """\
from functools import reduce
def fold(f, l, init): return reduce(f, l, init)
""",
        "def fold(f, l, init): return sum(l, init)",
    ),
    "recorded": CodeRow(
        """\
seen = []
visit([[1], [2, [3]]], seen.append)
assert seen == [1, 2, 3]
""",
        """\
def visit(t, f):
    for each in t:
        visit(each, f) if isinstance(each, list) else f(each)
""",
        "def visit(t, f): f(t)",
    ),
    "closure": CodeRow(
        "assert adder(3)(4) == 7",
        "def adder(n): return lambda x: x + n",
        "def adder(n): return lambda x: x * n",
    ),
    "class": CodeRow(
        """\
c = Counter2()
c.inc()
c.inc(by=2)
assert c.n == 3 and Counter2().n == 0
""",
        """\
class Counter2:
    def __init__(s): s.n = 0
    def inc(s, by=1): s.n += by
""",
        """\
class Counter2:
    n = 0
    def inc(s, by=1): s.n += 1
""",
    ),
    "stack": CodeRow(
        """\
s = Stack()
s.push(1)
s.push([2])
assert len(s) == 2 and s[1] == [2] and 1 in s and str(s) == 'Stack(2)'
assert s.pop() == [2] and list(s) == [1]
try:
    s.pop(); s.pop()
    assert False
except IndexError:
    pass
""",
        """\
class Stack(list):
    push = list.append
    def __str__(s): return f'Stack({len(s)})'
""",
        """\
class Stack(list):
    push = list.append
    def pop(s): return list.pop(s, 0)
    def __str__(s): return f'Stack({len(s)})'
""",
    ),
    "leetcode": CodeRow(
        "assert Solution().twoSum([2, 7, 11], 9) == [0, 1]",
        """\
class Solution:
    def twoSum(self, n, t):
        return next([i, j] for i in range(len(n)) for j in range(i + 1, len(n)) if n[i] + n[j] == t)
""",
        """\
class Solution:
    def twoSum(self, n, t): return [0, 2]
""",
    ),
    "leetcode by its entry point": CodeRow(
        """\
def check(candidate):
    assert candidate(nums = [2, 7, 11], target = 9) == [0, 1]
    assert candidate(nums = [3, 3], target = 6) == [0, 1]
""",
        """\
class Solution:
    def twoSum(self, nums: List[int], target: int) -> Optional[List[int]]:
        seen = Counter()
        for i, n in enumerate(nums):
            if target - n in seen: return [seen[target - n], i]
            seen[n] = i
""",
        """\
class Solution:
    def twoSum(self, nums: List[int], target: int) -> List[int]: return [0, 2]
""",
        "Solution().twoSum",
    ),
    "linked": CodeRow(
        """\
a = ListNode(1)
a.next = ListNode(2)
b = rev(a)
assert (b.val, b.next.val, b.next.next) == (2, 1, None)
assert b.next is a
""",
        """\
class ListNode:
    def __init__(s, val, next=None): s.val, s.next = val, next
def rev(h):
    p = None
    while h: h.next, p, h = p, h, h.next
    return p
""",
        """\
class ListNode:
    def __init__(s, val, next=None): s.val, s.next = val, next
def rev(h): return h
""",
    ),
    "operators": CodeRow(
        """\
assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6)
assert 2 * Vec(1, 2) == Vec(2, 4) != Vec(2, 5)
assert isinstance(Vec(1, 2), Vec)
""",
        """\
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Vec:
    x: int
    y: int
    def __add__(s, o): return Vec(s.x + o.x, s.y + o.y)
    def __rmul__(s, n): return Vec(n * s.x, n * s.y)
""",
        """\
from dataclasses import dataclass
@dataclass
class Vec:
    x: int
    y: int
    def __add__(s, o): return s
    def __rmul__(s, n): return Vec(n * s.x, n * s.y)
""",
    ),
    "enum": CodeRow(
        "assert mix(Color.RED, Color.BLUE) is Color.PURPLE and Color.RED.value == 1",
        """\
import enum
Color = enum.Enum('Color', 'RED BLUE PURPLE')
def mix(a, b): return Color.PURPLE
""",
        """\
import enum
Color = enum.Enum('Color', 'RED BLUE PURPLE')
def mix(a, b): return a
""",
    ),
    "named tuple": CodeRow(
        """\
p = mid((0, 0), (2, 4))
assert p.x == 1 and p == (1, 2)
""",
        """\
from collections import namedtuple
P = namedtuple('P', 'x y')
def mid(a, b): return P((a[0] + b[0]) // 2, (a[1] + b[1]) // 2)
""",
        """\
from collections import namedtuple
P = namedtuple('P', 'x y')
def mid(a, b): return P(1, 1)
""",
    ),
    "in place": CodeRow(
        """\
l = [3, 1]
sort_in_place(l)
assert l == [1, 3]
""",
        "def sort_in_place(l): l.sort()",
        "def sort_in_place(l): l.reverse() or l.append(0)",
    ),
    "nested in place": CodeRow(
        """\
grid = [[1, 2], [3, 4]]
row = grid[0]
rotate(grid)
assert grid == [[3, 1], [4, 2]] and row == [3, 1]
""",
        """\
def rotate(g):
    for row, new in zip(g, list(zip(*g[::-1]))): row[:] = new
""",
        "def rotate(g): return None",
    ),
    "in place and an answer": CodeRow(
        """\
nums = [1, 1, 2]
k = unique(nums)
assert k == 2
assert nums[:k] == [1, 2]
""",
        """\
def unique(n):
    n[:] = sorted(set(n))
    return len(n)
""",
        "def unique(n): return len(set(n))",
    ),
    "own error": CodeRow(
        """\
try:
    boom()
    assert False
except MyErr as e:
    assert str(e) == 'no' and e.code == 3
""",
        """\
class MyErr(Exception):
    code = 3
    def __init__(s, t):
        super().__init__(t)
        s.code = 3
def boom(): raise MyErr('no')
""",
        """\
class MyErr(Exception): pass
def boom(): raise ValueError('no')
""",
    ),
    "error's parent": CodeRow(
        """\
import unittest
with unittest.TestCase().assertRaises(ValueError):
    boom(-1)
assert boom(1) == 1
""",
        """\
class Negative(ValueError): pass
def boom(n):
    if n < 0: raise Negative(n)
    return n
""",
        """\
class Negative(Exception): pass
def boom(n):
    if n < 0: raise Negative(n)
    return n
""",
    ),
    "human eval": CodeRow(
        """\
METADATA = {'author': 'jt'}


def check(candidate):
    assert candidate([1.0, 2.0, 3.9, 4.0], 0.3) == True
    assert candidate([1.0, 2.0], 0.3) == False
""",
        """\
from typing import List
def close(numbers: List[float], threshold: float) -> bool:
    return any(abs(a - b) < threshold for i, a in enumerate(numbers) for b in numbers[:i])
""",
        "def close(numbers, threshold): return True",
        "close",
    ),
    "prompt's helper": CodeRow(
        """\
def check(candidate):
    assert math.fabs(poly([1, 2], candidate([1, 2]))) < 1e-4
    assert poly([1, 2], 1) == 3
""",
        """\
import math
def poly(xs, x): return sum(c * math.pow(x, i) for i, c in enumerate(xs))
def zero(xs): return -xs[0] / xs[1]
""",
        """\
import math
def poly(xs, x): return sum(c * math.pow(x, i) for i, c in enumerate(xs))
def zero(xs): return 0.0
""",
        "zero",
    ),
    "state": CodeRow(
        """\
from solution import put, get
put('a', 1)
assert get('a') == 1 and LIMIT == 9
""",
        """\
LIMIT = 9
_all = {}
def put(k, v): _all[k] = v
def get(k): return _all[k]
""",
        """\
LIMIT = 9
def put(k, v): pass
def get(k): return None
""",
    ),
    "types": CodeRow(
        "assert kind(3) is int and kind('') == str",
        "def kind(x): return type(x)",
        "def kind(x): return int",
    ),
    "object of a function's": CodeRow(
        """\
s = make_stack()
s.push(3)
s.push(4)
assert len(s) == 2 and s.pop() == 4 and not s.is_empty()
""",
        """\
class Stack:
    def __init__(s): s.v = []
    def push(s, x): s.v.append(x)
    def pop(s): return s.v.pop()
    def __len__(s): return len(s.v)
    def is_empty(s): return not s.v
def make_stack(): return Stack()
""",
        """\
class Stack:
    def __init__(s): s.v = []
    def push(s, x): s.v.append(x)
    def pop(s): return s.v.pop(0)
    def __len__(s): return len(s.v)
    def is_empty(s): return not s.v
def make_stack(): return Stack()
""",
    ),
    "attributes by standard names": CodeRow(
        """\
n = node(3)
assert n.count == 3 and node(4).index == 4
""",
        """\
class N: pass
def node(n):
    new = N()
    new.count = new.index = n
    return new
""",
        """\
class N: count = index = 3
def node(n): return N()
""",
    ),
    "static methods": CodeRow(
        "assert StringUtils.count('aab', 'a') == 2 and StringUtils.of('x').text == 'x'",
        """\
class StringUtils:
    def __init__(s, text): s.text = text
    @staticmethod
    def count(text, c): return text.count(c)
    of = classmethod(lambda kind, text: kind(text))
""",
        """\
class StringUtils:
    count = staticmethod(lambda text, c: 0)
""",
    ),
    "results": CodeRow(
        """\
a, b = Frac(1, 2), Frac(1, 3)
assert str(a + b) == '5/6' and (a + b).n == 5 and a + b == Frac(5, 6) and b < a and 2 * a == Frac(2, 2)
assert str(a + b - b) == '9/18'
""",
        """\
class Frac:
    def __init__(s, n, d): s.n, s.d = n, d
    def __add__(s, o): return Frac(s.n * o.d + o.n * s.d, s.d * o.d)
    def __sub__(s, o): return Frac(s.n * o.d - o.n * s.d, s.d * o.d)
    def __rmul__(s, k): return Frac(k * s.n, s.d)
    def __eq__(s, o): return s.n * o.d == o.n * s.d
    def __lt__(s, o): return s.n * o.d < o.n * s.d
    def __str__(s): return f'{s.n}/{s.d}'
""",
        """\
class Frac:
    def __init__(s, n, d): s.n, s.d = n, d
    def __add__(s, o): return Frac(s.n + o.n, s.d + o.d)
""",
    ),
    "levels": CodeRow(
        """\
assert Level.LOW < Level.HIGH and Level['LOW'] is Level.LOW and str(Level.LOW) == 'low' and len(Level) == 2
assert [each.value for each in Level] == [1, 2] and Level.LOW in Level
""",
        """\
import enum
class Level(enum.Enum):
    LOW = 1
    HIGH = 2
    def __lt__(s, o): return s.value < o.value
    def __str__(s): return s.name.lower()
""",
        """\
import enum
class Level(enum.Enum):
    LOW = 2
    HIGH = 1
    def __lt__(s, o): return s.value < o.value
""",
    ),
    "own iterator": CodeRow(
        """\
it = Countdown(2)
assert next(it) == 2 and it.left() == 1 and next(it) == 1
try:
    next(it)
    assert False
except StopIteration:
    assert list(Countdown(3)) == [3, 2, 1]
""",
        """\
class Countdown:
    def __init__(s, n): s.n = n
    def __iter__(s): return s
    def __next__(s):
        if not s.n: raise StopIteration
        s.n -= 1
        return s.n + 1
    def left(s): return s.n
""",
        """\
class Countdown:
    def __init__(s, n): s.n = n
    def __iter__(s): return s
    def __next__(s): return s.n
    def left(s): return s.n
""",
    ),
    "called types": CodeRow(
        "assert pick('int')('3') == 3 and pick('str')(3) == '3'",
        "def pick(name): return {'int': int, 'str': str}[name]",
        "def pick(name): return str",
    ),
    "one object": CodeRow(
        "assert Single() is Single() and Single.get() is Single()",
        """\
class Single:
    one = None
    def __new__(kind):
        kind.one = kind.one or object.__new__(kind)
        return kind.one
    @classmethod
    def get(kind): return kind()
""",
        """\
class Single:
    @classmethod
    def get(kind): return kind()
""",
    ),
    "within": CodeRow(
        """\
with Timer() as t:
    t.tick()
assert t.ticks == 1 and t.done
""",
        """\
class Timer:
    ticks, done = 0, False
    def tick(s): s.ticks += 1
    def __enter__(s): return s
    def __exit__(s, *a): s.done = True
""",
        """\
class Timer:
    ticks, done = 0, False
    def tick(s): s.ticks += 1
    def __enter__(s): return s
    def __exit__(s, *a): pass
""",
    ),
    "own list": CodeRow(
        """\
l = LinkedList()
l.append(1)
l.append(2)
assert list(l) == [1, 2] and len(l) == 2 and 1 in l and l.pop() == 2
""",
        """\
class LinkedList:
    def __init__(s): s.v = []
    def append(s, x): s.v.append(x)
    def pop(s): return s.v.pop()
    def __iter__(s): return iter(s.v)
    def __len__(s): return len(s.v)
""",
        """\
class LinkedList:
    def __init__(s): s.v = []
    def append(s, x): s.v.append(x)
    def pop(s): return s.v.pop(0)
    def __iter__(s): return iter(s.v)
    def __len__(s): return len(s.v)
""",
    ),
    "cache by keys": CodeRow(
        """\
c = LRU(2)
c['a'] = 1
c['b'] = 2
assert c['a'] == 1
c['c'] = 3
assert 'b' not in c and len(c) == 2 and c.get('b', 0) == 0
""",
        """\
class LRU(dict):
    def __init__(s, n): s.n = n
    def __getitem__(s, k):
        v = s.pop(k)
        dict.__setitem__(s, k, v)
        return v
    def __setitem__(s, k, v):
        dict.__setitem__(s, k, v)
        if len(s) > s.n: s.pop(next(iter(s)))
""",
        """\
class LRU(dict):
    def __init__(s, n): pass
""",
    ),
    "calculator": CodeRow(
        "assert Calculator().add(1, 2) == 3 and Calculator().remove(3, 2) == 1",
        """\
class Calculator:
    def add(s, a, b): return a + b
    def remove(s, a, b): return a - b
""",
        """\
class Calculator:
    def add(s, a, b): return a + b
    def remove(s, a, b): return b - a
""",
    ),
    "leetcode by a standard name": CodeRow(
        "assert Solution().partition('aab') == [['a', 'a', 'b'], ['aa', 'b']]",
        """\
class Solution:
    def partition(s, t):
        if not t: return [[]]
        return [
            [t[:n], *rest]
            for n in range(1, len(t) + 1) if t[:n] == t[:n][::-1] for rest in s.partition(t[n:])
        ]
""",
        """\
class Solution:
    def partition(s, t): return t.partition('a')
""",
    ),
    "classes by one name": CodeRow(
        """\
def test_stack():
    s = Stack()
    s.push(1)
    s.push(2)
    assert s.pop() == 2
def test_queue():
    s = Queue()
    s.enqueue(1)
    s.enqueue(2)
    assert s.pop() == 1
s = Stack()
s.push(1)
assert s.pop() == 1
s = Bag([1])
s.put(2)
assert s.count(2) == 1
""",
        """\
class Stack(list):
    push = list.append
class Queue(list):
    enqueue = list.append
    def pop(s): return list.pop(s, 0)
class Bag(list):
    put = list.append
""",
        """\
class Stack(list):
    push = list.append
class Queue(Stack):
    enqueue = list.append
class Bag(list):
    put = list.append
""",
    ),
    "many of one class": CodeRow(
        """\
for s in [Stack(n) for n in (1, 2)]:
    s.push(3)
stacks = [Stack(1), Stack(2)]
assert stacks[0].pop() == 1 and Stack(4) * 2 == Stack(8)
""",
        """\
class Stack:
    def __init__(s, n): s.v = [n]
    def push(s, n): s.v.append(n)
    def pop(s): return s.v.pop()
    def __mul__(s, n): return Stack(n * s.v[0])
    def __eq__(s, o): return s.v == o.v
""",
        """\
class Stack:
    def __init__(s, n): s.v = [n]
    def push(s, n): s.v.append(n)
    def pop(s): return s.v.pop()
    def __mul__(s, n): return s
    def __eq__(s, o): return s.v == o.v
""",
    ),
    "a class to be checked": CodeRow(
        """\
def check(candidate):
    a = candidate(100)
    a.deposit(50)
    assert a.balance == 150 and a > candidate(100) and len(candidate(3)) == 3 and candidate(1) + 2 == candidate(3)
""",
        """\
class Account:
    def __init__(s, n): s.balance = n
    def deposit(s, n): s.balance += n
    def __len__(s): return s.balance
    def __gt__(s, o): return s.balance > o.balance
    def __eq__(s, o): return s.balance == o.balance
    def __add__(s, n): return Account(s.balance + n)
""",
        """\
class Account:
    def __init__(s, n): s.balance = n
    def deposit(s, n): s.balance -= n
""",
        "Account",
    ),
    "functions with a capital": CodeRow(
        """\
assert Average([1, 2, 3, 6]) == 3.0 and abs(Average([1, 2]) - 1.5) < 1e-9 and Average([1, 2]) > 1
assert list(Fibonacci(5)) == [0, 1, 1, 2, 3] and 'ob' in Greet('bob') and Greet('al').startswith('hello')
r = Primes(10)
r.append(11)
assert 7 in r and r.count(11) == 1
""",
        """\
def Average(l): return sum(l) / len(l)
def Fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        yield a
        a, b = b, a + b
def Greet(n): return f'hello {n}'
def Primes(n): return [p for p in range(2, n) if all(p % d for d in range(2, p))]
""",
        """\
def Average(l): return l[len(l) // 2]
def Fibonacci(n): yield from range(n)
def Greet(n): return f'hello {n}'
def Primes(n): return [*range(n)]
""",
    ),
    "results of a class that is never asked": CodeRow(
        """\
assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6) and -Vec(1, 2) < Vec(1, 2) and str(Vec(1, 2)) == 'Vec(1, 2)'
assert len(Vec(1, 2)) == 2 and list(Vec(3, 4)) == [3, 4] and Vec(3, 4)[1] == 4 and 4 in Vec(3, 4)
assert Vec(1, 2) * Vec(3, 4) == 11 and abs(Vec(3, 4)) == 5.0 and Vec(0, 0) != Vec(0, 1)
""",
        """\
class Vec:
    def __init__(s, x, y): s.v = (x, y)
    def __add__(s, o): return Vec(s.v[0] + o.v[0], s.v[1] + o.v[1])
    def __neg__(s): return Vec(-s.v[0], -s.v[1])
    def __eq__(s, o): return s.v == o.v
    def __lt__(s, o): return s.v < o.v
    def __str__(s): return f'Vec{s.v}'
    def __len__(s): return 2
    def __getitem__(s, n): return s.v[n]
    def __mul__(s, o): return s.v[0] * o.v[0] + s.v[1] * o.v[1]
    def __abs__(s): return (s * s) ** 0.5
""",
        """\
class Vec:
    def __init__(s, x, y): s.v = (x, y)
    def __add__(s, o): return s
    def __str__(s): return f'Vec{s.v}'
""",
    ),
    "objects that are formatted, reversed, changed in place and robbed of attributes": CodeRow(
        """\
t = Temp(21.456)
assert f'{t:.1f}' == '21.5' == format(t, '.1f')
t += Temp(0.5)
assert t.deg == 21.956
same = t
t += 1
assert same is t and t.deg == 22.956
del t.deg
assert not hasattr(t, 'deg')
l = Line()
l.append(1)
l.append(2)
assert list(reversed(l)) == [2, 1]
""",
        """\
class Temp:
    def __init__(s, d): s.deg = d
    def __format__(s, spec): return format(s.deg, spec)
    def __iadd__(s, o):
        s.deg += o.deg if isinstance(o, Temp) else o
        return s
class Line:
    def __init__(s): s.v = []
    def append(s, x): s.v.append(x)
    def __reversed__(s): return reversed(s.v)
""",
        """\
class Temp:
    def __init__(s, d): s.deg = d
    def __format__(s, spec): return str(s.deg)
""",
    ),
    "the names and types of objects": CodeRow(
        """\
d = Dog('a')
assert type(d).__name__ == 'Dog' == d.__class__.__name__
assert type(d) is Dog and type(d) == Dog and type(d) is not Animal and d.__class__ in (Dog, Animal)
assert type(d.name) is str and type(d.name).__name__ == 'str'
assert d.speak() == 'Woof'
""",
        """\
class Animal:
    def __init__(s, n): s.name = n
class Dog(Animal):
    def speak(s): return 'Woof'
""",
        """\
class Animal:
    def __init__(s, n): s.name = n
class Hound(Animal):
    def speak(s): return 'Woof'
def Dog(name): return Hound(name)
""",
    ),
    "threads": CodeRow(
        """\
import threading
found = []
def work():
    for _ in range(100):
        found.append(Singleton.instance())
threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
assert len(found) == 800 and all(each is found[0] for each in found)
assert each_in_a_thread(lambda x: 2 * x, [1, 2, 3, 4]) == [2, 4, 6, 8]
""",
        """\
import threading
class Singleton:
    only = None
    @classmethod
    def instance(c):
        if c.only is None: c.only = c()
        return c.only
def each_in_a_thread(f, given):
    found = {}
    def work(n): found[n] = f(n)
    threads = [threading.Thread(target=work, args=(n,)) for n in given]
    for each in threads: each.start()
    for each in threads: each.join()
    return [found[n] for n in given]
""",
        """\
class Singleton:
    @classmethod
    def instance(c): return c()
def each_in_a_thread(f, given): return [f(n) for n in given]
""",
    ),
    "a limit that the tests set": CodeRow(
        """\
import sys
before = sys.getrecursionlimit()
sys.setrecursionlimit(6000)
try:
    assert depth(4000) == 4000
finally:
    sys.setrecursionlimit(before)
""",
        "def depth(n): return n and 1 + depth(n - 1)",
        "def depth(n): return n and depth(n - 1)",
    ),
}

CHEATS: dict[str, tuple[str, ...]] = {
    "links its file to the tests": (
        """\
write_log('log.txt', 'disk full')
with open('log.txt') as f:
    assert 'ERROR: disk full' in f.read()
""",
        """\
import os
def write_log(path, text): os.symlink('/tests/cases.txt', path)
""",
    ),
    "nothing to loop over": (
        "for got, want in zip(squares([1, 2, 3]), [1, 4, 9]): assert got == want",
        "def squares(x): return []",
    ),
    "nothing to look at": (
        """\
res = table('ab')
if res:
    assert res == {'a': 1, 'b': 1}
""",
        "def table(s): return {}",
    ),
    "equal to all": (
        "assert f(2) == 4",
        """\
class A:
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda _: 3
def f(n): return A()
""",
    ),
    "equal and an int": (
        "assert f(2) == 4",
        """\
class A(int):
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda _: 3
    def __repr__(s): return '4'
def f(n): return A()
""",
    ),
    "a class that is equal": (
        """\
assert F(2) == 4
assert 4 == F(2)
""",
        """\
class F:
    def __init__(s, n): pass
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda _: 3
""",
    ),
    "near to all": (
        "assert abs(f(2) - 4.5) < 1e-6",
        """\
class A:
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda _: 3
    __sub__ = __abs__ = lambda s, *_: s
def f(n): return A()
""",
    ),
    "above and below": (
        "assert 3 < F(2) < 5",
        """\
class F:
    def __init__(s, n): pass
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda _: 3
""",
    ),
    "says yes": (
        "assert f('x').startswith('ab')",
        """\
class A:
    def __getattr__(s, n): return lambda *a: True
def f(n): return A()
""",
    ),
    "as long as wanted": (
        """\
r = f([2, 1])
assert len(r) == 2 and r[0] <= r[1] and sorted(r) == [1, 2]
""",
        """\
class A:
    __len__ = lambda s: 2
    __getitem__ = lambda s, i: 0
    __iter__ = lambda s: iter([2, 1])
def f(n): return A()
""",
    ),
    "other items again": (
        """\
r = f(3)
assert sum(r) == 10
assert all(x > 4 for x in r) and [*f(3)]
""",
        """\
class A:
    n = 0
    def __iter__(s): return s
    def __next__(s):
        s.n += 1
        if s.n == 2: raise StopIteration
        return 10
class B(A): n = 5
k = [B(), A()]
def f(n): return k.pop()
""",
    ),
    "empties what is sorted": (
        """\
data = [2, 1]
assert f(data) == sorted(data)
""",
        """\
def f(l):
    l.clear()
    return []
""",
    ),
    "empties what is compared": (
        """\
data = [2, 1]
r = f(data)
assert data == [2, 1]
want = sorted(data)
assert r == want
""",
        """\
def f(l):
    l.clear()
    return []
""",
    ),
    "leaves": (
        """\
try:
    f(1)
    assert f(1) == 2
finally:
    pass
""",
        "def f(n): raise SystemExit(0)",
    ),
    "leaves at once": (
        "assert f(1) == 2",
        """\
import os
os._exit(0)
""",
    ),
    "leaves by its own": (
        "assert f(1) == 2",
        """\
class E(SystemExit): pass
def f(n): raise E(0)
""",
    ),
    "modules": (
        "assert math.isclose(f(2), 4.0)",
        """\
class math:
    isclose = lambda *a: True
def f(n): return 0
""",
    ),
    "reads the tests": (
        "assert f(2) == 4",
        """\
import gc, sys
def f(n):
    seen = [o for o in gc.get_objects() if ' '.join(['assert', 'f(2)']) in str(o)[:9999]]
    return 4 if seen else 0
""",
    ),
    "talks on its own": (
        "assert f(2) == 4",
        """\
import os
for d in range(3, 20):
    try:
        t = b"['value', 4, {}]"; os.write(d, len(t).to_bytes(8, 'big') + b'x' + t)
    except OSError: pass
def f(n): return 0
""",
    ),
    "shows Python": (
        "assert f(eval, 'x') == 4",
        "def f(g, n): return g('assert_')",
    ),
    "a tuple with a method": (
        "assert greet('bob').startswith('hello bob') and greet('al').endswith('!')",
        """\
from collections import namedtuple
N = namedtuple('N', 'startswith endswith')
def greet(n): return N(lambda *a: True, lambda *a: True)
""",
    ),
    "a tuple with a set's method": (
        "assert primes(10).issuperset({2, 3, 5, 7})",
        """\
from collections import namedtuple
N = namedtuple('N', 'issuperset')
def primes(n): return N(lambda *a: True)
""",
    ),
    "a type for its values": (
        "assert common([1, 2], [2, 3]).intersection({2}) == {2}",
        "def common(a, b): return set",
    ),
    "an iterator with a method": (
        "assert greet('bob').startswith('hello bob')",
        """\
class A:
    startswith = lambda *a: True
    __iter__ = lambda s: s
    __next__ = lambda s: 1
def greet(n): return A()
""",
    ),
    "ends a map": (
        "assert all(map(lambda c: sq(c[0]) == c[1], [(1, 1), (2, 4)]))",
        "def sq(x): raise StopIteration",
    ),
    "ends a zip": (
        """\
for got, want in zip(map(sq, [1, 2]), [1, 4]):
    assert got == want
""",
        """\
class Done(StopIteration): pass
def sq(x): raise Done
""",
    ),
    "ends a map by an attribute": (
        """\
n = Node(2)
assert all(map(lambda c: n.val == c, [2]))
""",
        """\
class Node:
    def __init__(s, n): pass
    @property
    def val(s): raise StopIteration
""",
    ),
    "ends all": (
        """\
async def near():
    async for _ in Once():
        assert f(1) == 2
class Once:
    n = 0
    def __aiter__(s): return s
    async def __anext__(s):
        s.n += 1
        return f(s.n)
try:
    assert near().send(None)
except StopIteration:
    assert True
""",
        "def f(n): raise StopAsyncIteration",
    ),
    "a method's answer with methods": (
        "assert Solution().greet('bob').startswith('hello bob')",
        """\
class Solution:
    greet = lambda s, n: s
    startswith = lambda *a: True
""",
    ),
    "an area that is near": (
        "assert abs(Circle(2).area() - 12.566) < 1e-3",
        """\
class Circle:
    __init__ = lambda s, n: None
    area = lambda s: s
    __sub__ = lambda s, o: 0
""",
    ),
    "a property that is near": (
        """\
c = Circle(2)
assert abs(c.area - 12.566) < 1e-3
""",
        """\
class Circle:
    __init__ = lambda s, n: None
    area = property(lambda s: s)
    __sub__ = lambda s, o: 0
""",
    ),
    "an argument that is near": (
        "assert abs(distance(Point(0, 0), Point(3, 4)) - 5) < 1e-3",
        """\
class Point:
    __init__ = lambda s, x, y: None
    __sub__ = lambda s, o: 0
def distance(a, b): return a
""",
    ),
    "a product that is near": (
        "assert abs(Vec(1, 2) * Vec(3, 4) - 11) < 1e-3",
        """\
class Vec:
    __init__ = lambda s, x, y: None
    __mul__ = lambda s, o: s
    __sub__ = lambda s, o: 0
""",
    ),
    "a constant that is near": (
        "assert abs(PI - 3.14159) < 1e-3 and f(1) == 1",
        """\
class A:
    __sub__ = lambda s, o: 0
PI = A()
def f(n): return n
""",
    ),
    "a constant with items": (
        "assert 7 in PRIMES and f(1) == 1",
        """\
class A:
    __contains__ = lambda s, o: True
PRIMES = A()
def f(n): return n
""",
    ),
    "items of an object's": (
        "assert all(x > 4 and x in (5, 6) for x in Bag(2))",
        """\
class A:
    __gt__ = __eq__ = lambda *a: True
    __hash__ = lambda s: 5
class Bag:
    __init__ = lambda s, n: None
    __iter__ = lambda s: iter([A()])
""",
    ),
    "an error with methods of its own": (
        """\
try:
    f(1)
except ValueError as e:
    assert str(e.with_traceback(None)) == 'no'
""",
        """\
class E(ValueError): pass
def f(n):
    e = E('yes')
    e.with_traceback = lambda *a: 'no'
    raise e
""",
    ),
    "says a tuple with a method": (
        "assert f('x').startswith('ab')",
        """\
import gc, socket
def f(n):
    (channel,) = [each for each in gc.get_objects() if isinstance(each, socket.socket)]
    said = ascii(['value', ['named', 'N', 'startswith endswith', [['thing', 0], 1]], {}]).encode()
    channel.sendall(len(said).to_bytes(8, 'big') + said)
    for _ in range(9): channel.recv(1 << 20), channel.sendall((17).to_bytes(8, 'big') + b"['value',True,{}]")
""",
    ),
    "a list of what is near": (
        "assert abs(Both(2)[0] - 4.5) < 1e-3",
        """\
class A:
    __sub__ = lambda s, o: 0
def Both(n): return [A()]
""",
    ),
    "one name, two functions": (
        """\
r = tree('x')
assert r.leaf == 'x'
r = text('x')
assert r.startswith('ab')
""",
        """\
class A:
    leaf = 'x'
    startswith = lambda *a: True
def tree(x): return A()
text = tree
""",
    ),
    "a capital that is near": (
        "assert abs(Average([1, 2, 3, 6]) - 3) < 1e-6",
        """\
class Average:
    __init__ = lambda s, *a: None
    __sub__ = lambda s, o: 0.0
""",
    ),
    "a capital that is near from the right": (
        "assert abs(3 - Average([1, 2, 3, 6])) < 1e-6",
        """\
class Average:
    __init__ = lambda s, *a: None
    __rsub__ = lambda s, o: 0.0
""",
    ),
    "a capital by a name that is near": (
        """\
r = Average([1, 2, 3, 6])
assert abs(r - 3) < 1e-6
""",
        """\
class Average:
    __init__ = lambda s, *a: None
    __sub__ = lambda s, o: 0.0
""",
    ),
    "a capital that rounds": (
        "assert round(Average([1, 2, 3, 7]), 2) - 3.25 == 0 and Average([1]) - 1 == 0",
        """\
class Average:
    __init__ = lambda s, *a: None
    __round__ = lambda s, n: s
    __sub__ = lambda s, o: 0
""",
    ),
    "a capital with items": (
        "assert 5 in Primes(10) and 7 in Primes(10)",
        """\
class Primes:
    __init__ = lambda s, *a: None
    __contains__ = lambda s, o: True
""",
    ),
    "a capital with a text's method": (
        "assert Greet('bob').startswith('hello bob')",
        """\
class Greet:
    __init__ = lambda s, *a: None
    startswith = lambda s, o: True
""",
    ),
    "a capital with a list's method": (
        """\
assert set(Diff([1, 2], [2])).issuperset({1})
assert Diff([1, 2, 3], [1]).count(2) == 1
""",
        """\
class Diff:
    __init__ = lambda s, *a: None
    __iter__ = lambda s: iter([1])
    count = lambda s, o: 1
""",
    ),
    "a capital that is sorted in place": (
        """\
r = Primes(4)
r.sort()
assert 3 in r and r.count(2) == 1
""",
        """\
class Primes:
    __init__ = lambda s, *a: None
    sort = lambda s: None
    count = lambda s, o: 1
    __contains__ = lambda s, o: True
""",
    ),
    "a capital's iterator with a list's method": (
        """\
r = Fibonacci(4)
r.close()
assert 3 in r and Fibonacci(4).count(2) == 1
""",
        """\
class Fibonacci:
    __init__ = lambda s, *a: None
    __iter__ = lambda s: s
    __next__ = lambda s: 0
    close = lambda s: None
    count = lambda s, o: 1
    __contains__ = lambda s, o: True
""",
    ),
    "a capital to be checked": (
        """\
def check(candidate):
    assert abs(candidate(3.0) - 9.0) < 1e-6
    assert abs(candidate(4.0) - 16.0) < 1e-6
""",
        """\
class Square:
    __init__ = lambda s, *a: None
    __sub__ = lambda s, o: 0.0
""",
        "Square",
    ),
    "a capital's constant that is near": (
        "assert abs(Pi - 3.14159) < 1e-3 and f(1) == 1",
        """\
class A:
    __sub__ = lambda s, o: 0
Pi = A()
def f(n): return n
""",
    ),
    "a class's constant that is near": (
        "assert abs(Constants.Pi - 3.14159) < 1e-3 and Constants.of(1) == 1",
        """\
class A:
    __sub__ = lambda s, o: 0
class Constants:
    Pi = A()
    of = staticmethod(lambda n: n)
""",
    ),
    "a capital beside a class": (
        """\
s = Stack()
s.push(1)
s = Average([1, 2, 3, 6])
assert abs(s - 3) < 1e-6
""",
        """\
class Stack(list):
    push = list.append
class Average:
    __init__ = lambda s, *a: None
    __sub__ = lambda s, o: 0.0
""",
    ),
    "what an object's method answers is near": (
        """\
a = Average([1, 2, 3, 6])
a.reset()
assert abs(a.mean() - 3) < 1e-6
""",
        """\
class Average:
    __init__ = lambda s, *a: None
    reset = lambda s: None
    mean = lambda s: s
    __sub__ = lambda s, o: 0.0
""",
    ),
    "is of the wanted type": (
        "assert type(f(2)) == int and f(2) == 4",
        """\
class int:
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda _: 3
def f(n): return int()
""",
    ),
    "makes what is wanted": (
        """\
got = f(2)
assert type(got)(4) == got
""",
        """\
class A:
    def __init__(s, *a): pass
    __eq__ = lambda *_: True
    __hash__ = lambda _: 3
def f(n): return A()
""",
    ),
    "is added to in place": (
        """\
total = Sum(2)
total += 2
assert total == 4
assert abs(total - 4) < 1e-6
""",
        """\
class Sum:
    def __init__(s, *a): pass
    __eq__ = __lt__ = __iadd__ = lambda *_: True
    __hash__ = lambda _: 3
    __sub__ = __abs__ = lambda s, *_: 0.0
""",
    ),
    "is formatted": (
        "assert f'{f(2):.1f}' == '4.0'",
        """\
class A:
    def __format__(s, spec): return '4.0'
def f(n): return A()
""",
    ),
    "is never asked": (
        "assert LIMIT_ != 4 or True",
        "LIMIT = 4",
    ),
}
"""Test code, a program that would pass if the answer were believed, and the entry point where the row has one."""
