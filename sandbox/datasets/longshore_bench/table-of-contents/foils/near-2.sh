# Unicode and counts, but headings above the table are listed, and the file is written each time.
cat > /app/toc.pl <<'EOF'
use utf8; use open qw(:std :utf8);
my $path = shift; open my $f, "<:utf8", $path; my @l = <$f>; close $f;
my ($fence, @toc, %seen, $b, $e); my $top = 6;
for my $i (0 .. $#l) { $_ = $l[$i];
  if ($fence) { $fence = "" if /^ {0,3}\Q$fence\E/; next } if (/^ {0,3}(```|~~~)/) { $fence = $1; next }
  if (/^<!-- toc -->/) { $b //= $i } elsif (/^<!-- \/toc -->/) { $e //= $i if defined $b }
  elsif (/^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*(?:[ \t]#+)?[ \t]*$/) { my ($n, $t) = (length $1, $2);
    $t =~ s/!\[[^\]]*\]\([^)]*\)//g; $t =~ s/\[([^\]]*)\]\([^)]*\)/$1/g; $t =~ s/`|\*\*|__//g; my $a = lc $t; $a =~ s/[^\w -]//g; $a =~ s/ /-/g;
    my $c = $seen{$a}++; $a .= "-$c" if $c; next if $n == 1; $top = $n if $n < $top; $t =~ s/([\[\]\\])/\\$1/g; push @toc, [$n, "- [$t](#$a)\n"] } }
defined $e or do { print STDERR "no toc\n"; exit 1 };
open $f, ">:utf8", $path; print $f @l[0 .. $b], "\n", (map { "  " x ($_->[0] - $top) . $_->[1] } @toc), (@toc ? "\n" : ""), @l[$e .. $#l];
EOF
