printf '2024-03-10T12:10:00Z\t198.51.100.7\t1\t0\t/\t/\n2024-03-10T12:55:36Z\t203.0.113.9\t2\t1800\t/shop\t/cart\n2024-03-10T13:55:37Z\t203.0.113.9\t1\t0\t/late\t/late\n' > /app/expected.tsv
