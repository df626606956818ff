"""Random lines of bash, harmless to their shell: they neither end it, nor read its input, nor depend on time."""

from __future__ import annotations

import random
import re
import subprocess

VARIABLES = ("a", "b", "c", "PWD", "U", "IFS", "REPLY", "list", "map")
_WORDS = tuple(
    r"""
x
'two words'
"$a"
$b
${list[@]}
${c:-none}
$((RANDOM * 0 + 3))
$?
${#a}
~
*
f{1,2}
$(echo sub; (exit 3))
`echo old`
$'tab\t'
\$
"${PIPESTATUS[*]}"
$_
$#
"${a/x/y}"
$LINENO
""".strip().splitlines()
)
_TESTS = tuple(
    r"""
[ -f /etc/passwd ]
[[ $a == x* ]]
[[ -z $b ]]
(( ${#a} > 1 ))
test -d /usr
[ 1 -gt
true
false
""".strip().splitlines()
)
_ERRORS = tuple(
    r"""
if then fi
echo )
}
done
nosuchcommand
cd /nosuch
[ a
echo ${a!}
((1 +))
fi; echo
""".strip().splitlines()
)
_SETTINGS = tuple(
    r"""
set -x
set +x
set -u
set +u
set -v
set +v
set -n
set -f
set +f
set -C
set +C
set -o posix
set +o posix
set -o pipefail
set +o pipefail
set -k
set +k
set -T
set +T
set -E
set +E
set -b
set +o emacs
set +o vi
shopt -uo emacs
set +o emacs; echo off
shopt -s extglob
shopt -s nullglob
shopt -u nullglob
shopt -s extdebug
shopt -u extdebug
set -- one 'two 2'
shopt -u expand_aliases
shopt -s expand_aliases
shopt -s lastpipe
shopt -s xpg_echo
shopt -u xpg_echo
set --
trap 'echo debug' DEBUG
trap 'echo error $?' ERR
trap 'echo returned' RETURN
trap - DEBUG
trap - ERR RETURN
trap 'echo usr' USR1; kill -USR1 "$$"
trap 'echo continued' CONT
trap -p
PS4='+$? '
PS4='+ '
PS0='<$?>\n'
unset PS0
PROMPT_COMMAND='echo prompt $?'
unset PROMPT_COMMAND
PROMPT_COMMAND=(true 'echo two')
IFS=
IFS=12
unset IFS
LC_ALL=xx
unset LC_ALL
TMOUT=100
unset TMOUT
unset PWD
PWD=/forged
OLDPWD=x
ulimit -S -n 64
umask 027
umask 022
hash -r
alias e='echo aliased' g=false
unalias -a
enable -n printf
enable printf
printf() { echo own printf; }
read() { :; }
eval() { echo own eval; }
builtin() { :; }
test() { false; }
unset -f printf read eval builtin test f
cd() { builtin cd "$@" && echo moved; }
unset -f cd
readonly R=1; R=2
exec 3< /etc/passwd
read -r -n 4 a <&3; echo $a
exec 3<&-
exec 4>&1
exec 4>&-
exec 5> ~/f1; echo to5 >&5
cat ~/f1
(exec 1> ~/f2; echo lost); cat ~/f2
history | tail -n 1
fc -l -1 -1
kill -INT "$$"; echo not reached
kill -CONT "$$"
sleep 0.02 & wait; echo $?
sleep 0.02 & fg
jobs
sh -c 'kill -9 "$$"'
sh -c 'kill -STOP $$; sleep 0.02'; bg; wait
continue
break 2
return 4
return
[ -f /etc/passwd ] && continue; echo after
break; echo after
local x=1
""".strip().splitlines()
)
"""Lines that change how the shell reads, runs or prints what follows."""

_UNFINISHED = re.compile(r"unexpected (EOF|end of file)|delimited by end-of-file")


class RandomBash:
    """A source of lines that is the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _simple(self) -> str:
        one, choose = self._word(), self._random.choice
        return choose(
            (
                f"echo {one} {self._word()}",
                f"printf '%s,' {one} {self._word()}; echo",
                f"{choose(VARIABLES[:3])}={one}",
                f"{choose(VARIABLES)}={one} echo {self._word()}",
                f"list+=({one} {self._word()})",
                "declare -A map; map[$a]=1; echo ${!map[@]}",
                f"read -r U PWD <<< {one}; echo $U $PWD",
                f"cd {choose(('/usr', '/tmp', '..', '-', '~', 'link'))}",
                "pwd; pwd -P",
                "pushd /etc; popd",
                f"(exit {self._random.randrange(256)})",
                f"sh -c 'exit {self._random.randrange(256)}'",
                f"let c+={self._random.randrange(5)}",
                f"f {one}",
                f"e {one}",
                f"test -n {one}",
                "echo error >&2",
                "true | (cat; exit 4) | (cat; false); echo ${PIPESTATUS[@]}",
                f"eval 'echo evaluated {one.replace(chr(39), '')}'",
                f"command echo {one}; builtin echo {one}",
                "echo $- | tr -d s; shopt -o | grep -c on",
                "unset a b list; unset -f f",
                choose(_TESTS),
                choose(_ERRORS),
            )
        )

    def _compound(self, depth: int) -> str:
        body, other, choose = self._command(depth - 1), self._command(depth - 1), self._random.choice
        return choose(
            (
                f"if {choose(_TESTS[:5])}; then {body}; else {other}; fi",
                f"for i in 1 {self._word()}; do {body}; {choose(('break', 'continue', ':'))}; done",
                f"n=0; while ((n++ < 2)); do {body}; done",
                f"case {self._word()} in x) {body};; *) {other};; esac",
                f"( {body}; {other} )",
                f"{{ {body}; {other}; }}",
                f"f() {{ {body}; return {self._random.randrange(9)}; }}",
                f"{body} && {other}",
                f"{body} || {other}",
                f"! {body}",
                f"{body} | cat",
                f'x=$({body}); echo "$x"',
                f"{{ {body}; }} > ~/f1; cat ~/f1",
                f"{body} # a comment ' \"\n:",
                f"if false; then\n{body}\nelse\n\n  {other}\nfi",
                f"cat <<E\n{self._word()} $a\nE\n{body}",
                "cat <<-'E' | sed s/^/:/\n\t$a `x`\n\tE",
                f"echo 'open\n\n{self._word().replace(chr(39), '')}'\n{other}",
                f"{body} \\\n&& {other}",
                f"{body}\n\n# a comment\n{other}",
            )
        )

    def _command(self, depth: int) -> str:
        return self._simple() if depth == 0 or self._random.random() < 0.4 else self._compound(depth)

    def text(self) -> str:
        """Return a complete command of one or more lines; one line may have a syntax error."""
        while not is_complete(text := self._any_text()):
            pass
        return text

    def _any_text(self) -> str:
        return self._random.choice(_SETTINGS) if self._random.random() < 0.3 else self._command(2)


def is_complete(text: str) -> bool:
    """Return whether bash does not wait for more after these lines; bash 5.2 may crash after an error in `$(…)`."""
    checked = subprocess.run(["bash", "-n"], input=f"{text}\n", capture_output=True, text=True, check=False)
    return not _UNFINISHED.search(checked.stderr) and (checked.returncode == 0 or not re.search(r"\n|\$\(", text))
