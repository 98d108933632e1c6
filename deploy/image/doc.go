// SPDX-License-Identifier: Apache-2.0

// Command image makes Jackfield's container image with the Go toolchain alone: a
// tar archive of an OCI image layout (image-spec 1.1) with an image for each
// platform, which `ctr images import`, `podman load`, `docker load` and `skopeo
// copy oci-archive:` read.
//
// The image has the static commands in /usr/bin, /var/run as a link to /run, as a
// host has it, and nothing else: no shell, no package manager, no libc.
//
// Invariant: the same checkout, toolchain and flags give the same bytes. No time,
// user or directory of the machine gets into it.
package main
