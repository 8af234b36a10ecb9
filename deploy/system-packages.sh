#!/usr/bin/env bash
# System packages that pip cannot bring, for Debian 12: a Vulkan driver for ManiSkill, GL libraries for OpenCV and
# MuJoCo, Chromium for the browser tests. Idempotent; returns at once when everything is installed.
#
#   deploy/system-packages.sh           install what is missing (needs root; without it: says what, exit status 3)
#   deploy/system-packages.sh --check   print what is missing, exit status 1 if anything is
#   deploy/system-packages.sh --print-source   the bookworm-backports entry derived from this machine's own
set -euo pipefail

readonly CODENAME=bookworm
readonly BACKPORTS_FILE=/etc/apt/sources.list.d/joynexus-backports.sources
# Debian 12's own Mesa (22.3) lacks the Vulkan extensions that SAPIEN, ManiSkill's renderer, asks for.
readonly MESA_MINIMUM=25
readonly FROM_BACKPORTS=(mesa-vulkan-drivers libvulkan1)
readonly FROM_RELEASE=(libegl1 libgl1 libglib2.0-0 libosmesa6 chromium fonts-liberation)
readonly APT=(apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3)

package_missing() { # NAME
    local found
    found=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null || true)
    [[ $found == installed\ * ]] || return 0
    [[ $1 == mesa-vulkan-drivers ]] && dpkg --compare-versions "${found#* }" lt "$MESA_MINIMUM"
}

missing_of() { # NAMES... -> the missing ones, space separated
    local name missing=()
    for name in "$@"; do
        if package_missing "$name"; then missing+=("$name"); fi
    done
    echo "${missing[*]}"
}

# The machine's own entry for the release, as two lines "URIs: …" and "Signed-By: …" (the key may span lines).
debian_entry_deb822() { # FILES...
    awk -v suite="$CODENAME" '
        FNR == 1 { flush() }
        /^[ \t]*$/ { flush(); next }
        /^#/ { next }
        /^[ \t]/ { if (field == "signed-by") key = key "\n" $0; next }
        { name = $0; sub(/:.*/, "", name); field = tolower(name); value = $0; sub(/^[^:]*:[ \t]*/, "", value)
          if (field == "uris") uris = value
          else if (field == "signed-by") key = value
          else if (field == "suites") suites = " " value " "
          else if (field == "enabled") enabled = tolower(value)
          else if (field == "types") types = " " value " " }
        END { flush() }
        function flush() {
            if (!done && types ~ / deb / && index(suites, " " suite " ") && enabled != "no") {
                print "URIs: " uris
                if (key != "") print "Signed-By: " key
                done = 1
            }
            uris = key = suites = enabled = types = field = ""
        }' "$@"
}

debian_entry_one_line() { # FILES...
    awk -v suite="$CODENAME" '
        $1 != "deb" { next }
        { line = $0; options = ""
          if (match(line, /\[[^]]*\]/)) { options = substr(line, RSTART + 1, RLENGTH - 2); sub(/\[[^]]*\]/, "", line) }
          split(line, part, /[ \t]+/)
          if (part[3] != suite) next
          print "URIs: " part[2]
          if (match(options, /signed-by=[^ \t]+/)) print "Signed-By: " substr(options, RSTART + 10, RLENGTH - 10)
          exit }' "$@"
}

debian_entry() {
    local entry="" folder=${JOYNEXUS_APT_FOLDER:-/etc/apt} files=()
    shopt -s nullglob
    files=("$folder"/sources.list.d/*.sources)
    if ((${#files[@]})); then entry=$(debian_entry_deb822 "${files[@]}"); fi
    files=("$folder"/sources.list.d/*.list)
    if [[ -f $folder/sources.list ]]; then files=("$folder/sources.list" "${files[@]}"); fi
    if [[ -z $entry ]] && ((${#files[@]})); then entry=$(debian_entry_one_line "${files[@]}"); fi
    shopt -u nullglob
    if [[ -z $entry ]]; then
        echo "system-packages: no apt entry for '$CODENAME' in $folder to derive $CODENAME-backports from" >&2
        return 4
    fi
    printf 'Types: deb\nSuites: %s-backports\nComponents: main\n%s\n' "$CODENAME" "$entry"
}

# Another apt-get may hold the package lists; DPkg::Lock::Timeout does not cover them.
apt_update() {
    local attempt told
    told=$(mktemp)
    for attempt in {1..60}; do
        if "${APT[@]}" update -q >"$told" 2>&1; then
            rm -f "$told"
            return 0
        fi
        grep -q 'Could not get lock' "$told" || break
        echo "system-packages: waiting for another apt-get ($attempt)" >&2
        sleep 5
    done
    cat "$told" >&2
    rm -f "$told"
    return 5
}

install_missing() { # uses $backports and $release
    export DEBIAN_FRONTEND=noninteractive
    if [[ -n $backports ]]; then
        debian_entry >"$BACKPORTS_FILE.new"
        mv "$BACKPORTS_FILE.new" "$BACKPORTS_FILE"
    fi
    apt_update
    # shellcheck disable=SC2086 # the lists are words
    if [[ -n $backports ]]; then
        "${APT[@]}" install -y -q --no-install-recommends -t "$CODENAME-backports" $backports
    fi
    # shellcheck disable=SC2086
    if [[ -n $release ]]; then "${APT[@]}" install -y -q --no-install-recommends $release; fi
}

main() {
    local backports="" release=""
    case ${1:-} in
        "" | --check) ;;
        --print-source) debian_entry; return ;;
        *) echo "system-packages: unknown option '$1'; allowed: --check, --print-source" >&2; return 2 ;;
    esac
    if ! command -v dpkg-query >/dev/null; then
        echo "system-packages: not a Debian system; needed are ${FROM_BACKPORTS[*]} (Mesa >= $MESA_MINIMUM) ${FROM_RELEASE[*]}" >&2
        return 3
    fi
    backports=$(missing_of "${FROM_BACKPORTS[@]}")
    release=$(missing_of "${FROM_RELEASE[@]}")
    if [[ -z $backports$release ]]; then return 0; fi
    if [[ -n $backports ]]; then
        echo "missing from $CODENAME-backports (Mesa >= $MESA_MINIMUM): $backports"
    fi
    if [[ -n $release ]]; then echo "missing: $release"; fi
    if [[ ${1:-} == --check ]]; then return 1; fi
    if ! grep -qs "^VERSION_CODENAME=$CODENAME$" /etc/os-release; then
        echo "system-packages: this script knows Debian 12 only; install the packages named above by hand" >&2
        return 3
    fi
    if [[ $(id -u) -ne 0 ]]; then
        echo "system-packages: not root; ask an administrator to run: sudo $0" >&2
        return 3
    fi
    install_missing
    backports=$(missing_of "${FROM_BACKPORTS[@]}")
    release=$(missing_of "${FROM_RELEASE[@]}")
    if [[ -n $backports$release ]]; then
        echo "system-packages: still missing after the installation: $backports $release" >&2
        return 6
    fi
}

main "$@"
