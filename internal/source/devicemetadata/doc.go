// SPDX-License-Identifier: Apache-2.0

// Package devicemetadata reads the metadata files that drivers of dynamic resource allocation
// (DRA) write for the devices of resource claims (Kubernetes enhancement 5304).
//
// A driver writes one file for each request of a claim, below its plugin data directory:
//
//	<plugins>/<driver>/dra-device-metadata/<namespace>_<claim>/<request>/metadata.json
//
// The file is a stream of JSON objects: the same object in several API versions, newest first.
// The first one in a version that this package knows counts, as for the library of Kubernetes.
//
// Parse returns only valid data: each value obeys its rule, and the device belongs to
// the driver, claim and request of the file's path. Everything else is a diagnostic with file,
// line and field. Files are untrusted: regular, bounded, below the directory, without symlinks.
package devicemetadata
