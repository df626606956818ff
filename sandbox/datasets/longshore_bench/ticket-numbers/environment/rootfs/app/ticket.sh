#!/bin/bash
# ticket.sh DIR: hand out the next number
cd "$1"
number=$(cat counter 2>/dev/null || echo 0)
number=$((number + 1))
[ ! -e counter ] || cp counter counter.bak
echo $number > counter
if [ -x check ]; then
    ./check $number || exit 4
fi
echo $number
