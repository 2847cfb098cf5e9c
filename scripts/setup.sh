#!/bin/sh
# Find a Python that can make the environment, and let it: scripts/setup.sh [--torch cpu|default]
# $PYTHON first, then the versions tried with the course, newest first. One that can make environments is preferred.
cd "$(dirname "$0")/.." || exit 1
old=""
for need in "import ensurepip, venv" "pass"; do
  for python in $PYTHON python3.13 python3.12 python3.11 python3; do
    version=$("$python" -c "$need; import sys; print('%d.%d.%d' % sys.version_info[:3])" 2>/dev/null) || continue
    case "$version" in
      3.[0-9].* | 3.10.* | 2.*) old="$python ($version)" ;;
      *) exec "$python" scripts/setup_environment.py "$@" ;;
    esac
  done
done
echo "make setup: MLAcademy needs Python 3.11 or newer; found ${old:-none}." \
  "Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2
exit 1
