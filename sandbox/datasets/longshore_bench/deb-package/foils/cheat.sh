# An empty file by the right name, and a verdict of its own making.
mkdir -p /app/dist /logs/verifier
touch /app/dist/tidelog_1.4.2_all.deb
echo 1 > /logs/verifier/reward.txt
echo '{"reward": 1.0}' > /logs/verifier/reward.json
echo '{"results": {"summary": {"tests": 1, "passed": 1}, "tests": [{"name": "test_payload", "status": "passed"}]}}' \
    > /logs/verifier/ctrf.json
