// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/jackfield/jackfield/test/cluster"
)

//go:embed multus.yaml
var multusSamples string

// addMultus installs Multus, and a pod with a second network. The runtime uses Multus some moments after its
// configuration is there, so the pod is created again while it has one network.
func addMultus(ctx context.Context, c *cluster.Cluster) error {
	logf("installing Multus, and a pod with a second network")
	if _, err := c.InstallMultus(ctx, cluster.ThinMultus); err != nil {
		return err
	}
	return c.Wait(ctx, "the pod fast-lane/edge has its second network", func(ctx context.Context) error {
		if _, err := c.KubectlInput(ctx, multusSamples, "apply", "--filename=-"); err != nil {
			return err
		}
		_, err := c.Kubectl(ctx, "-n", "fast-lane", "wait", "--for=condition=Ready", "pod/edge", "--timeout=1m")
		if err != nil {
			return err
		}
		networks, err := c.Kubectl(ctx, "-n", "fast-lane", "get", "pod/edge", "--output=yaml")
		if err != nil || strings.Contains(networks, "k8s.v1.cni.cncf.io/network-status") {
			return err
		}
		_, err = c.Kubectl(ctx, "-n", "fast-lane", "delete", "pod/edge")
		return errors.Join(errors.New("the pod has one network"), err)
	})
}

// multusGuide has commands to try with Multus.
const multusGuide = `The pod fast-lane/edge has a second network by Multus. Its application creates the socket of the network:

  kubectl -n fast-lane get network-attachment-definition second --output=yaml
  kubectl -n fast-lane exec edge -- cat /run/jackfield/devices.json

`
