# Nested, but a file is known by the path that asks for it, and a missing one leaves half a bundle.
cat > /app/bundle.sh <<'EOF'
#!/bin/bash
perl -e 'use File::Basename; my %seen;
sub take { my ($f, $top) = @_; open my $h, "<", $f or do { print STDERR "$f\n"; exit 1 }; my $n = 0;
  while (my $l = <$h>) { $n++; next if !$top && $n == 1 && $l =~ /^#!/; $l .= "\n" unless $l =~ /\n$/;
    if ($l =~ /^\s*(?:source|\.)\s+(["\x27]?)([^\s"\x27]+)\1\s*$/) { my $p = dirname($f) . "/$2"; take($p, 0) unless $seen{$p}++ }
    else { print $l } } }
take($ARGV[0], 1)' "$1" > "$2" || exit 1
chmod 755 "$2"
EOF
mkdir -p /app/dist; bash /app/bundle.sh /app/tool/main.sh /app/dist/tool.sh
