// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/podresources"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// askKubelet is the client that an engine asks the kubelet with.
func askKubelet(host hostfs.Root, socket string) (resolve.Kubelet, error) {
	return podresources.New(host, socket, podresources.Options{})
}
