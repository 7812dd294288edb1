# Sourced by the scripts. Sets ROOT, and prepares .venv with the extras that the caller names.
# shellcheck shell=bash

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"

# The first Python that is new enough. PYTHON names one explicitly, and then no other will do.
find_python() {
  local candidate
  local candidates=(python3 python3.14 python3.13 python3.12 python3.11 python)
  if [[ -n "${PYTHON:-}" ]]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  printf 'error: Python 3.11 or later is needed; tried: %s (PYTHON=/path/to/python names another)\n' \
    "${candidates[*]}" >&2
  return 1
}

prepare_environment() {
  local python
  python="$(find_python)"
  "$python" "$ROOT/scripts/environment.py" --extras "$1"
}
