from protocol.dependencies import require_packages

require_packages("aiodocker", "ray", "rich", "xxhash")
