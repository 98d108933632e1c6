#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh WHAT puts Jackfield where this host's runtimes look for it, or takes it
# away again. `make install` calls it. WHAT is one of
#
#   install      programs, hooks, manual pages, the systemd unit, a configuration
#   nri-plugin   the plugin, for a runtime that starts it by itself
#   crio-hook    the drop-in by which CRI-O reads the hook's directory
#   uninstall    all of that away, but for what somebody has edited
#
# Invariant: a file below /etc that is there is never overwritten, and none that was
# edited is removed. Nothing is started, stopped or restarted.
#
# Environment: DESTDIR is put before every path. PREFIX, SYSCONFDIR, UNITDIR, CNIBINDIR,
# NRIPLUGINDIR and NRICONFDIR are the paths on the host; BIN has the programs.
set -eu

: "${DESTDIR=}" "${PREFIX:=/usr/local}" "${SYSCONFDIR:=/etc}" "${BIN:=bin}"
: "${UNITDIR:=$PREFIX/lib/systemd/system}" "${CNIBINDIR:=/opt/cni/bin}"
: "${NRIPLUGINDIR:=/opt/nri/plugins}" "${NRICONFDIR:=/etc/nri/conf.d}"
top=$(cd "$(dirname "$0")/../.." && pwd)
share=$PREFIX/share/jackfield
doc=$PREFIX/share/doc/jackfield
plugin=50-jackfield

