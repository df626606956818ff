"""If these fail, a right answer is rejected, a wrong one accepted, or a reply can hang or control a worker."""

from __future__ import annotations

import asyncio

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import InfraError
from sandbox.grading.math_answer import MOST_CHARS, extract_boxed, is_right_answer, same_answer
from tests.support.answer_forms import ANSWER_FORMS, NOT_READ, AnswerForm

SAME = [
    ("7", "7th"),
    ("21st", "21"),
    (r"112^{\text{th}}", "112"),
    ("3", "=3"),
    (r"2\sqrt{3}", r"2\sqrt{3} cm"),
    (r"\sqrt{3}", r"\sqrt{3} meters"),
    (r"20\text{ minutes}", "20 min"),
    ("1 inch", "1 inches"),
    (r"5\text{ centimetres}", "5 cm"),
    ("xy", "yx"),
    ("42", "42"),
    (" 42 ", "$42$"),
    ("42.", "42"),
    ("'42'", "42"),
    (r"\text{42}", "42"),
    ("+3", "3"),
    ("3.0", "3"),
    (".5", "0.5"),
    ("1,234,567", "1234567"),
    ("1{,}234", "1234"),
    (r"1\,234", "1234"),
    (r"\$5", "5"),
    (r"50\%", "50"),
    ("50%", r"50\%"),
    (r"90^\circ", "90"),
    (r"90^{\circ}", "90°"),
    (r"5\text{ cm}", "5"),
    (r"12\text{ cm}^2", "12"),
    ("1/2", r"\frac{1}{2}"),
    (r"\frac12", r"\dfrac{1}{2}"),
    (r"\tfrac{2}{4}", "0.5"),
    (r"-\frac{3}{4}", r"\frac{-3}{4}"),
    (r"2\frac{1}{2}", "2.5"),
    (r"\frac{\sqrt{8}}{2}", r"\sqrt{2}"),
    (r"\sqrt2", "2^{1/2}"),
    (r"\sqrt[3]{8}", "2"),
    ("sqrt(3)/3", r"\frac{1}{\sqrt{3}}"),
    (r"\sqrt{16}", "4"),
    ("2^10", "1024"),
    ("2**10", "2^{10}"),
    ("10^{-2}", "0.01"),
    (r"3 \times 10^8", "300000000"),
    (r"6 \div 4", "3/2"),
    ("5!", "120"),
    (r"\binom{5}{2}", "10"),
    ("|-3|", "3"),
    (r"2\pi", r"\pi \cdot 2"),
    ("2pi", r"2\pi"),
    (r"\sin(\pi/6)", r"\frac{1}{2}"),
    (r"\ln e^2", "2"),
    (r"\sin^2 x + \cos^2 x", "1"),
    (r"\sin 2x", r"2\sin x\cos x"),
    ("x + 1", "1+x"),
    ("2xy", "2yx"),
    ("(x+1)^2", "x^2+2x+1"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    ("a_1 + a_{2}", "a_{2}+a_1"),
    (r"\alpha\beta", r"\beta \alpha"),
    ("x = 5", "5"),
    ("f(x) = 2x", "2x"),
    ("y=2x+1", "y = 1 + 2x"),
    ("1, 2", "2, 1"),
    (r"\{1, 2\}", r"\left\{2,1\right\}"),
    ("x = 1, x = 2", "1,2"),
    (r"1 \text{ or } 2", "1, 2"),
    ("(1, 2)", r"\left( 1, \frac{4}{2} \right)"),
    ("[0, 1)", r"\left[0,1\right)"),
    (r"(-\infty, 3]", r"(-\infty,\,3]"),
    ("A", r"\text{(A)}"),
    (r"\text{Yes}", "yes"),
    ("no solution", r"\text{No Solution}"),
    (r"x \ge 5", r"x\ge5"),
    (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
    ("x=1, y=2", "(1,2)"),
    ("(1, 2, 3)", "c = 3, a = 1, b = 2"),
    (r"x=2\text{ and }y=3", "(2,3)"),
    ("x<1 or x>2", r"(-\infty,1)\cup(2,\infty)"),
    (r"1<x<2\text{ or }x \ge 3", r"(1,2)\cup[3,\infty)"),
    (r"\langle 1,2 \rangle", "(1, 2)"),
    ("⟨1, 2, 3⟩", "(1,2,3)"),
    ("10^-3", "0.001"),
    ("x^-1", "1/x"),
    ("6.02 x 10^23", r"6.02\times 10^{23}"),
    (r"0.\dot{3}", r"\frac13"),
    (r"\emptyset", r"\text{No solution}"),
    ("the empty set", r"\{\}"),
    ("infinity", r"\infty"),
    (r"12\text{ cm}^2", "12 square cm"),
    (r"12\text{ cm}^2", "12 sq. centimeters"),
    (r"12\text{ cubic inches}", "12 in^3"),
    ("12", "12 sq. cm"),
    (r"5\text{ m/s}", "5 m/s"),
    (r"9.8\,\mathrm{m/s^2}", "9.8 m/s²"),
    (r"9.8\,\mathrm{m/s^{2}}", "9.8"),
    ("60 mph", r"60\text{ miles per hour}"),
    ("60 km/h", "60 kilometres per hour"),
    ("5 mL", "5 millilitres"),
    ("12 USD", "12"),
    (r"6\text{ in.}", "6 inches"),
    ("3:30 p.m.", r"3{:}30\text{ PM}"),
    ("3:30", "3:30 PM"),
    (r"90^\circ", r"\frac{\pi}{2}"),
    (r"\frac{\pi}{3}", "60 degrees"),
    (r"\frac{2\pi}{3}\text{ radians}", "120°"),
]

DIFFERENT = [
    ("11st", "11"),
    ("7th", "8"),
    (r"20\text{ minutes}", "20 hours"),
    (r"20\text{ minutes}", "20 sec"),
    ("5 m", "5 min"),
    ("2 ab", "2"),
    ("2^{n} m", "2^{n}"),
    ("xy", "xz"),
    ("xy", "xxy"),
    ("tea", "eat"),
    ("XL", "LX"),
    ("a=1, b=2", "(2, 1)"),
    ("42", "43"),
    ("", ""),
    ("", "42"),
    ("1, 42", "42"),
    ("42 or 43", "42"),
    ("1/3", "0.333"),
    (r"\sqrt{2}", "1.414"),
    ("0.1", "0.10001"),
    ("12", "1 2"),
    ("1 2", "2"),
    ("2^{1000000}", "2^{1000001}"),
    ("1/0", "2/0"),
    ("x", "y"),
    ("x+1", "x-1"),
    ("x^2", "x"),
    ("x = 5", "y = 5"),
    ("(1, 2)", "(2, 1)"),
    ("(1, 2)", "[1, 2]"),
    ("(1, 2)", "(1, 2]"),
    ("1, 1, 2", "1, 2, 2"),
    ("1, 2", "1, 2, 3"),
    ("A", "B"),
    ("no", "on"),
    ("yes", "no"),
    ("x > 5", r"x \ge 5"),
    ("-5", "5"),
    ("x=2, y=1", "(1,2)"),
    ("x=1 or x=2", "(1,2)"),
    ("x=1, y=2", "[1,2]"),
    ("x>1 or x<2", "(1,2)"),
    ("x<2 or x>1", r"(-\infty,1)\cup(2,\infty)"),
    (r"x \le 1 or x>2", r"(-\infty,1)\cup(2,\infty)"),
    ("10^-3", "10^3"),
    (r"\emptyset", "0"),
    (r"0.\dot{1}4285\dot{7}", "0.1"),
    ("5 cm", "5 cm^2"),
    (r"5\text{ cm}^2", "5 cubic cm"),
    ("5 m/s", "5 m"),
    ("5 m/s", "5 km/h"),
    ("3 m/n", "3"),
    ("3:30 a.m.", "3:30 PM"),
    (r"\frac{\pi}{2}", "90"),
    (r"\frac{\pi}{2}", r"45^\circ"),
    (r"50\%", r"50\pi^\circ"),
]


@pytest.mark.parametrize(("answer", "wanted"), SAME)
def test_equivalent_answers_are_equal(answer: str, wanted: str) -> None:
    assert same_answer(answer, wanted)
    assert same_answer(wanted, answer)


@pytest.mark.parametrize(("answer", "wanted"), DIFFERENT)
def test_different_answers_are_not_equal(answer: str, wanted: str) -> None:
    assert not same_answer(answer, wanted)
    assert not same_answer(wanted, answer)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (r"So it is \boxed{42}.", "42"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{3}", "3"),
        (r"<think>maybe \boxed{1}</think> I do not know", None),
        (r"<think>maybe \boxed{1}</think> \boxed{2}", "2"),
        (r"\boxed{4", None),
        ("42", None),
        ("", None),
    ],
)
def test_the_answer_is_the_last_box_after_the_thoughts(reply: str, found: str | None) -> None:
    assert extract_boxed(reply) == found


def test_only_a_boxed_answer_counts_and_a_boxed_reference_solution_is_unwrapped() -> None:
    assert is_right_answer(r"It is \boxed{'42'}.", "42")
    assert not is_right_answer("It is 42.", "42")
    assert is_right_answer(r"\boxed{\frac{2}{4}}", r"We get \boxed{\frac{1}{2}}.")


@pytest.mark.parametrize("form", ANSWER_FORMS, ids=str)
def test_forms_that_graders_disagree_about_are_graded_as_a_person_would(form: AnswerForm) -> None:
    reply = form.given if form.kind == "replies" else rf"So \boxed{{{form.given}}}"
    assert is_right_answer(reply, form.expected) is (form.right and form not in NOT_READ)


LIMIT_REACHED = [
    "((((((((((9!)!)!)!)!)!)!)!)!)!)",
    "(" * 400 + "1" + ")" * 400,
    "{" * 500,
    r"\int_0^1 \sin(x^{x^{x}}) dx",
]


@pytest.mark.parametrize(
    "hostile",
    [
        "9^{9^{9^{9}}}",
        "-" * 900 + "1",
        r"\sqrt" * 190 + "2",
        "2^-" * 300 + "2",
        "+".join("1" * 400),
        "__import__('os').system('true')",
        "1" * (MOST_CHARS + 1),
        r"\frac{1}{0}",
        "\\",
        ",".join("1" * 400),
        r"\boxed{" * 100_000,
        r"\boxed{1}, " * 100_000,
        *(pytest.param(text, marks=pytest.mark.slow) for text in LIMIT_REACHED),
    ],
)
def test_an_expensive_or_malicious_answer_is_merely_wrong(hostile: str) -> None:
    assert not is_right_answer(f"\\boxed{{{hostile}}}", "7")


async def test_answers_are_compared_in_any_thread_while_an_event_loop_runs() -> None:
    replies = [rf"\boxed{{x + {number}}}" for number in range(8)]
    right = await asyncio.gather(*(asyncio.to_thread(is_right_answer, reply, "5 + x") for reply in replies))
    assert [number for number, is_right in enumerate(right) if is_right] == [5]


def test_an_ended_process_is_a_failure_and_not_a_wrong_answer() -> None:
    assert same_answer("x + 1", "1 + x")
    for child in psutil.Process().children():
        if any(word.endswith("math_expression.py") for word in child.cmdline()):
            child.kill()
            child.wait()
    with pytest.raises(InfraError, match="make setup"):
        same_answer("x + 1", "1 + x")
    assert same_answer("x + 1", "1 + x")


PIECES = [*"0123456789xye+-*/^!(){}[]|,._= \\", "\\frac", "\\sqrt", "\\sin", "\\text{", "\\{", "or", "pi"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_can_be_compared(text: str) -> None:
    """Otherwise a reply ends a worker's episode repeatedly as an unexpected failure."""
    assert same_answer(text, text) is bool(text.strip())
    assert same_answer(text, "7") is same_answer("7", text)


@settings(max_examples=30, deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_fractions_are_exact(above: int, below: int) -> None:
    assert same_answer(f"{above}/{below}", rf"\frac{{{2 * above}}}{{{2 * below}}}")
    assert not same_answer(f"{above}/{below}", f"{above * 10**9 + 1}/{below * 10**9}")
