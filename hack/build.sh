# shellcheck shell=bash
# Building our binaries: which of Cargo.toml's profiles, and a line that tells how far the build is. Sourced by lib.sh, never
# run.
# shellcheck source=lib.sh disable=SC2034,SC2154

TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
HOST_TRIPLE=$(uname -m)-unknown-linux-gnu

# use_profile NAME: builds with, and takes binaries of, this profile from now on, also in commands started from here.
# release: what is shipped and measured. quick: what only has to run soon. dev: with debug checks, and shared with the tests.
use_profile() {
    export SKIFF_PROFILE=$1
    PROFILE=$1
    BINARIES=$TARGET/${PROFILE/#dev/debug}
    # The static binaries have a profile of their own that goes with release.
    STATIC_PROFILE=${PROFILE/#release/static}
    STATIC=$TARGET/$HOST_TRIPLE/${STATIC_PROFILE/#dev/debug}
}
use_profile "${SKIFF_PROFILE:-release}"

# need_cargo: the Rust toolchain is the one thing that is not a Debian package here. What it links with is one, and a small
# system has none.
need_cargo() {
    if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo ]]; then
        PATH=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH
    fi
    command -v cargo >/dev/null || die "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml") or newer (https://rustup.rs)"
    command -v cc >/dev/null || install_packages gcc libc6-dev
}

# What is shipped is built in one go: cargo gives the libraries what any of the packages asks of them, by that it names their
# functions, and by those names the linker puts together what runs all day (hot-functions). Of a kubelet built alone more is in
# memory.
SHIPPED=(kubelet controlplane imagetool podtool)

# build PACKAGE...: binaries, named like their packages.
build() { run_cargo "$*" cargo build --locked --profile "$PROFILE" "${@/#/--package=}"; }

# build_static PACKAGE...: the small static binaries, for containers that have no C library and for plugins that start
# tens of times a second.
build_static() {
    RUSTFLAGS='-C target-feature=+crt-static' \
        run_cargo "$* (static)" cargo build --locked --profile "$STATIC_PROFILE" --target "$HOST_TRIPLE" "${@/#/--package=}"
}

# run_cargo WHAT COMMAND...: runs cargo in the checkout, its progress as one line of ours, its messages as they are.
run_cargo() {
    local what=$1 status
    shift
    # Cargo tells its progress only to a terminal, unless told to; how wide it may be must then be said as well.
    (
        cd "$ROOT"
        CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=160 "$@" </dev/null 2>&1
    ) | show_progress "$what" && status=0 || status=$?
    [[ $status = 0 ]] || die "building $what failed"
}

# show_progress WHAT: passes on what is no progress. Progress becomes a line that is written over on a terminal, and in a
# log a line every ten seconds. Cargo ends a line of progress with a carriage return.
show_progress() {
    local what=$1 chunk line names shown=$((SECONDS - 8)) drawn=
    while IFS= read -r -d $'\r' chunk || [[ -n $chunk ]]; do
        while [[ -n $chunk ]]; do
            line=${chunk%%$'\n'*}
            if [[ $line = "$chunk" ]]; then chunk=; else chunk=${chunk#*$'\n'}; fi
            # What erases the line of progress before.
            line=${line//$'\e[K'/}
            if [[ $line =~ ^\ *(Building|Downloading)\ \[[^]]*\]\ ([0-9]+)/([0-9]+)(:\ (.*))?$ ]]; then
                names=${BASH_REMATCH[5]}
                draw_progress "building $what: ${BASH_REMATCH[2]} of ${BASH_REMATCH[3]}  ${names%%  *}"
            elif [[ $line =~ ^\ *Fetch\ \[[^]]*\]\ ([0-9]+)\ complete ]]; then
                draw_progress "building $what: crates are fetched, ${BASH_REMATCH[1]} so far"
            elif [[ ! $line =~ ^\ *((Compiling|Downloading|Downloaded|Finished|Updating|Locking|Blocking|Fresh)\ .*)?$ ]]; then
                erase_progress
                printf '%s\n' "$line"
            fi
        done
    done
    erase_progress
}
# draw_progress TEXT, erase_progress: parts of show_progress, in whose variables they work.
draw_progress() {
    local text
    if [[ -t 1 ]]; then
        text=$(say "$1")
        printf '\r\e[K%s' "${text:0:${COLUMNS:-$(tput cols 2>/dev/null || echo 80)} - 1}"
        drawn=1
    elif ((SECONDS - shown >= 10)); then
        say "$1"
        shown=$SECONDS
    fi
}
erase_progress() {
    [[ -z $drawn ]] || printf '\r\e[K'
    drawn=
}