for path in "$PREFIX" "$SYSCONFDIR" "$UNITDIR" "$CNIBINDIR" "$NRIPLUGINDIR" "$NRICONFDIR"; do
	# The paths become parts of JSON, TOML and unit files.
	case $path in
	/*[!A-Za-z0-9/._+-]* | *//* | */) echo "install: $path: want letters, digits and / . _ + - without // and / at the end" >&2; exit 1 ;;
	/*) ;;
	*) echo "install: $path: want an absolute path" >&2; exit 1 ;;
	esac
done

say() { printf '%s\n' "$*"; }

# here FILE prints a file of the source tree with this host's paths.
here() { sed -e "s#/usr/local#$PREFIX#g" -e "s#/etc/jackfield/config.yaml#$SYSCONFDIR/jackfield/config.yaml#g" "$top/$1"; }

# put MODE FROM TO copies a file, by a name that nobody reads until it is whole: a
# program that runs cannot be written over.
put() {
	mkdir -p "$DESTDIR$(dirname "$3")"
	cp "$2" "$DESTDIR$3.new"
	chmod "$1" "$DESTDIR$3.new"
	mv -f "$DESTDIR$3.new" "$DESTDIR$3"
	say "  $3"
}

# render MODE FROM TO is put with this host's paths.
render() {
	mkdir -p "$DESTDIR$(dirname "$3")"
	here "$2" >"$DESTDIR$3.new"
	chmod "$1" "$DESTDIR$3.new"
	mv -f "$DESTDIR$3.new" "$DESTDIR$3"
	say "  $3"
}

# keep FROM TO SAMPLE is render for configuration: what is there stays. SAMPLE is in
# the documentation.
keep() {
	if [ ! -e "$DESTDIR$2" ] && [ ! -L "$DESTDIR$2" ]; then
		render 0644 "$1" "$2"
	elif here "$1" | cmp -s - "$DESTDIR$2"; then
		say "  $2 (as it was)"
	else
		say "  $2 is kept as it is; $doc/$3 has more"
	fi
}

# drop FILE removes a file that was installed.
drop() {
	if [ -e "$DESTDIR$1" ] || [ -L "$DESTDIR$1" ]; then
		rm -f "$DESTDIR$1"
		say "  $1"
	fi
}

# release FROM TO is drop for configuration: what was edited stays.
release() {
	[ -e "$DESTDIR$2" ] || return 0
	if here "$1" | cmp -s - "$DESTDIR$2"; then
		drop "$2"
	else
		say "  $2 is kept: it was edited"
	fi
}

# elsewhere OWN KEY PATH... prints the first file, of those and those in directories of
# those, that sets a key; OWN, the drop-in itself, is not meant.
elsewhere() {
	own=$1 key=$2
	shift 2
	for file in "$@"; do
		for found in "$DESTDIR$file" "$DESTDIR$file"/*.conf; do
			if [ -f "$found" ] && [ "$found" != "$DESTDIR$own" ] && grep -Eq "^[[:space:]]*$key[[:space:]]*=" "$found"; then
				say "${found#"$DESTDIR"}"
				return
			fi
		done
	done
}

# dropin FROM TO SAMPLE DIR FILE... installs a drop-in that names a hooks directory,
# unless another file has such a list already.
dropin() {
	from=$1 to=$2 sample=$3 dir=$4
	shift 4
	other=$(elsewhere "$to" hooks_dir "$@")
	if [ -n "$other" ]; then
		say "  $to is left out: $other has a hooks_dir, which it would take the place of; add \"$dir\" there"
		return
	fi
	keep "$from" "$to" "$sample"
}

programs() { for name in jackfield jackfield-nri jackfield-hook; do if [ -f "$BIN/$name" ]; then echo "$name"; fi; done; }

podman_conf=$SYSCONFDIR/containers/containers.conf.d/50-jackfield.conf
crio_conf=$SYSCONFDIR/crio/crio.conf.d/50-jackfield-hooks.conf

manuals() { find "$top/docs/man" -name '*.[1-8]' 2>/dev/null | sort; }

completions() {
	printf '%s\n' "bash $PREFIX/share/bash-completion/completions/jackfield" "zsh $PREFIX/share/zsh/site-functions/_jackfield" \
		"fish $PREFIX/share/fish/vendor_completions.d/jackfield.fish"
}

case ${1:-} in
install)
	[ -f "$BIN/jackfield" ] && [ -f "$BIN/jackfield-nri" ] || { echo "install: no programs in $BIN: run make build" >&2; exit 1; }
	say "installed below ${DESTDIR:-/}:"
	for name in $(programs); do put 0755 "$BIN/$name" "$PREFIX/bin/$name"; done
	if [ -f "$BIN/jackfield-cni" ]; then put 0755 "$BIN/jackfield-cni" "$CNIBINDIR/jackfield-cni"; fi
	put 0644 "$top/deploy/config.yaml" "$doc/config.yaml"
	put 0644 "$top/LICENSE" "$doc/LICENSE"
	render 0644 deploy/systemd/jackfield-nri.service "$UNITDIR/jackfield-nri.service"
	keep deploy/install/config.yaml "$SYSCONFDIR/jackfield/config.yaml" config.yaml
	if [ -f "$BIN/jackfield-hook" ]; then
		render 0644 hooks.d/crio/50-jackfield.json "$share/crio-hooks.d/50-jackfield.json"
		render 0644 hooks.d/podman/50-jackfield.json "$share/podman-hooks.d/50-jackfield.json"
		render 0644 deploy/podman/50-jackfield.conf "$doc/containers.conf"
		render 0644 deploy/crio/50-jackfield-hooks.conf "$doc/crio.conf"
		dropin deploy/podman/50-jackfield.conf "$podman_conf" containers.conf "$share/podman-hooks.d" \
			/usr/share/containers/containers.conf "$SYSCONFDIR/containers/containers.conf" "$SYSCONFDIR/containers/containers.conf.d"
	fi
	manuals | while read -r page; do put 0644 "$page" "$PREFIX/share/man/man${page##*.}/$(basename "$page")"; done
	completions | while read -r shell to; do
		if script=$("$BIN/jackfield" completion "$shell" 2>/dev/null); then
			mkdir -p "$DESTDIR$(dirname "$to")"
			printf '%s\n' "$script" >"$DESTDIR$to"
			say "  $to"
		fi
	done
	say "nothing was started: systemctl daemon-reload && systemctl enable --now jackfield-nri"
	;;
nri-plugin)
	say "installed below ${DESTDIR:-/}:"
	put 0755 "$BIN/jackfield-nri" "$NRIPLUGINDIR/$plugin"
	put 0644 "$top/nri/$plugin.conf" "$doc/nri.conf"
	keep deploy/install/config.yaml "$NRICONFDIR/$plugin.conf" nri.conf
	say "the runtime starts it at its own next start; do not run jackfield-nri.service beside it"
	;;
crio-hook)
	say "installed below ${DESTDIR:-/}:"
	dropin deploy/crio/50-jackfield-hooks.conf "$crio_conf" crio.conf "$share/crio-hooks.d" "$SYSCONFDIR/crio/crio.conf" "$SYSCONFDIR/crio/crio.conf.d"
	say "CRI-O reads it at its next start"
	;;
uninstall)
	say "removed below ${DESTDIR:-/}:"
	for name in jackfield jackfield-nri jackfield-hook; do drop "$PREFIX/bin/$name"; done
	drop "$CNIBINDIR/jackfield-cni"
	drop "$NRIPLUGINDIR/$plugin"
	drop "$UNITDIR/jackfield-nri.service"
	for name in config.yaml LICENSE nri.conf containers.conf crio.conf; do drop "$doc/$name"; done
	for name in crio podman; do drop "$share/$name-hooks.d/50-jackfield.json"; done
	release deploy/install/config.yaml "$SYSCONFDIR/jackfield/config.yaml"
	release deploy/install/config.yaml "$NRICONFDIR/$plugin.conf"
	release deploy/podman/50-jackfield.conf "$podman_conf"
	release deploy/crio/50-jackfield-hooks.conf "$crio_conf"
	manuals | while read -r page; do drop "$PREFIX/share/man/man${page##*.}/$(basename "$page")"; done
	completions | while read -r _ to; do drop "$to"; done
	for dir in "$share/crio-hooks.d" "$share/podman-hooks.d" "$share" "$doc" "$SYSCONFDIR/jackfield"; do
		rmdir "$DESTDIR$dir" 2>/dev/null || :
	done
	;;
*)
	echo "usage: install.sh install|nri-plugin|crio-hook|uninstall" >&2
	exit 2
	;;
esac
