# bench/start.sh: from the command line of a bench to its measuring program. Sourced by most of them, in the
# project's folder:
#
#   . bench/start.sh
#   take_arguments NAME "$@"    --help is NAME_bench.py's own; --pg PG_CONFIG becomes $PG_CONFIG, the rest $options
#   measure NAME                a private PostgreSQL with the extension, a Redis, and NAME_bench.py between them; all is gone at
#                               the end, also on Ctrl-C
#
# $python runs NAME_bench.py; a bench that wants another than that of test/deps sets it between the two.
#
# shellcheck shell=bash disable=SC2154,SC2119  # $tmp and $project are of test/throwaway.sh

export PYTHONDONTWRITEBYTECODE=1

take_arguments() {
  local name=$1
  shift
  options=()
  while [ $# -gt 0 ]; do
    case $1 in
      --pg)      [ $# -gt 1 ] || { echo "bench/$name: --pg needs the path of a pg_config" >&2; exit 2; }; export PG_CONFIG=$2; shift ;;
      --help|-h) exec python3 "bench/${name}_bench.py" --help ;;
      *)         options+=("$1") ;;
    esac
    shift
  done
  test/deps
  python=$PWD/.deps/venv/bin/python
  "$python" "bench/${name}_bench.py" --parse-only "${options[@]}"
}

measure() {
  . test/throwaway.sh
  begin
  build_extension "$(test/which_postgres)"
  start_postgres 'shared_buffers = 1GB' 'max_wal_size = 4GB' 'autovacuum = off'
  start_redis
  attended env -C "$tmp" "$python" "$project/bench/$1_bench.py" "${options[@]}"
}
