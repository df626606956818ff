printf 'name\tsize\tnote\nalpha\t1,200\tfirst of all the letters\n日本\t-3.5\t\nnaïve\t7%%\tx\n' > /app/example.tsv
cat > /app/example.txt <<'EOF'
name    size  note
─────  ─────  ────────────
alpha  1,200  first of all
              the letters
日本    -3.5
naïve     7%  x
EOF
