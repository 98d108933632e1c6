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
# Users need the directories, too: a rootless Podman that cannot read its hooks runs no container.
umask 022

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
	/*[!A-Za-z0-9/._+-]* | *//* | */) echo "install: invalid path $path: must have only letters, digits and / . _ + -, without // and / at the end" >&2; exit 1 ;;
	/*) ;;
	*) echo "install: invalid path $path: must be absolute" >&2; exit 1 ;;
	esac
done

print_line() { printf '%s\n' "$*"; }

# print_with_host_paths FILE prints a file of the source tree with this host's paths.
print_with_host_paths() { sed -e "s#/usr/local#$PREFIX#g" -e "s#/etc/jackfield/config.yaml#$SYSCONFDIR/jackfield/config.yaml#g" "$top/$1"; }

# copy_file MODE FROM TO copies a file under a temporary name and renames it into place, because a
# running program cannot be overwritten.
copy_file() {
	mkdir -p "$DESTDIR$(dirname "$3")"
	cp "$2" "$DESTDIR$3.new"
	replace_file "$1" "$3"
}

# render_file MODE FROM TO is copy_file with this host's paths.
render_file() {
	mkdir -p "$DESTDIR$(dirname "$3")"
	print_with_host_paths "$2" >"$DESTDIR$3.new"
	replace_file "$1" "$3"
}

# replace_file MODE FILE renames FILE.new to FILE.
replace_file() {
	chmod "$1" "$DESTDIR$2.new"
	mv -f "$DESTDIR$2.new" "$DESTDIR$2"
	print_line "  $2"
}

# install_config FROM TO SAMPLE is render_file for configuration: an existing file stays. SAMPLE is the name of the
# sample in the documentation directory.
install_config() {
	if [ ! -e "$DESTDIR$2" ] && [ ! -L "$DESTDIR$2" ]; then
		render_file 0644 "$1" "$2"
	elif print_with_host_paths "$1" | cmp -s - "$DESTDIR$2"; then
		print_line "  $2 (unchanged)"
	else
		print_line "  $2 exists and is kept; see the sample $doc/$3"
	fi
}

# remove_file FILE removes a file that was installed.
remove_file() {
	if [ -e "$DESTDIR$1" ] || [ -L "$DESTDIR$1" ]; then
		rm -f "$DESTDIR$1"
		print_line "  $1"
	fi
}

# remove_config FROM TO is remove_file for configuration: an edited file stays.
remove_config() {
	[ -e "$DESTDIR$2" ] || return 0
	if print_with_host_paths "$1" | cmp -s - "$DESTDIR$2"; then
		remove_file "$2"
	else
		print_line "  $2 is kept: it was edited"
	fi
}

# find_other_setting OWN KEY PATTERN... prints the first file that sets a key, among those that match the patterns. It
# skips OWN, the drop-in itself.
find_other_setting() {
	own=$1 key=$2
	shift 2
	for pattern in "$@"; do
		for found in "$DESTDIR"$pattern; do
			if [ -f "$found" ] && [ "$found" != "$DESTDIR$own" ] && grep -Eq "^[[:space:]]*$key[[:space:]]*=" "$found"; then
				print_line "${found#"$DESTDIR"}"
				return
			fi
		done
	done
}

# install_dropin FROM TO SAMPLE DIR PATTERN... installs a drop-in with a list of hooks directories, unless
# another file has such a list. It fails if it installs nothing.
install_dropin() {
	from=$1 to=$2 sample=$3 dir=$4
	shift 4
	other=$(find_other_setting "$to" hooks_dir "$@")
	if [ -n "$other" ]; then
		print_line "  $to is not installed: it would replace hooks_dir of $other; add \"$dir\" there"
		return 1
	fi
	install_config "$from" "$to" "$sample"
}

list_programs() { for name in jackfield jackfield-nri jackfield-hook jackfield-run kubectl-jackfield; do if [ -f "$BIN/$name" ]; then echo "$name"; fi; done; }

podman_conf=$SYSCONFDIR/containers/containers.conf.d/50-jackfield.conf
crio_conf=$SYSCONFDIR/crio/crio.conf.d/50-jackfield-hooks.conf

list_manuals() { find "$top/docs/man" -name '*.[1-8]' 2>/dev/null | sort; }

list_completions() {
	printf '%s\n' "bash $PREFIX/share/bash-completion/completions/jackfield" "zsh $PREFIX/share/zsh/site-functions/_jackfield" \
		"fish $PREFIX/share/fish/vendor_completions.d/jackfield.fish"
}

case ${1:-} in
install)
	[ -f "$BIN/jackfield" ] && [ -f "$BIN/jackfield-nri" ] || { echo "install: found no programs in $BIN; run make build" >&2; exit 1; }
	print_line "installed below ${DESTDIR:-/}:"
	for name in $(list_programs); do copy_file 0755 "$BIN/$name" "$PREFIX/bin/$name"; done
	if [ -f "$BIN/jackfield-cni" ]; then copy_file 0755 "$BIN/jackfield-cni" "$CNIBINDIR/jackfield-cni"; fi
	if [ -f "$BIN/jackfield-netavark" ]; then copy_file 0755 "$BIN/jackfield-netavark" "$NETAVARKDIR/jackfield-netavark"; fi
	copy_file 0644 "$top/deploy/config.yaml" "$doc/config.yaml"
	copy_file 0644 "$top/LICENSE" "$doc/LICENSE"
	# Archives of a release have it.
	if [ -f "$top/THIRD_PARTY_LICENSES" ]; then copy_file 0644 "$top/THIRD_PARTY_LICENSES" "$doc/THIRD_PARTY_LICENSES"; fi
	render_file 0644 deploy/systemd/jackfield-nri.service "$UNITDIR/jackfield-nri.service"
	install_config deploy/install/config.yaml "$SYSCONFDIR/jackfield/config.yaml" config.yaml
	if [ -f "$BIN/jackfield-hook" ]; then
		render_file 0644 hooks.d/crio/50-jackfield.json "$share/crio-hooks.d/50-jackfield.json"
		render_file 0644 hooks.d/podman/50-jackfield.json "$share/podman-hooks.d/50-jackfield.json"
		render_file 0644 deploy/podman/50-jackfield.conf "$doc/containers.conf"
		render_file 0644 deploy/crio/50-jackfield-hooks.conf "$doc/crio.conf"
		install_dropin deploy/podman/50-jackfield.conf "$podman_conf" containers.conf "$share/podman-hooks.d" \
			/usr/share/containers/containers.conf "$SYSCONFDIR/containers/containers.conf" "$SYSCONFDIR/containers/containers.conf.d/*.conf" || true
	fi
	list_manuals | while read -r page; do copy_file 0644 "$page" "$PREFIX/share/man/man${page##*.}/$(basename "$page")"; done
	list_completions | while read -r shell to; do
		if script=$("$COMPLETER" completion "$shell" 2>/dev/null); then
			mkdir -p "$DESTDIR$(dirname "$to")"
			printf '%s\n' "$script" >"$DESTDIR$to"
			print_line "  $to"
		fi
	done
	print_line "nothing was started: systemctl daemon-reload && systemctl enable --now jackfield-nri"
	;;
nri-plugin)
	print_line "installed below ${DESTDIR:-/}:"
	copy_file 0755 "$BIN/jackfield-nri" "$NRIPLUGINDIR/$plugin"
	copy_file 0644 "$top/nri/$plugin.conf" "$doc/nri.conf"
	install_config deploy/install/config.yaml "$NRICONFDIR/$plugin.conf" nri.conf
	print_line "the runtime starts the plugin at the runtime's next start; do not run jackfield-nri.service as well"
	;;
crio-hook)
	print_line "installed below ${DESTDIR:-/}:"
	# CRI-O reads every file, whatever its name: OpenShift's 00-default has a list.
	if install_dropin deploy/crio/50-jackfield-hooks.conf "$crio_conf" crio.conf "$share/crio-hooks.d" "$SYSCONFDIR/crio/crio.conf" "$SYSCONFDIR/crio/crio.conf.d/*"; then
		print_line "CRI-O reads it at its next start"
	fi
	;;
uninstall)
	print_line "removed below ${DESTDIR:-/}:"
	for name in jackfield jackfield-nri jackfield-hook jackfield-run kubectl-jackfield; do remove_file "$PREFIX/bin/$name"; done
	remove_file "$CNIBINDIR/jackfield-cni"
	remove_file "$NETAVARKDIR/jackfield-netavark"
	remove_file "$NRIPLUGINDIR/$plugin"
	remove_file "$UNITDIR/jackfield-nri.service"
	for name in config.yaml LICENSE THIRD_PARTY_LICENSES nri.conf containers.conf crio.conf; do remove_file "$doc/$name"; done
	for name in crio podman; do remove_file "$share/$name-hooks.d/50-jackfield.json"; done
	remove_config deploy/install/config.yaml "$SYSCONFDIR/jackfield/config.yaml"
	remove_config deploy/install/config.yaml "$NRICONFDIR/$plugin.conf"
	remove_config deploy/podman/50-jackfield.conf "$podman_conf"
	remove_config deploy/crio/50-jackfield-hooks.conf "$crio_conf"
	list_manuals | while read -r page; do remove_file "$PREFIX/share/man/man${page##*.}/$(basename "$page")"; done
	list_completions | while read -r _ to; do remove_file "$to"; done
	for dir in "$share/crio-hooks.d" "$share/podman-hooks.d" "$share" "$doc" "$SYSCONFDIR/jackfield"; do
		rmdir "$DESTDIR$dir" 2>/dev/null || :
	done
	;;
*)
	echo "usage: install.sh install|nri-plugin|crio-hook|uninstall" >&2
	exit 2
	;;
esac
