#!/usr/bin/env bash
# Make .gpu/ (never committed): the wheels for Python 3.12 that a bare GPU machine lacks, and run.sh, which starts the
# check there.  Run it where packages can be had.  The GPU machine has Python 3.12, torch with CUDA, triton, transformers,
# numpy, safetensors, xxhash, aiohttp, prometheus-client, pyarrow and psutil, and no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

NEEDED=(megatron-core msgspec orjson structlog rich pyzmq lz4 zstandard pydantic pydantic-core annotated-types pybase64
    platformdirs tomli-w)

grep -qxs '/.gpu/' .git/info/exclude || echo '/.gpu/' >>.git/info/exclude
mkdir -p .gpu/wheels
platforms=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
for glibc in 2_39 2_34 2_31 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
download() {
    python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 -d .gpu/wheels "$@"
}
for name in "${NEEDED[@]}"; do
    pin=$(grep -iE "^$name==" constraints.txt)
    download --implementation cp "${platforms[@]}" "$pin" || download --implementation py "$pin"
done
cat >.gpu/run.sh <<'RUN'
#!/usr/bin/env bash
# On the GPU machine, in the project's root: bash .gpu/run.sh [--budget SECONDS] [--only STAGE,…]
set -uo pipefail
site=${TMPDIR:-/tmp}/gpu-check-site
python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" .gpu/wheels/*.whl || exit 1
export PYTHONPATH=$site:. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True CUDA_DEVICE_MAX_CONNECTIONS=1
nvidia-smi -L 2>/dev/null || echo "no GPU here"
exec python3 -m tools.gpu_check "$@"
RUN
du -sh .gpu
