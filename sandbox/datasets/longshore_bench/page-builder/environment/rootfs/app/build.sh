#!/bin/bash
# build.sh SITE OUT
site=$1 out=$2
mkdir -p $out
for page in $site/pages/*.page; do
    target=$out/$(basename $page .page).html
    if [ $page -nt $target ]; then
        cp $page $target
        for part in $(grep '^@include' $target | cut -d' ' -f2); do
            sed -i "/^@include $part/{r $site/parts/$part
d}" $target
        done
        while IFS== read key value; do
            sed -i "s/{{$key}}/$value/g" $target
        done < $site/vars
        echo built $(basename $target)
    fi
done
