# test/throwaway.sh: a PostgreSQL and a Redis of one's own for as long as a script runs. Sourced by test/run, demo/run and the
# benchmarks, after test/deps:
#
#   . test/throwaway.sh
#   begin                          a temporary folder $tmp, and the promise that it and all that runs in it goes away at exit,
#                                  Ctrl-C or kill. KEEP=1 keeps the folder, not the processes.
#   build_extension PG_CONFIG      a private copy of that PostgreSQL in $tmp, with this extension built and installed into it:
#                                  the installed PostgreSQL stays as it is. Sets $bindir, the copy's programs, puts it in PATH;
#                                  exports REDIS_EXPORT_HIREDIS, the version that the extension was built with, and
#                                  REDIS_EXPORT_TLS, which is not empty if it has TLS, and REDIS_EXPORT_PG_CONFIG, the installed one
#   start_postgres [SETTING…]      on a Unix socket in $tmp; exports PGHOST and the like, so that `as_user psql` meets it
#   start_redis [SETTING…]         with JSON and search, on 127.0.0.1; exports REDIS_PORT; also on the socket
#                                  $tmp/redis/redis.sock; sets $redis_pid. With redis_kind=tls it is Debian's, which has TLS (but
#                                  no port for it yet), and JSON without search
#   as_user COMMAND…               runs it in $tmp and, since PostgreSQL refuses root, as another user (SUDO_USER or postgres)
#   attended COMMAND…              waits for it such that a signal to the script is not held up
#
# shellcheck shell=bash disable=SC2034  # some variables are for the scripts that source this

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C.UTF-8
unset MAKEFLAGS MFLAGS MAKELEVEL CDPATH   # make test is no parent of the builds in here
umask 022

me=$(realpath --relative-to="$project" "$0")
fail() { echo "$me: $*" >&2; exit 1; }

begin() {
  user=$(id -un)
  if [ "$(id -u)" = 0 ]; then
    for user in "${SUDO_USER:-}" postgres nobody; do
      case $(id -u "$user" 2>/dev/null) in ''|0) ;; *) break ;; esac
    done
  fi
  tmp=$(mktemp -d "${TMPDIR:-/tmp}/redis_export.XXXXXX")
  chmod 755 "$tmp"
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  [ "$(id -u)" != 0 ] || chown "$user:" "$tmp"
  as_user true 2>/dev/null || fail "the user $user has no way into $tmp; set TMPDIR to a folder that it can enter, such as /tmp"
}

as_user() (
  cd "$tmp" || exit
  export HOME=$tmp TMPDIR=$tmp
  [ "$(id -u)" != 0 ] || set -- setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"
  exec "$@"
)

attended() {
  "$@" &
  attended_pid=$!
  local status=0
  wait $attended_pid || status=$?
  attended_pid=
  return $status
}

# ---- PostgreSQL -------------------------------------------------------------------------------------------------------

