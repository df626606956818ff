# The example; code blocks of backquotes only, ASCII letters, and no count of equal anchors.
cat > /app/toc.pl <<'EOF'
my $path = shift; open my $f, "<", $path; my @l = <$f>; close $f;
my ($code, @toc);
for (@l) { $code = !$code if /^```/; next if $code; if (/^(#{2,6}) +(.*?) *#*$/) { my ($n, $t) = (length $1, $2);
  $t =~ s/\[([^\]]*)\]\([^)]*\)/$1/g; $t =~ s/[`*]//g; my $a = lc $t; $a =~ s/[^\w -]//g; $a =~ s/ /-/g; push @toc, "  " x ($n - 2) . "- [$t](#$a)\n" } }
my $text = join "", @l; my $toc = join "", @toc;
$text =~ s/(<!-- toc -->\n).*?(<!-- \/toc -->)/$1\n$toc\n$2/s or do { print STDERR "no toc\n"; exit 1 };
open $f, ">", $path; print $f $text;
EOF
