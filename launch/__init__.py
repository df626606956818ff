from protocol.installed import require_packages

require_packages("aiodocker", "ray", "rich", "xxhash")