# build_extension PG_CONFIG [MAKE_ARGUMENT…]
build_extension() {
  local pg_config build files setup flags
  { pg_config=$(realpath -e "$(command -v "$1")") && "$pg_config" --version; } >/dev/null 2>&1 || fail "'$1' is no pg_config"
  shift
  set -- HIREDIS_DIR="$project/.deps/hiredis" "$@"
  pg_version=$("$pg_config" --version)
  bindir=$("$pg_config" --bindir)
  pgxs=$(dirname "$("$pg_config" --pgxs)")/..
  [ -e "$pgxs/makefiles/pgxs.mk" ] || fail "$pg_version has no server headers and PGXS (Debian: postgresql-server-dev-$(grep -oE '[0-9]+' <<< "$pg_version" | head -n 1))"

  # Built in a copy, one for each PostgreSQL. It is kept for the next time, when make does what is left to do; other arguments
  # or other files begin it anew. Others who build there meanwhile wait.
  build=$tmp/build
  [ ! -w "$project/.deps" ] || build=$project/.deps/build-$(cut -d' ' -f2 <<< "$pg_version")
  files=$(cd "$project" && find . -maxdepth 1 -type f && find src docs test/targets.mk -type f)
  files=$(grep -vE '\.(o|bc|so|a)$|^\./\.' <<< "$files")
  local lock
  exec {lock}>"$build.lock"
  flock "$lock"
  setup="$pg_config $pg_version $* $(cksum < "$project/Makefile") $files
$(make -s -C "$project" print-HIREDIS_CFLAGS print-HIREDIS_LIBS print-HIREDIS_TLS PG_CONFIG="$pg_config" "$@")"
  if [ "$setup" != "$(cat "$build/setup" 2>/dev/null)" ]; then
    rm -rf "$build"
    mkdir -p "$build"
    echo "$setup" > "$build/setup"
  fi
  (cd "$project" && xargs -d '\n' cp -p --update --parents -t "$build" <<< "$files")
  attended make -s -C "$build" -j"$(nproc)" PG_CONFIG="$pg_config" "$@" >&2 || return 1

  # All folders keep their places relative to the programs, by which PostgreSQL finds them.
  local root=$tmp/root folder
  for folder in "$bindir" "$("$pg_config" --pkglibdir)" "$("$pg_config" --sharedir)" "$bindir"/../../../*.libs; do
    [ -d "$folder" ] || continue
    folder=$(realpath "$folder")
    mkdir -p "$root$folder"
    cp -a "$folder/." "$root$folder"
  done
  # pg_regress is run from the copy, too: the user may have no way to where it comes from.
  pgxs=$(realpath "$pgxs")
  [ ! -d "$root$pgxs" ] || pgxs=$root$pgxs
  attended make -s -C "$build" install PG_CONFIG="$pg_config" DESTDIR="$root" "$@" >&2 || return 1
  regress_list=$(make -s -C "$build" print-REGRESS PG_CONFIG="$pg_config" "$@" 2>/dev/null || true)
  REDIS_EXPORT_TLS=$(make -s -C "$build" print-HIREDIS_TLS PG_CONFIG="$pg_config" "$@")
  read -ra flags < <(make -s -C "$build" print-HIREDIS_CFLAGS PG_CONFIG="$pg_config" "$@")
  REDIS_EXPORT_HIREDIS=$(gcc -E -P "${flags[@]}" - <<< $'#include <hiredis.h>\nHIREDIS_MAJOR.HIREDIS_MINOR.HIREDIS_PATCH' | tail -n 1 | tr -d ' ')
  export REDIS_EXPORT_TLS REDIS_EXPORT_HIREDIS
  exec {lock}>&-
  export REDIS_EXPORT_PG_CONFIG=$pg_config
  bindir=$root$bindir
  export PATH=$bindir:$PATH
}

start_postgres() {
  local data=$tmp/postgres name
  for name in $(compgen -e PG); do unset "$name"; done
  as_user initdb -D "$data" -U postgres -A trust -E UTF8 --no-locale -N >"$tmp/initdb.log" 2>&1 ||
    { cat "$tmp/initdb.log" >&2; fail "initdb failed"; }
  as_user tee -a "$data/postgresql.conf" >/dev/null <<< "
listen_addresses = ''
unix_socket_directories = '$tmp'
fsync = off
$(printf '%s\n' "$@")"
  as_user pg_ctl -D "$data" -l "$tmp/postgres.log" -w -t 60 start >/dev/null ||
    { tail -n 30 "$tmp/postgres.log" >&2; fail "PostgreSQL did not start"; }
  export PGHOST=$tmp PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}

# ---- Redis ------------------------------------------------------------------------------------------------------------

# The binaries, where every user can read them.
stage_redis() {
  [ -e "$tmp/bin/redis-server" ] || { cp -a "$project/.deps/redis" "$tmp/bin"; chmod -R a+rX "$tmp/bin"; }
}

start_redis() {
  local data=$tmp/redis program=$tmp/bin/redis-server modules=(redisearch rejson) server try
  [ "${redis_kind:-}" != tls ] || { program=$tmp/bin/plain/redis-server; modules=(rejson); }
  stage_redis
  for try in 1 2 3 4 5; do
    as_user mkdir -p "$data"
    REDIS_PORT=$((RANDOM % 12000 + 20000))
    as_user tee "$data/redis.conf" >/dev/null <<< "
bind 127.0.0.1
port $REDIS_PORT
unixsocket $data/redis.sock
dir $data
pidfile $data/redis.pid
logfile $tmp/redis.log
save \"\"
enable-debug-command local
$(printf "loadmodule $tmp/bin/%s.so\n" "${modules[@]}")
$(printf '%s\n' "$@")"
    as_user "$program" "$data/redis.conf" >/dev/null 2>&1 &
    server=$!
    disown $server
    # Asked over the socket, since the port, if it is taken, may be another Redis's.
    while kill -0 $server 2>/dev/null; do
      if [ "$(redis-cli -s "$data/redis.sock" ping 2>/dev/null)" = PONG ]; then
        export REDIS_PORT
        redis_pid=$(cat "$data/redis.pid")
        return
      fi
      sleep 0.05
    done
    grep -q 'Address already in use' "$tmp/redis.log" 2>/dev/null || break
  done
  tail -n 20 "$tmp/redis.log" >&2 || true
  fail "Redis did not start"
}

# ---- The end ----------------------------------------------------------------------------------------------------------

# Whatever was started in $tmp has its working directory there.
ours() { find /proc -maxdepth 2 -name cwd \( -lname "$tmp" -o -lname "$tmp/*" \) 2>/dev/null | cut -d/ -f3; }

cleanup() {
  local status=$? pids pid round
  set +e
  trap '' INT TERM HUP
  trap - EXIT
  [ -z "${attended_pid:-}" ] || kill "$attended_pid" 2>/dev/null
  # PostgreSQL is asked to quit at once, which removes its shared memory; the rest to terminate, also if it is stopped.
  find "$tmp" -name postmaster.pid -exec head -qn 1 {} + 2>/dev/null | while read -r pid; do kill -QUIT "$pid"; done 2>/dev/null
  for round in $(seq 50); do
    pids=$(ours)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    case $round in
      1)  kill -TERM $pids; kill -CONT $pids ;;
      40) kill -KILL $pids ;;
    esac 2>/dev/null
    sleep 0.1
  done
  if [ -n "${KEEP:-}" ]; then echo "kept: $tmp" >&2; else rm -rf "$tmp"; fi
  exit $status
}
