// SPDX-License-Identifier: Apache-2.0

// Package staging keeps the directories on the host that belong to containers.
//
//	<state>/containers/<containerID>/   what the container sees at /var/run/jackfield
//	<state>/sandboxes/<sandboxID>/      which containers a sandbox has, and which
//	                                    directories were made for its sockets
//
// Its invariant: whatever is made is written down before it is made, under the
// sandbox it belongs to, so that removing the sandbox (or, after a crash, finding
// it gone) removes all of it, and nothing that was there before.
package staging
