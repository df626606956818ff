printf 'name\tship\ttime\nAnn\tRose & Crown\t10:00\n\t \t\nB\\1 {{name}}\n' > /app/table.tsv
