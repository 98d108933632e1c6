#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh WHAT installs Jackfield for this host's runtimes, or uninstalls it. `make install`
# calls it. WHAT is one of
#
#   install      programs, hooks, manual pages, the systemd unit, a configuration
#   nri-plugin   the plugin, for a runtime that starts it by itself
#   crio-hook    the drop-in by which CRI-O reads the hook's directory
#   uninstall    removes all of this, except files that were edited
#
# Invariant: an existing file below /etc is never overwritten, and an edited one is never removed.
# Nothing is started, stopped or restarted.
#
# Environment: DESTDIR is put before every path. PREFIX, SYSCONFDIR, UNITDIR, CNIBINDIR, NETAVARKDIR,
# NRIPLUGINDIR and NRICONFDIR are the paths on the host; BIN has the programs, and
# COMPLETER is the one that prints the completions, for packages of another architecture.
set -eu

: "${DESTDIR=}" "${PREFIX:=/usr/local}" "${SYSCONFDIR:=/etc}" "${BIN:=bin}"
: "${COMPLETER:=$BIN/jackfield}"
: "${UNITDIR:=$PREFIX/lib/systemd/system}" "${CNIBINDIR:=/opt/cni/bin}"
: "${NETAVARKDIR:=$PREFIX/libexec/netavark}"
: "${NRIPLUGINDIR:=/opt/nri/plugins}" "${NRICONFDIR:=/etc/nri/conf.d}"
top=$(cd "$(dirname "$0")/../.." && pwd)
share=$PREFIX/share/jackfield
doc=$PREFIX/share/doc/jackfield
plugin=50-jackfield

for path in "$PREFIX" "$SYSCONFDIR" "$UNITDIR" "$CNIBINDIR" "$NETAVARKDIR" "$NRIPLUGINDIR" "$NRICONFDIR"; do
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

# put MODE FROM TO copies a file under a temporary name and renames it into place, because a
# running program cannot be overwritten.
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

# keep FROM TO SAMPLE is render for configuration: an existing file stays. SAMPLE is the name of the
# sample in the documentation directory.
keep() {
	if [ ! -e "$DESTDIR$2" ] && [ ! -L "$DESTDIR$2" ]; then
		render 0644 "$1" "$2"
	elif here "$1" | cmp -s - "$DESTDIR$2"; then
		say "  $2 (unchanged)"
	else
		say "  $2 exists and is kept; see the sample $doc/$3"
	fi
}

# drop FILE removes a file that was installed.
drop() {
	if [ -e "$DESTDIR$1" ] || [ -L "$DESTDIR$1" ]; then
		rm -f "$DESTDIR$1"
		say "  $1"
	fi
}

# release FROM TO is drop for configuration: an edited file stays.
release() {
	[ -e "$DESTDIR$2" ] || return 0
	if here "$1" | cmp -s - "$DESTDIR$2"; then
		drop "$2"
	else
		say "  $2 is kept: it was edited"
	fi
}

# elsewhere OWN KEY PATH... prints the first file that sets a key, among the paths and the *.conf files
# in them. It skips OWN, the drop-in itself.
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

# dropin FROM TO SAMPLE DIR FILE... installs a drop-in with a list of hooks directories, unless
# another file has such a list.
dropin() {
	from=$1 to=$2 sample=$3 dir=$4
	shift 4
	other=$(elsewhere "$to" hooks_dir "$@")
	if [ -n "$other" ]; then
		say "  $to is not installed: it would replace hooks_dir of $other; add \"$dir\" there"
		return
	fi
	keep "$from" "$to" "$sample"
}

programs() { for name in jackfield jackfield-nri jackfield-hook jackfield-run kubectl-jackfield; do if [ -f "$BIN/$name" ]; then echo "$name"; fi; done; }

podman_conf=$SYSCONFDIR/containers/containers.conf.d/50-jackfield.conf
crio_conf=$SYSCONFDIR/crio/crio.conf.d/50-jackfield-hooks.conf

manuals() { find "$top/docs/man" -name '*.[1-8]' 2>/dev/null | sort; }

completions() {
	printf '%s\n' "bash $PREFIX/share/bash-completion/completions/jackfield" "zsh $PREFIX/share/zsh/site-functions/_jackfield" \
		"fish $PREFIX/share/fish/vendor_completions.d/jackfield.fish"
}

case ${1:-} in
install)
	[ -f "$BIN/jackfield" ] && [ -f "$BIN/jackfield-nri" ] || { echo "install: found no programs in $BIN; run make build" >&2; exit 1; }
	say "installed below ${DESTDIR:-/}:"
	for name in $(programs); do put 0755 "$BIN/$name" "$PREFIX/bin/$name"; done
	if [ -f "$BIN/jackfield-cni" ]; then put 0755 "$BIN/jackfield-cni" "$CNIBINDIR/jackfield-cni"; fi
	if [ -f "$BIN/jackfield-netavark" ]; then put 0755 "$BIN/jackfield-netavark" "$NETAVARKDIR/jackfield-netavark"; fi
	put 0644 "$top/deploy/config.yaml" "$doc/config.yaml"
	put 0644 "$top/LICENSE" "$doc/LICENSE"
	# Archives of a release have it.
	if [ -f "$top/THIRD_PARTY_LICENSES" ]; then put 0644 "$top/THIRD_PARTY_LICENSES" "$doc/THIRD_PARTY_LICENSES"; fi
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
		if script=$("$COMPLETER" completion "$shell" 2>/dev/null); then
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
	say "the runtime starts the plugin at the runtime's next start; do not run jackfield-nri.service as well"
	;;
crio-hook)
	say "installed below ${DESTDIR:-/}:"
	dropin deploy/crio/50-jackfield-hooks.conf "$crio_conf" crio.conf "$share/crio-hooks.d" "$SYSCONFDIR/crio/crio.conf" "$SYSCONFDIR/crio/crio.conf.d"
	say "CRI-O reads it at its next start"
	;;
uninstall)
	say "removed below ${DESTDIR:-/}:"
	for name in jackfield jackfield-nri jackfield-hook jackfield-run kubectl-jackfield; do drop "$PREFIX/bin/$name"; done
	drop "$CNIBINDIR/jackfield-cni"
	drop "$NETAVARKDIR/jackfield-netavark"
	drop "$NRIPLUGINDIR/$plugin"
	drop "$UNITDIR/jackfield-nri.service"
	for name in config.yaml LICENSE THIRD_PARTY_LICENSES nri.conf containers.conf crio.conf; do drop "$doc/$name"; done
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
