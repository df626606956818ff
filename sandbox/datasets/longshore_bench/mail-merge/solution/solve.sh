cat > /app/merge.sh <<'EOF'
#!/bin/bash
exec perl -e '
use strict;
use warnings;
my ($template, $table, $out) = @ARGV;
sub slurp { my ($path) = @_; open my $in, "<:raw", $path or die "merge.sh: $path: $!\n"; local $/; my $text = <$in>; $text // "" }
my $text = slurp($template);
my @lines = split /\n/, slurp($table);
s/\r\z// for @lines;
my @names = split /\t/, shift @lines // "", -1;
my %known = map { $_ => 1 } @names;
my (@letters, $number);
$number = 1;
for my $line (@lines) {
    $number++;
    next if $line eq "";
    my @values = split /\t/, $line, -1;
    if (@values > @names) { print STDERR "merge.sh: line $number has too many fields\n"; exit 1; }
    push @values, "" while @values < @names;
    my %field;
    @field{@names} = @values;
    push @letters, \%field;
}
sub value {
    my ($field, $name) = @_;
    if (!$known{$name}) { print STDERR "merge.sh: there is no field $name\n"; exit 1; }
    return $field->{$name} // "";
}
sub letter {
    my ($field) = @_;
    my $made = "";
    for my $line (split /(?<=\n)/, $text) {
        my $stays = 1;
        while ($line =~ s/^([?!])(\w+) //a) {
            my ($way, $name) = ($1, $2);
            my $full = value($field, $name) =~ /[^ \t]/;
            $stays = 0 if $way eq "?" ? !$full : $full;
        }
        $line =~ s/\\\{|\{\{[ \t]*(\w+)[ \t]*(?:\|([^}]*))?\}\}/
            !defined $1 ? "{" : do { my $v = value($field, $1); defined $2 && $v !~ m{[^ \t]} ? $2 : $v }/gaex;
        $made .= $line if $stays;
    }
    return $made;
}
letter({ map { $_ => "" } @names });
my @made = map { letter($_) } @letters;
system "mkdir", "-p", "--", $out and exit 1;
for my $at (0 .. $#made) {
    open my $file, ">:raw", sprintf "%s/%03d.txt", $out, $at + 1 or die "merge.sh: $!\n";
    print $file $made[$at];
}
' "$@"
EOF
