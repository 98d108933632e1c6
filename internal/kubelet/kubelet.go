// SPDX-License-Identifier: Apache-2.0

// Package kubelet connects an engine to the kubelet's Pod Resources API. It is apart from
// package resolve, so that programs that do not ask the kubelet do not link gRPC.
package kubelet

import (
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/podresources"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// NewClient returns a client of the kubelet's socket, as resolve.Options.Kubelet wants it.
func NewClient(host hostfs.Root, socket string) resolve.Kubelet {
	return podresources.New(host, socket)
}
