cat > /app/sessions.sh <<'EOF'
#!/bin/bash
export LC_ALL=C TZ=UTC
exec perl -e '
use strict;
use warnings;
use Time::Local qw(timegm);
use POSIX qw(strftime);
my %month;
@month{qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)} = 0 .. 11;
my $quoted = qr/"((?:[^"\\]|\\.)*)"/;
my (%views, $skipped);
$skipped = 0;
open my $log, "<", $ARGV[0] or die;
while (my $line = <$log>) {
    chomp $line;
    my @found = $line =~ m{^(\S+) \S+ \S+ \[(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([-+])(\d\d)(\d\d)\] $quoted (\d{3}) (?:\d+|-) $quoted $quoted$};
    my ($method, $target) = @found ? $found[10] =~ m{^(\S+) (/\S*) HTTP/\S+$} : ();
    my $time;
    if (defined $target && exists $month{$found[2]}) {
        $time = eval { timegm($found[6], $found[5], $found[4], $found[1], $month{$found[2]}, $found[3]) };
    }
    if (!defined $time) { $skipped++; next; }
    my $offset = ($found[8] * 60 + $found[9]) * 60;
    $time += $found[7] eq "-" ? $offset : -$offset;
    (my $path = $target) =~ s/\?.*//;
    next unless $method eq "GET" && $found[11] >= 200 && $found[11] < 400;
    next if $found[13] =~ /bot/i || $path =~ /\.(?:css|js|png|jpg|svg|ico)$/;
    push @{ $views{"$found[0]\t$found[13]"} }, [$time, $path];
}
my @visits;
for my $visitor (keys %views) {
    my ($address, $agent) = split /\t/, $visitor, 2;
    my $visit;
    for my $view (sort { $a->[0] <=> $b->[0] } @{ $views{$visitor} }) {
        if (!$visit || $view->[0] - $visit->{last} > 1800) {
            $visit = { begin => $view->[0], address => $address, agent => $agent, count => 0, first => $view->[1] };
            push @visits, $visit;
        }
        $visit->{count}++;
        @{$visit}{qw(last exit)} = @$view;
    }
}
for my $v (sort { $a->{begin} <=> $b->{begin} || $a->{address} cmp $b->{address} || $a->{agent} cmp $b->{agent} } @visits) {
    print join("\t", strftime("%Y-%m-%dT%H:%M:%SZ", gmtime $v->{begin}), $v->{address}, $v->{count},
        $v->{last} - $v->{begin}, $v->{first}, $v->{exit}), "\n";
}
print STDERR "skipped $skipped\n";
' "$1"
EOF
