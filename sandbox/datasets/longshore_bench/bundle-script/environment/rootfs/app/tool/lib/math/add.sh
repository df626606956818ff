. '../log.sh'
add() { log adding >&2; echo $(($1 + $2)); }
