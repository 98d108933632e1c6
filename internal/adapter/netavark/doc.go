// SPDX-License-Identifier: Apache-2.0

// Package netavark is the plugin of netavark, the network program of Podman 5 and later. It
// implements the commands info, create, setup and teardown of netavark's plugin API 1.0.0. It
// translates a network of Podman and a container into an attachment of package attach, which
// creates the socket's directory, the port and the device-info. The OCI hook delivers the socket to
// the container.
//
// Its invariant: teardown removes everything that a setup created and nothing else, even if that
// setup was interrupted.
//
// All directories come from the node's configuration, so the plugin writes where the OCI hook
// reads. docs/reference/netavark-plugin.md lists the options of a network.
package netavark
