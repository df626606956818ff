# Values are literal; blanks are a value, unknown names are empty, and a line has one condition at most.
cat > /app/merge.sh <<'EOF'
#!/bin/bash
mkdir -p "$3"
perl -e 'my ($t, $tab, $out) = @ARGV; open F, $tab; chomp(my $h = <F>); $h =~ s/\r$//; my @n = split /\t/, $h; my $k = 0;
open T, $t; my @t = <T>; while (<F>) { s/\r?\n$//; next if $_ eq ""; my %f; @f{@n} = split /\t/; $k++; open O, ">", sprintf "%s/%03d.txt", $out, $k;
for my $l (@t) { my $x = $l; if ($x =~ s/^([?!])(\w+) //) { next if ($1 eq "?") != ($f{$2} ne "") }
$x =~ s/\\\{|\{\{\s*(\w+)\s*(?:\|([^}]*))?\}\}/defined $1 ? $f{$1} ne "" ? $f{$1} : $2 : "{"/ge; print O $x } }' "$1" "$2" "$3"
EOF
