# The offset is forgotten, and a gap of exactly 1800 seconds begins a visit.
cat > /app/sessions.sh <<'EOF'
#!/bin/bash
exec perl -e 'use Time::Local; use POSIX "strftime"; my %m; @m{qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)} = 0..11; my $s = 0;
open F, $ARGV[0]; while (<F>) { my @f = m{^(\S+) \S+ \S+ \[(\d+)/(\w+)/(\d+):(\d+):(\d+):(\d+) \S+\] "(\S+) (/\S*) HTTP/\S+" (\d+) \S+ "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"$} or do { $s++; next };
my $p = $f[8]; $p =~ s/\?.*//; next if $f[7] ne "GET" || $f[9] < 200 || $f[9] > 399 || $f[11] =~ /bot/i || $p =~ /\.(css|js|png|jpg|svg|ico)$/;
push @{$v{"$f[0]\t$f[11]"}}, [timegm($f[6], $f[5], $f[4], $f[1], $m{$f[2]}, $f[3]), $p] }
for my $k (keys %v) { my ($a) = split /\t/, $k; my $c; for (sort { $a->[0] <=> $b->[0] } @{$v{$k}}) {
if (!$c || $_->[0] - $c->[3] >= 1800) { $c = [$_->[0], $a, 0, 0, $_->[1], ""]; push @o, $c } $c->[2]++; $c->[3] = $_->[0]; $c->[5] = $_->[1] } }
print sort map { join("\t", strftime("%Y-%m-%dT%H:%M:%SZ", gmtime $_->[0]), $_->[1], $_->[2], $_->[3] - $_->[0], $_->[4], $_->[5]) . "\n" } @o; print STDERR "skipped $s\n"' "$1"
EOF
