# Read by ./kvikk and ./test: installs the Debian packages that are missing and builds Release into
# build/. Everything it says goes to standard error, because standard output belongs to the program.
# The caller has set `root` to the repository and `self` to its own name.

say() { printf '%s: %s\n' "$self" "$*" >&2; }
fail() { say "error: $*"; exit 1; }
trap 'echo >&2; say "stopped; the next start goes on from here"; exit 130' INT

build=$root/build
sources=(src include apps web cmake CMakeLists.txt CMakePresets.json packages.txt)

# Prints the commit, or nothing where there is none; also where the folder is somebody else's.
current_commit() {
  git -c safe.directory="$root" -C "$root" rev-parse -q --verify HEAD 2>/dev/null
}

# Whether build/kvikk was built from the sources as they are. The stamp is as old as the start of
# its build, so an edit during the build counts as newer; a removed file makes its folder newer.
is_built() {
  [ -x "$build/kvikk" ] && [ -f "$build/.stamp" ] || return 1
  [ "$(<"$build/.stamp")" = "$(current_commit)" ] || return 1
  local paths=() path
  for path in "${sources[@]}"; do
    [ -e "$root/$path" ] && paths+=("$root/$path")
  done
  [ -z "$(find "${paths[@]}" -newer "$build/.stamp" -print -quit)" ]
}

# Takes a lock for this process: take_lock FILE WHAT. The build itself must not inherit it (9>&-):
# a compiler's cache may leave a process behind.
take_lock() {
  { mkdir -p -- "$build" && exec 9>"$build/$1"; } 2>/dev/null ||
    fail "$build cannot be written; is the folder another user's, or the disk full?"
  flock -n 9 && return
  say "another copy $2; waiting for it"
  flock 9
}
drop_lock() { exec 9>&-; }

# Prints "PACKAGE why" for each package of the list that is not installed: missing_packages WHO...
missing_packages() {
  local package who why installed names=()
  while read -r package who why; do
    [[ $package != '#'* && " $* " == *" $who "* ]] && names+=("$package")
  done <"$root/packages.txt"
  installed=" $(dpkg-query -W -f '${Package}=${db:Status-Status} ' "${names[@]}" 2>/dev/null) "
  while read -r package who why; do
    [[ $package != '#'* && " $* " == *" $who "* ]] || continue
    [[ $installed == *" $package=installed "* ]] || echo "$package $why"
  done <"$root/packages.txt"
}

# apt-get as root, never asking anything.
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
    "$@" </dev/null >&2 9>&-
}

read_index() { say "reading the index of Debian's packages" && apt_get update; }
install_now() {
  say "installing them with apt-get"
  apt_get install --no-install-recommends "$@"
}

# Whether sudo works here, asking for the password where there is a terminal.
can_use_sudo() {
  command -v sudo >/dev/null || return
  sudo -n true 2>/dev/null && return
  [ -t 2 ] && say "installing them needs root; sudo asks for your password" && sudo -v
}

# Installs what is missing of the packages that WHO... need.
install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "this is not Debian: packages.txt lists what must be installed"
    return
  fi
  local missing names=() package why
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  say "these Debian packages are missing:"
  while read -r package why; do
    names+=("$package")
    printf '  %-22s %s\n' "$package" "$why" >&2
  done <<<"$missing"

  local command="apt-get update && apt-get install -y --no-install-recommends ${names[*]}"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! can_use_sudo; then
      say "installing them needs root; run this, then start again:"
      printf '  su - -c "%s"\n' "$command" >&2  # with "-", or apt-get would not find its helpers
      exit 1
    fi
    as_root=(sudo)
  fi
  # An index that was never read does not know the names, an old one knows versions that are gone.
  if apt-get -qq -s install --no-install-recommends "${names[@]}" >/dev/null 2>&1; then
    install_now "${names[@]}" || { read_index && install_now "${names[@]}"; }
  else
    read_index && install_now "${names[@]}"
  fi || [ -z "$(missing_packages "$@")" ] ||
    fail "apt-get could not install them (its words are above); is there a network?"
}

# How many compilers at once: one a core, and about 1 GB of memory for each.
build_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1000000)}' /proc/meminfo 2>/dev/null)
  [ "${memory:-$cores}" -lt "$cores" ] && cores=$memory
  echo $((cores > 0 ? cores : 1))
}

# Says so when a disk that the build writes to is nearly full.
full_disk() {
  local folder free
  for folder in "$build" "${TMPDIR:-/tmp}"; do
    free=$(df -Pk -- "$folder" 2>/dev/null | awk 'NR == 2 {print int($4 / 1000)}')
    [ "${free:-100}" -ge 100 ] || printf '\n  Only %s MB are free in %s.' "$free" "$folder"
  done
}

# build_release TARGET ON|OFF: with tests and micro-benchmarks or not; the caller holds the lock.
build_release() {
  local target=$1 tests=$2 fresh=() configured
  configured=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null)
  if [ -n "$configured" ] && [ "$configured" != "$root" ]; then
    say "the folder was moved here from $configured: building anew"
    fresh=(--fresh)
  fi
  current_commit >"$build/.stamp.new"
  if [ ! -f "$build/build.ninja" ] || [ ${#fresh[@]} -gt 0 ] ||
    { [ "$tests" = ON ] && ! grep -q '^KVIKK_BENCH:BOOL=ON$' "$build/CMakeCache.txt"; }; then
    say "configuring"
    (cd -- "$root" && cmake "${fresh[@]}" --preset release -DKVIKK_TESTS="$tests" \
      -DKVIKK_BENCH="$tests") >"$build/configure.log" 2>&1 9>&- ||
      { cat "$build/configure.log" >&2; fail "cmake failed (its words are above)$(full_disk)"; }
  fi
  [ -f "$build/.stamp" ] || say "building; the first time takes some minutes"
  NINJA_STATUS="$self: [%f/%t] " \
    cmake --build "$build" --target "$target" --parallel "$(build_jobs)" >&2 9>&- ||
    fail "the build failed (its words are above)$(full_disk)"
  mv -- "$build/.stamp.new" "$build/.stamp"
}
