// SPDX-License-Identifier: Apache-2.0

// Command image builds Jackfield's container image with the Go toolchain alone. It writes a tar archive
// of an OCI image layout (image-spec 1.1) with an image for each platform. `ctr images import`, `podman
// load`, `docker load` and `skopeo copy oci-archive:` read the archive.
//
// The image has the static commands in /usr/bin and, like a host, /var/run as a link to /run. It
// has no shell, package manager or libc. The tests in test/kube run it in a cluster, as the
// DaemonSet of the chart and of the kustomization.
//
// Invariant: the same checkout, toolchain and flags produce the same bytes. The image contains no
// time, user or directory of the machine.
package main
