#!/bin/bash
# backup.sh SOURCE TARGET
#
# Copies every regular file below SOURCE whose name ends in .dat, whatever its case, to the same relative path below
# TARGET, which is made if it is not there.  Symbolic links are not followed and not copied.  A file that is there
# already with the same content is left alone.  A copy has the modification time of its original.
# The last line of standard output is "copied N", where N counts the files that were copied in this run; nothing else
# goes there.
# Exit code 2, with a message on standard error, if SOURCE is no folder; nothing is made then.  Exit code 1 if some file
# could not be copied, after the others have been; else 0.

cd $1
copied=0
find . -name *.dat | while read file; do
    if [ ! -e $2/$file ] || ! cmp -s $file $2/$file; then
        mkdir -p $(dirname $2/$file)
        cp $file $2/$file
        copied=$((copied + 1))
    fi
done
echo copied $copied
