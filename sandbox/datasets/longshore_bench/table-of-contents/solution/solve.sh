cat > /app/toc.pl <<'EOF'
use strict;
use warnings;
use utf8;

my $path = shift;
open my $in, "<:raw", $path or die "toc.pl: $path: $!\n";
my $raw = do { local $/; <$in> } // "";
close $in;
my $text = $raw;
utf8::decode($text);
my @lines = split /(?<=\n)/, $text;

my ($fence, $begin, $end, @headings) = ("");
for my $at (0 .. $#lines) {
    (my $line = $lines[$at]) =~ s/\r?\n\z//;
    if ($fence ne "") {
        my $one = substr $fence, 0, 1;
        $fence = "" if $line =~ /^ {0,3}(\Q$one\E{3,})[ \t]*$/ && length $1 >= length $fence;
        next;
    }
    if ($line =~ /^ {0,3}(`{3,}|~{3,})/) {
        $fence = $1;
        next;
    }
    if (!defined $begin && $line =~ /^<!-- toc -->[ \t]*$/) {
        $begin = $at;
    } elsif (defined $begin && !defined $end && $line =~ m{^<!-- /toc -->[ \t]*$}) {
        $end = $at;
    } elsif ($line =~ /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/) {
        my ($level, $title) = (length $1, $2 // "");
        $title =~ s/[ \t]+$//;
        $title =~ s/(?:^|[ \t]+)#+$//;
        push @headings, [$at, $level, $title];
    }
}
if (!defined $end) {
    print STDERR "toc.pl: $path has no <!-- toc --> and <!-- /toc -->\n";
    exit 1;
}
my (%seen, @listed);
for my $heading (@headings) {
    my ($at, $level, $title) = @$heading;
    $title =~ s/!\[[^\]]*\]\([^)]*\)//g;
    $title =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
    $title =~ s/`|\*\*|__//g;
    my $anchor = lc $title;
    $anchor =~ s/[^\p{L}\p{Nd}\p{M}_ \t-]//g;
    $anchor =~ s/[ \t]/-/g;
    my $count = $seen{$anchor}++;
    $anchor .= "-$count" if $count;
    next if $level == 1 || $heading->[2] eq "" || $at < $end;
    $title =~ s/([\[\]\\])/\\$1/g;
    push @listed, [$level, $title, $anchor];
}
my $top = 7;
for my $each (@listed) { $top = $each->[0] if $each->[0] < $top }
my $table = "\n" . join "", map { "  " x ($_->[0] - $top) . "- [$_->[1]](#$_->[2])\n" } @listed;
$table .= "\n" if @listed;
my $new = join "", @lines[0 .. $begin], $table, @lines[$end .. $#lines];
utf8::encode($new);
if ($new ne $raw) {
    open my $out, ">:raw", $path or die "toc.pl: $path: $!\n";
    print $out $new;
    close $out or die "toc.pl: $path: $!\n";
}
EOF
