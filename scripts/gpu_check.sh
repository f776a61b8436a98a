#!/usr/bin/env bash
# What only a GPU can show, within 8 minutes: `scripts/gpu_check.sh`. One JSON line a part, then a table for docs/gpu.md.
#
#   --wheels DIR    install sigma-probes and all it needs from the wheels in DIR alone, into a new environment
#   --tiny          small sizes; with --device cpu the logic can be tried anywhere
#
# Without --wheels, PYTHON (default: .venv/bin/python, else python3) must have sigma-probes installed.
# Exit code: 0 all passed, 1 a part failed, 3 none failed, but some were not run.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

if [ "${1:-}" = --wheels ]; then
    environment="$(mktemp -d)"
    trap 'rm -rf "$environment"' EXIT
    "${PYTHON:-python3}" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --no-index --find-links "$2" sigma-probes
    # Part of the wheels where it is given at all; its parts are "not run" without it.
    "$environment/bin/python" -m pip install --quiet --no-index --find-links "$2" flash-attn 2>/dev/null || true
    PYTHON="$environment/bin/python"
    shift 2
elif [ -z "${PYTHON:-}" ]; then
    PYTHON="$here/../.venv/bin/python"
    [ -x "$PYTHON" ] || PYTHON=python3
fi
"$PYTHON" "$here/gpu_check/check.py" "$@"
