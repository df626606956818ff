cat > /app/notes.sh <<'EOF'
#!/bin/bash
exec perl -e '
use strict;
use warnings;
my ($path, $wanted) = @ARGV;
open my $file, "<", $path or die "notes.sh: $path: $!\n";
$wanted =~ s/^v(?=\d)// if defined $wanted;
my ($fence, $inside, $found, @notes) = ("", 0, 0);
while (my $line = <$file>) {
    $line =~ s/\n?$/\n/;
    my $code = $fence ne "";
    if ($code) {
        $fence = "" if $line =~ /^ {0,3}(`{3,})[ \t]*$/ && length $1 >= length $fence;
    } elsif ($line =~ /^ {0,3}(`{3,})/) {
        ($fence, $code) = ($1, 1);
    }
    if (!$code && $line =~ /^##?(?:[ \t]|$)/) {
        last if $found;
        if ($line =~ /^##[ \t]+(?:\[([^\]]+)\]|(\S+))(?:[ \t]+-[ \t].*)?[ \t]*$/) {
            my $version = defined $1 ? $1 : $2;
            $version =~ s/^v(?=\d)//;
            $found = defined $wanted ? $version eq $wanted : lc $version ne "unreleased";
        }
        next;
    }
    next if !$found || (!$code && $line =~ /^ {0,3}\[[^\]]+\]:/);
    push @notes, $line;
}
if (!$found) { print STDERR "notes.sh: no such release\n"; exit 1; }
shift @notes while @notes && $notes[0] !~ /\S/;
pop @notes while @notes && $notes[-1] !~ /\S/;
print @notes;
' "$@"
EOF
