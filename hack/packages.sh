# shellcheck shell=bash
# Debian packages: the lists of what there is, installing, and downloading without installing. Sourced by lib.sh, never run.
#
# A machine's lists may be absent, or older than what is installed on it: then apt names files that are no longer there, or
# finds no source for a version it has. So lists that do not match are fetched anew, and whatever fails is tried once more
# after that. Nothing here asks the network as long as nothing is missing.
# shellcheck source=lib.sh disable=SC2154

APT_LOG=$DATA/log/apt.log
# Whether this run has fetched the lists already: they do not become fresher.
LISTS_REFRESHED=

# logged COMMAND...: runs a command with its output in the log.
logged() {
    mkdir -p "$DATA/log"
    printf '+ %s\n' "$*" >>"$APT_LOG"
    "$@" </dev/null >>"$APT_LOG" 2>&1
}

# said SINCE: what was logged from this size of the log on.
said() { tail -c "+$(($1 + 1))" "$APT_LOG" 2>/dev/null || true; }
log_size() { stat -c %s "$APT_LOG" 2>/dev/null || echo 0; }

# refresh_lists: fetches the package lists. A server that does not answer is an error here, not a warning. Another apt that
# fetches them just now, as a fresh machine's own timer does, is waited for.
refresh_lists() {
    local deadline=$((SECONDS + 120)) before
    LISTS_REFRESHED=1
    while before=$(log_size) && ! logged apt-get update -qq -o APT::Update::Error-Mode=any -o Acquire::http::Timeout=20 -o Acquire::Retries=1; do
        if ! said "$before" | grep -q 'Could not get lock' || ((SECONDS > deadline)); then return 1; fi
        sleep 1
    done
    # Those packages that are in no list now are somebody's own.
    mkdir -p "$DATA/run"
    apt_state >"$DATA/run/apt-lists"
}

have_lists() { compgen -G "$(apt_directory Dir::State::lists/d)*_Packages*" >/dev/null; }

# lists_match: whether the lists know the installed version of every installed package. Packages no list knows, which are
# somebody's own, would say no for ever: that these lists are the newest for these packages is remembered.
lists_match() {
    [[ $(cat "$DATA/run/apt-lists" 2>/dev/null) != "$(apt_state)" ]] || return 0
    # "[installed,local]": no source has this version.
    ! apt list --installed 2>/dev/null | grep -q ',local\]'
}
# apt_state: what changes when packages or lists do.
apt_state() {
    { stat -c '%n %Y %s' "$(apt_directory Dir::State::status/f)" "$(apt_directory Dir::State::lists/d)"*_Packages* 2>/dev/null || true; } | sha256sum
}
# apt_directory NAME: a place apt is configured to use.
apt_directory() {
    local PLACE
    eval "$(apt-config shell PLACE "$1")"
    echo "$PLACE"
}

# apt_lists: package lists that match what is installed. Where they cannot be fetched those there are may well do.
apt_lists() {
    if [[ -n $LISTS_REFRESHED ]]; then
        return 0
    elif ! have_lists; then
        say "fetching the package lists"
        refresh_lists || have_lists || apt_failed "fetching the package lists (apt-get update)"
    elif ! lists_match; then
        say "the package lists are older than what is installed: fetching them"
        refresh_lists || say "not all of the package lists can be fetched; going on with those there are"
    fi
}

# with_lists WHAT COMMAND...: runs a command that fetches packages, a second time with fresh lists if it fails; its failure
# then ends the program with a message that says WHAT.
with_lists() {
    local what=$1
    shift
    apt_lists
    logged "$@" && return 0
    say "$what failed: once more, with fresh package lists"
    refresh_lists || say "not all of the package lists can be fetched; going on with those there are"
    FAILED_FROM=$(log_size)
    logged "$@" || apt_failed "$what"
}
FAILED_FROM=0

# apt_failed WHAT: ends with what could not be done, apt's own reason, and where the rest is.
apt_failed() {
    local reason
    reason=$(said "$FAILED_FROM" | grep -E '^(E|Err):' | tail -n 1) || true
    die "$1 failed${reason:+ ($reason)}; see $APT_LOG"
}

# is_installed PACKAGE
is_installed() { dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }

# install_packages PACKAGE...: those that are not there yet.
install_packages() {
    local missing=() package
    for package; do is_installed "$package" || missing+=("$package"); done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    say "installing ${missing[*]}"
    with_lists "apt-get install ${missing[*]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}"
}

# download_packages DIRECTORY PACKAGE...: the archives of packages, not installed. They are those of the lists' newest
# version, or of the installed one if that is newer.
download_packages() {
    local directory=$1
    shift
    mkdir -p "$directory"
    with_lists "apt-get download $*" download_into "$directory" "$@"
}
download_into() (
    cd "$1" || exit
    shift
    # Of a download that failed in its middle others may be there in an older version.
    rm -f ./*.deb
    apt-get -o APT::Sandbox::User=root download -qq "$@"
)

# need_unpacked PACKAGE PROGRAM: a program whose package would start a service of its own: unpacked beside what is built, and not installed
# (the libraries it needs are), unless the machine has the program.
need_unpacked() {
    local package=$1 program=$2 directory=$TARGET/$1 libraries
    type -P "$program" >/dev/null && return 0
    if [[ ! -f $directory/.unpacked ]]; then
        apt_lists
        mapfile -t libraries < <(apt-cache depends "$package" | sed -n 's/^  Depends: \(lib[^ ]*\)$/\1/p')
        install_packages "${libraries[@]}"
        download_packages "$directory" "$package"
        dpkg-deb -x "$directory/$package"_*.deb "$directory"
        touch "$directory/.unpacked"
    fi
    export PATH=$PATH:$directory/usr/bin:$directory/usr/sbin
}

# debian_source: where this machine's own packages come from: a mirror's URI and the release's name.
debian_source() {
    local codename
    # Names and origins are in the lists, not in apt's configuration.
    apt_lists >&2
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
        awk -v codename="$codename" '!found && $2 == codename && $3 == "main" && $4 == "Debian" { print $1, $2; found = 1 } END { exit !found }' ||
        die "apt on this machine knows no Debian package source"
}

# unpack_from_suite SUITE PACKAGE DIRECTORY: unpacks a package of another Debian suite, from the mirror this machine is
# set to, without installing anything: the machine's own packages and lists stay as they are.
unpack_from_suite() {
    local suite=$1 package=$2 directory=$3 apt source keyring=/usr/share/keyrings/debian-archive-keyring.gpg trust=
    [[ -f $directory/.unpacked ]] && return 0
    say "fetching $package of Debian $suite"
    source=$(debian_source)
    if [[ -r $keyring ]]; then trust="[signed-by=$keyring] "; fi
    apt=$(mktemp -d)
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial} "$directory"
    echo "deb $trust${source% *} $suite main" >"$apt/sources.list"
    # Its lists are fetched for it alone each time, so once more means fresh ones.
    logged fetch_from_suite "$apt" "$package" || logged fetch_from_suite "$apt" "$package" || {
        rm -rf "$apt"
        apt_failed "fetching $package of Debian $suite"
    }
    dpkg-deb -x "$apt"/*.deb "$directory"
    rm -rf "$apt"
    touch "$directory/.unpacked"
}
fetch_from_suite() (
    cd "$1" || exit
    options=(-o "Dir::Etc::SourceList=$1/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$1/state" -o "Dir::State::Lists=$1/state/lists"
        -o Dir::State::status=/dev/null -o "Dir::Cache=$1/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq -o APT::Update::Error-Mode=any && apt-get "${options[@]}" download -qq "$2"
)
