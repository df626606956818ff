# Right pages, but all of them are written each time, and what is gone stays.
cat > /app/build.sh <<'EOF'
#!/bin/bash
exec perl -e '
use File::Find; use File::Path "make_path"; use File::Basename;
my ($site, $out) = @ARGV; my %v; my $code = 0;
if (open my $f, "<", "$site/vars") { while (<$f>) { chomp; $v{$1} = $2 if /^([A-Z0-9_]+)=(.*)$/ } }
sub lines { my ($p, @above) = @_; die if grep { $_ eq $p } @above; open my $f, "<", $p or die; my $t = "";
  while (<$f>) { chomp; if (/^\s*\@include\s+(.*\S)\s*$/) { $t .= lines("$site/parts/$1", @above, $p) } else { $t .= "$_\n" } } $t }
my @said;
find({ no_chdir => 1, wanted => sub { return unless /\.page$/; my $in = substr($_, length("$site/pages/"));
  my $text = eval { lines($_) }; if (!defined $text) { print STDERR "$in\n"; $code = 1; return }
  $text =~ s/\{\{([A-Z0-9_]+)\}\}/exists $v{$1} ? $v{$1} : "{{$1}}"/ge;
  (my $t = $in) =~ s/\.page$/.html/; make_path(dirname("$out/$t")); open my $o, ">", "$out/$t"; print $o $text; push @said, "built $t\n";
} }, "$site/pages"); print sort @said; exit $code' "$1" "$2"
EOF
